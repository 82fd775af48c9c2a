"""From a document's file to its text: plain text, Markdown, reStructuredText, HTML and PDF."""

import codecs
import re
from pathlib import Path

from frames.text import clean
from nodes.tools.markup import html_text
from nodes.tools.pdf import pdf_text
from nodes.tools.unreadable import UnreadableError

_HTML = {".html", ".htm", ".xhtml"}
_HEADED = _HTML | {".pdf", ".md", ".markdown", ".mdown", ".rst", ".txt", ".text", ""}

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CHARSET = re.compile(rb"""charset\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
_SNIFFED = 4096
_MOST_ACCENTS = 0.1
"""Share of bytes beyond ASCII up to which a text may be Western European; in other scripts it is far higher."""


def extract(path: Path) -> str:
    """Return the text of a document, its headings as Markdown's, lines ended by a line feed.

    Raises:
        UnreadableError: the file cannot be read, is binary, encrypted, broken or empty; the message is the reason.
    """
    try:
        text = pdf_text(path) if path.suffix.lower() == ".pdf" else _decoded(path)
    except OSError as error:
        raise UnreadableError((error.strerror or str(error)).lower()) from error
    text = clean(text.replace("\r\n", "\n").replace("\r", "\n"))
    if not text.strip():
        raise UnreadableError("empty")
    return text


def has_headings(path: Path) -> bool:
    """Whether lines that look like headings are some; in a program or a table they are not."""
    return path.suffix.lower() in _HEADED


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix.lower() in _HTML:
        return html_text(_decode(data, _declared(data)))
    return _decode(data)


def _decode(data: bytes, declared: str | None = None) -> str:
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    if not marked and b"\0" in data[:_SNIFFED]:
        raise UnreadableError("binary; save it as text, HTML or PDF")
    for encoding in [marked] if marked else ["utf-8", declared, _western(data)]:
        try:
            if encoding:
                return data.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    raise UnreadableError("not in UTF-8; save it in that encoding")


def _declared(data: bytes) -> str | None:
    found = _CHARSET.search(data[:_SNIFFED])
    return found[1].decode("ascii") if found else None


def _western(data: bytes) -> str | None:
    beyond = len(data) - len(data.translate(None, bytes(range(128, 256))))
    return "cp1252" if beyond < _MOST_ACCENTS * len(data) else None
