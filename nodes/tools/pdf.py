"""The text of PDF files by ``pypdf``, kept in the user's cache, because reading one takes seconds."""

import hashlib
import logging
import os
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from frames.text import clean, one_line
from nodes.tools.unreadable import UnreadableError

_VERSION = 1
"""Of the way that text is taken out; another one makes what was kept void."""

_KEPT_SECONDS = 90 * 24 * 3600.0
_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zlib.error,
)
"""What pypdf has been seen to raise for damaged files, next to its own exceptions."""


def pdf_text(path: Path) -> str:
    """Return the text of a PDF file, each page under the heading ``# Page N``.

    Raises:
        OSError: the file cannot be read.
        UnreadableError: pypdf is missing, or the file is encrypted, broken or without text.
    """
    status = path.stat()
    entry = _folder() / _key(path, status)
    kept = _kept(entry)
    if kept is None:
        kept = _read(path)
        _keep(entry, kept)
    return kept


def _read(path: Path) -> str:
    try:
        import pypdf  # slow to import, and only needed here
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        raise UnreadableError("a PDF: pip install 'cactus-solver[docs]'") from error
    logging.getLogger("pypdf").addHandler(logging.NullHandler())  # its remarks on odd files are nobody's concern
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableError("encrypted")
        pages = list(_pages(reader))
    except DependencyError as error:
        raise UnreadableError("encrypted") from error
    except (PyPdfError, *_FAULTS) as error:
        raise UnreadableError(f"broken PDF ({one_line(str(error) or type(error).__name__, 100)})") from error
    if not pages:
        raise UnreadableError("no text in it (a scan?)")
    return "\n\n".join(pages)


def _pages(reader: Any) -> Iterator[str]:
    for number, page in enumerate(reader.pages, start=1):
        text = clean(page.extract_text()).strip()
        if text:
            yield f"# Page {number}\n\n{text}"


# What is kept: a file of the text's hash and the text, so that a damaged one is known for it


def _folder() -> Path:
    return user_cache_path("cactus", appauthor=False) / "pdf"


def _key(path: Path, status: os.stat_result) -> str:
    facts = f"{_VERSION}\0{path}\0{status.st_mtime_ns}\0{status.st_size}"
    return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()


def _kept(entry: Path) -> str | None:
    try:
        digest, _, data = entry.read_bytes().partition(b"\n")
        if digest.decode() != hashlib.sha256(data).hexdigest():
            return None
        os.utime(entry)
        return data.decode()
    except (OSError, UnicodeError):
        return None


def _keep(entry: Path, text: str) -> None:
    """Store ``text``; renaming makes it whole for other processes. Where there is no room, it is read again."""
    data = text.encode()
    temporary = None
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        _forget_old(entry.parent)
        with tempfile.NamedTemporaryFile(dir=entry.parent, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
            file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
        temporary.replace(entry)
    except OSError:
        if temporary:
            temporary.unlink(missing_ok=True)


def _forget_old(folder: Path) -> None:
    oldest = time.time() - _KEPT_SECONDS
    for entry in folder.iterdir():
        if entry.stat().st_mtime < oldest:
            entry.unlink(missing_ok=True)
