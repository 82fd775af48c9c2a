"""Condense: results that together exceed a model's window are shortened in a tree, and nothing is left out unsaid."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from frames.frame import ChildResult
from frames.text import estimate_tokens
from nodes.asking import Asking
from nodes.models.resolve import ModelLike
from nodes.prompt import render

CALLS_PER_CHILD = 4
"""Most calls that shortening makes for each result, over all levels of the tree."""

_LEAST = 100
"""Tokens that a shortened piece is given at least; with more pieces than that fits, there is a further level."""

_FILL = 0.75
"""The part of the room that the pieces are given together, for models keep to a length by and large."""


async def condensed(
    task: str, results: Sequence[ChildResult], room: int, ask: Asking, model: ModelLike | None
) -> list[ChildResult]:
    """Return ``results`` so that they fit into ``room`` tokens together: as they are, or shortened by ``model``."""
    if sum(map(_tokens, results)) <= room or not results:
        return list(results)
    room = max(room, 4 * _LEAST)
    pieces = [piece for result in results for piece in _pieces(result, room)]
    groups = _allowed(_packed(pieces, room), len(results) * CALLS_PER_CHILD // 2, ask)
    while True:
        target = max(int(room * _FILL / len(groups)), _LEAST)
        work = [_shorten(task, group, target, ask, model) for group in groups]
        capped = ask.context.shared is not None  # it holds the cap on calls in flight
        shortened = await _all(work) if capped else [await one for one in work]
        if len(groups) == 1 or sum(map(_tokens, shortened)) <= room:
            return shortened
        groups = _packed(shortened, room)


async def _all(work: Sequence[Coroutine[Any, Any, ChildResult]]) -> list[ChildResult]:
    """Return what each gives; where one fails, the others are waited for first: their replies are paid for."""
    given = await asyncio.gather(*work, return_exceptions=True)
    fault = next((each for each in given if isinstance(each, BaseException)), None)
    if fault:
        raise fault
    return cast("list[ChildResult]", given)


async def _shorten(
    task: str, group: Sequence[ChildResult], target: int, ask: Asking, model: ModelLike | None
) -> ChildResult:
    text = "\n\n".join(f"[{result['frame']}] {result['task']}\n{result['answer']}" for result in group)
    reply = await ask(render("roma/condense", task=task, tokens=target, text=text), model=model)
    frames = " ".join(dict.fromkeys(result["frame"] for result in group))
    most = int(target * 4 / _FILL)
    if len(reply) > most:
        _say_left_out(len(reply) - most, f"the shortened results of {frames}", ask)
    label = group[0]["task"] if len(group) == 1 else "(shortened)"
    return ChildResult({**group[0], "frame": frames, "task": label, "answer": reply[:most]})


def _tokens(result: ChildResult) -> int:
    return estimate_tokens(result["answer"]) + estimate_tokens(result["task"]) + 10


def _pieces(result: ChildResult, room: int) -> list[ChildResult]:
    """Return a result in pieces that each fit into ``room`` tokens, parted between paragraphs where possible."""
    most = max((room - _tokens(ChildResult({**result, "answer": ""}))) * 4, _LEAST * 4)
    text, pieces = result["answer"], list[str]()
    while len(text) > most:
        cut = max(text.rfind("\n\n", most // 2, most), text.rfind("\n", most // 2, most)) + 1 or most
        pieces.append(text[:cut])
        text = text[cut:]
    return [ChildResult({**result, "answer": piece}) for piece in [*pieces, text]]


def _packed(pieces: Sequence[ChildResult], room: int) -> list[list[ChildResult]]:
    """Return the pieces, in order, in groups that each fit into ``room`` tokens."""
    groups: list[list[ChildResult]] = []
    used = 0
    for piece in pieces:
        size = _tokens(piece)
        if not groups or used + size > room:
            groups.append([])
            used = 0
        groups[-1].append(piece)
        used += size
    return groups


def _allowed(groups: list[list[ChildResult]], most: int, ask: Asking) -> list[list[ChildResult]]:
    """Return the first ``most`` groups, which bounds the calls; what is left out is noted."""
    left_out = [piece for group in groups[most:] for piece in group]
    if left_out:
        frames = ", ".join(dict.fromkeys(piece["frame"] for piece in left_out))
        _say_left_out(sum(len(piece["answer"]) for piece in left_out), f"the results of {frames}", ask)
    return groups[:most]


def _say_left_out(characters: int, of: str, ask: Asking) -> None:
    ask.notes.append(f"{ask.frame['id']}: {characters} characters of {of} left out, for they exceed the model's window")
