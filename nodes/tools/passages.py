"""A document's text, cut into passages under their headings."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SIZE = 1_000
"""Characters of a passage, about."""

_LONGEST = SIZE * 3 // 2
_LONGEST_TITLE = 300
_ATX = re.compile(r"#{1,6}[ \t]+(.+?)[ \t]*#*$")
_RULE = re.compile(r"([=\-~^\"'`*+#:.<>_])\1{2,}")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_BREAKS = ("\n", "。", ". ", "! ", "? ", "; ", ", ", " ")


class Part(NamedTuple):
    """A passage: the heading it stands under (may be empty), and where it begins and ends in the text."""

    title: str
    start: int
    end: int


class _Block(NamedTuple):
    start: int
    end: int
    heading: str | None


def passages(text: str, headings: bool = True) -> Iterator[Part]:
    """Yield the passages of ``text``, in order: whole paragraphs of about ``SIZE`` characters together.

    A heading begins a passage. A paragraph far longer than ``SIZE`` is cut at a line, a sentence or a word.
    """
    title, start, end, bare = "", 0, 0, True
    for block in _blocks(text, headings):
        begins = block.heading is not None and not bare
        if end and (begins or (not bare and block.end - start > SIZE)):
            yield from _cut(text, Part(title, start, end))
            start, end, bare = block.start, 0, True
        if not end:
            start = block.start
        if block.heading is not None:
            title = block.heading
        bare = bare and block.heading is not None
        end = block.end
    if end:
        yield from _cut(text, Part(title, start, end))


def _cut(text: str, part: Part) -> Iterator[Part]:
    title, start, end = part
    while end - start > _LONGEST:
        border = _border(text, start)
        yield Part(title, start, border)
        start = _skip_space(text, border)
    yield Part(title, start, end)


def _skip_space(text: str, start: int) -> int:
    while text[start].isspace():
        start += 1
    return start


def _border(text: str, start: int) -> int:
    window = text[start : start + SIZE]
    for mark in _BREAKS:
        found = window.rfind(mark, SIZE // 2)
        if found >= 0:
            return start + found + len(mark.rstrip())
    return start + SIZE


def _blocks(text: str, headings: bool) -> Iterator[_Block]:
    """Yield paragraphs, and headings as blocks of their own."""
    lines = list(_lines(text))
    fenced, start, number = False, -1, 0
    while number < len(lines):
        begin, line = lines[number]
        fenced ^= bool(_FENCE.match(line))
        title, taken = _heading(lines[number : number + 3], start < 0) if headings and not fenced else (None, 1)
        if start >= 0 and (title or not line.strip()):
            yield _Block(start, _end(lines[number - 1]), None)
            start = -1
        if title:
            yield _Block(begin, _end(lines[number + taken - 1]), title)
        elif start < 0 and line.strip():
            start = begin
        number += taken
    if start >= 0:
        yield _Block(start, _end(lines[-1]), None)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    for line in text.split("\n"):
        yield position, line
        position += len(line) + 1


def _end(line: tuple[int, str]) -> int:
    return line[0] + len(line[1].rstrip())


def _heading(lines: Sequence[tuple[int, str]], fresh: bool) -> tuple[str | None, int]:
    """Return the title that the first lines are, and how many lines it takes; ``fresh`` after an empty line."""
    first, second, third = ([line.rstrip() for _, line in lines] + ["", ""])[:3]
    if len(first) > _LONGEST_TITLE:
        return None, 1
    if found := _ATX.match(first):
        return found[1], 1
    if fresh and _underlines(second, first) and not _RULE.fullmatch(first):
        return first.strip(), 2
    if fresh and first == third and _underlines(first, second) and len(first) >= len(second.strip()):
        return second.strip(), 3
    return None, 1


def _underlines(rule: str, title: str) -> bool:
    return bool(_RULE.fullmatch(rule) and title.strip()) and (rule[0] in "=-" or len(rule) >= len(title))
