"""The text of HTML pages: scripts dropped, headings and lists as in Markdown."""

import re
from html.parser import HTMLParser

from nodes.tools.unreadable import UnreadableError

Attributes = list[tuple[str, str | None]]

_HEADINGS = {"title": "# "} | {f"h{level}": "#" * level + " " for level in range(1, 7)}
_DROPPED = {"script", "style", "template", "svg"}
_PARAGRAPHS = {
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "head",
    "header",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "summary",
    "table",
    "ul",
}
_LINES = {"br": "\n", "tr": "\n", "li": "\n- "}
_CELLS = {"td", "th"}
_SPACE = re.compile(r"\s+")


def html_text(source: str) -> str:
    """Return the text of an HTML page.

    Raises:
        UnreadableError: the markup is broken beyond what the parser takes.
    """
    parser = _Text()
    try:
        parser.feed(source)
        parser.close()
    except AssertionError as error:  # how the parser refuses a bad marked section
        raise UnreadableError(f"broken HTML ({error})") from error
    return parser.text()


class _Text(HTMLParser):
    """Gathers text; white space is kept inside of ``pre`` alone."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._dropping = 0
        self._verbatim = 0
        self._heading = False

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        del attrs
        self._dropping += tag in _DROPPED
        self._verbatim += tag == "pre"
        if self._dropping:
            return
        if tag in _HEADINGS:
            self._heading = True
            self._pieces.append("\n\n" + _HEADINGS[tag])
        elif tag in _PARAGRAPHS:
            self._pieces.append("\n\n")
        elif tag in _LINES:
            self._pieces.append(" " if self._heading else _LINES[tag])

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            self._dropping -= tag in _DROPPED
            return
        self._verbatim -= tag == "pre" and self._verbatim > 0
        self._heading = self._heading and tag not in _HEADINGS
        if tag in _PARAGRAPHS or tag in _HEADINGS:
            self._pieces.append("\n\n")
        elif tag in _CELLS:
            self._pieces.append(" | ")

    def handle_data(self, data: str) -> None:
        if self._dropping:
            return
        if not self._verbatim:
            data = _SPACE.sub(" ", data)
            if not self._pieces or self._pieces[-1].endswith(("\n", " ")):
                data = data.lstrip()
        if data:
            self._pieces.append(data)

    def text(self) -> str:
        lines = (line.rstrip().removesuffix(" |") for line in "".join(self._pieces).split("\n"))
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
