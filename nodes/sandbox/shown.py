"""The value of a program's last expression, as text of bounded size."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic_monty import MontyClassProxy, MontyStdTypeProxy

_DEEPEST = 60
"""Containers within containers that are shown."""


def shown(value: object, room: int) -> str:
    """Return what ``repr`` would, cut to little more than ``room`` characters.

    A list may hold itself many times over, so that its ``repr`` would be larger than any memory.
    """
    pieces, size = list[str](), 0
    for piece in _pieces(value, room + 1, 0):
        pieces.append(piece)
        size += len(piece)
        if size > room:
            break
    return "".join(pieces)


def _pieces(value: Any, room: int, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        yield "..."
    elif isinstance(value, dict):
        yield from _items("{", cast("dict[object, object]", value).items(), "}", room, depth)
    elif isinstance(value, list):
        yield from _listed("[", cast("list[object]", value), "]", room, depth)
    elif isinstance(value, tuple):
        yield from _listed(
            "(", cast("tuple[object]", value), ",)" if len(cast("Any", value)) == 1 else ")", room, depth
        )
    elif isinstance(value, set | frozenset) and value:
        yield from _listed("{", cast("set[object]", value), "}", room, depth)
    elif isinstance(value, MontyClassProxy):
        yield value.name
        yield from _items("(", value.attributes.items(), ")", room, depth)
    else:
        yield _leaf(cast("object", value), room)


def _listed(start: str, values: Iterable[object], end: str, room: int, depth: int) -> Iterator[str]:
    yield start
    for number, value in enumerate(values):
        if number:
            yield ", "
        yield from _pieces(value, room, depth + 1)
    yield end


def _items(start: str, items: Iterable[tuple[object, object]], end: str, room: int, depth: int) -> Iterator[str]:
    yield start
    for number, (key, value) in enumerate(items):
        if number:
            yield ", "
        if start == "(":
            yield f"{key}="
        else:
            yield from _pieces(key, room, depth + 1)
            yield ": "
        yield from _pieces(value, room, depth + 1)
    yield end


def _leaf(value: object, room: int) -> str:
    if isinstance(value, str | bytes):
        return repr(value[:room])
    if isinstance(value, MontyStdTypeProxy):
        return f"<{value.kind} {value.name}>"
    if isinstance(value, int) and value.bit_length() > 14_000:  # CPython refuses to write more digits
        return f"<an integer of {value.bit_length()} bits; print a part of it>"
    return repr(value)
