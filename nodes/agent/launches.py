"""Launches: which of the subagents that code asks for are begun, and what comes back of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from frames.errors import LimitError
from frames.frame import KINDS, ChildResult, Frame, Subtask, child_id
from frames.instance import Given, Reason
from frames.returns import misfit, schema_of
from frames.text import one_line, same_task
from nodes.admission import LIMITS
from nodes.agent.talk import SHOWN_CONTEXT
from nodes.sandbox.cells import HostCall, Raised
from nodes.step import Step

MOST_GOAL = 20_000
"""Characters of a goal; what is longer is context."""


class Decided(NamedTuple):
    """What becomes of launches: those that are begun, by call, and what the others are answered with at once."""

    begun: dict[int, Subtask]
    answers: dict[int, Any]
    limited: bool


async def decided(step: Step, frame: Frame, calls: Sequence[HostCall], place: Mapping[str, int]) -> Decided:
    """Return which launches are begun. ``frame`` has the plan so far; ``place`` tells this stop from others."""
    begun, answers = dict[int, Subtask](), dict[int, Any]()
    for call in calls:
        try:
            subtask = await _subtask(step, str(len(frame["plan"]) + len(begun)), call)
        except ValueError as fault:
            answers[call.id] = Raised("ValueError", str(fault))
            continue
        if reason := _refused(step, frame, subtask, len(begun)):
            answers[call.id] = failure("refused", reason)
        else:
            begun[call.id] = subtask
    room = await _room(step, len(begun), place) if begun else None
    if room is None:
        return Decided(begun, answers, limited=False)
    most, message = room
    for id_ in list(begun)[most:]:
        del begun[id_]
        answers[id_] = failure("refused", message)
    return Decided(begun, answers, limited=True)


async def delivered(step: Step, result: ChildResult, subtask: Subtask) -> Any:
    """Return what a launch comes back with to the code: an answer, or why there is none."""
    if result["failed"]:
        reason: Reason = result.get("reason") or ("budget" if result.get("limited") else "failed")
        return failure(reason, result["failed"], result.get("partial"))
    stored = await step.artifacts.get(result["artifact"]) if result["artifact"] else None
    text = stored.content.decode() if stored else result["answer"]
    value: Any = json.loads(text) if result.get("json") else text
    schema = subtask.get("returns")
    if misfit(value, schema) and isinstance(value, str):  # an answer that a person has put in its place
        value = _read(text)
    if fault := misfit(value, schema):
        return failure("failed", f"its answer is not of the form that was asked for: {fault}", text)
    return {"answer": value}


def failure(reason: Reason, message: str, partial: str | None = None) -> dict[str, Any]:
    """Return what the session makes a ``Failure`` of."""
    return {"reason": reason, "message": message, "partial": partial}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _subtask(step: Step, id_: str, call: HostCall) -> Subtask:
    """Return the subtask that a launch means.

    Raises:
        ValueError: its arguments are wrong; the message says which.
    """
    goal, context, returns, kind = [*call.arguments, None, None, None, None][:4]
    if not isinstance(goal, str) or not goal.strip():
        raise ValueError("launch_subagent: the goal must be a text that says what to do")
    if len(goal) > MOST_GOAL:
        raise ValueError(f"launch_subagent: the goal has {len(goal):,} characters; hand data over as context")
    if kind is not None and kind not in KINDS:
        raise ValueError(f"launch_subagent: there is no kind {kind!r}; kinds are {', '.join(KINDS)}")
    try:
        schema = schema_of(returns)
    except ValueError as fault:
        raise ValueError(f"launch_subagent: {fault}") from None
    subtask = Subtask(id=id_, task=goal.strip(), kind=kind, depends_on=[])
    if context is not None:
        subtask["context"] = await _handed(step, context)
    if schema is not None:
        subtask["returns"] = schema
    return subtask


async def _handed(step: Step, context: Any) -> Given:
    """Return a context as its frame keeps it: a large one is an artifact."""
    text = json.dumps(context, ensure_ascii=False)
    if len(text) <= step.context.inline_chars or not step.artifacts.available:
        return Given(value=context)
    kept = await step.artifacts.put(text.encode(), f"context-{step.frame['id']}.json", step.frame["id"])
    return Given(artifact=kept["id"], preview=text[:SHOWN_CONTEXT])


async def handed_over(step: Step) -> Any:
    """Return the context that the frame was launched with, whole."""
    given = step.frame.get("context")
    if given is None or "artifact" not in given:
        return None if given is None else given.get("value")
    stored = await step.artifacts.get(given["artifact"])
    return json.loads(stored.content) if stored else None


def _refused(step: Step, frame: Frame, subtask: Subtask, begun: int) -> str | None:
    """Return why a launch is refused; ``None`` where it is not."""
    context = step.context
    if frame["depth"] >= context.max_depth:
        return f"no level is left below you (max_depth = {context.max_depth}): do it yourself"
    for above in step.lineage:
        if same_task(above["task"], subtask["task"]):
            whose = "your own goal" if above["id"] == frame["id"] else "the goal of one above you"
            return f"this is {whose}, which a copy would only launch again: launch a smaller part of it"
    if len(frame["plan"]) + begun >= context.max_children:
        return (
            f"no launch is left (max_children = {context.max_children}): do it yourself, or finish with what you have"
        )
    return None


async def _room(step: Step, asked: int, place: Mapping[str, int]) -> tuple[int, str] | None:
    """Return how many of the ``asked`` subagents the run's limits let begin, and why no more; ``None``: all of them.

    Those that may begin are counted. What was decided once stays so, whatever others have begun since.
    """
    shared, context = step.context.shared, step.context
    claimed = False

    async def work() -> dict[str, Any]:
        nonlocal claimed
        limit = _spent(step)
        room = 0 if limit else max(context.max_frames - step.made_so_far, 0)
        if limit is None and room < asked:
            limit = LimitError("max_frames", f"max_frames = {context.max_frames} reached")
        if shared:
            claimed = True
            shared.plan(step.frame["id"], min(room, asked))
        return {"room": min(room, asked), "limit": [limit.name, str(limit)] if limit else None}

    limits = {name: getattr(context, name) for name in LIMITS}  # under others it is decided anew
    given = await step.ask.once("admission", {"launches": asked, "limits": limits, **place}, work)
    if shared and not claimed:
        shared.plan(step.frame["id"], given["room"])
    if given["limit"] is None:
        return None
    name, said = cast("list[str]", given["limit"])
    step.tell_limit(LimitError(name, said))
    return given["room"], f"{said}: do it yourself, or finish with what you have"


def _spent(step: Step) -> LimitError | None:
    """Return the limit of the run that leaves no call for a subagent."""
    context, shared = step.context, step.context.shared
    if shared is None:
        return None
    if context.max_calls is not None and shared.calls + shared.failed + shared.in_flight >= context.max_calls:
        return LimitError("max_calls", f"max_calls = {context.max_calls} reached")
    if context.max_tokens is not None and shared.tokens >= context.max_tokens:
        return LimitError("max_tokens", f"max_tokens = {context.max_tokens} reached")
    if context.max_usd is not None and shared.usd >= context.max_usd:
        return LimitError("max_usd", f"max_usd = {context.max_usd:g} reached")
    return None


def named(frame: Frame, places: Sequence[int]) -> list[dict[str, str]]:
    """Return the launches of a frame, by place in its plan, as an event tells of them."""
    return [{"frame": child_id(frame, place), "goal": one_line(frame["plan"][place]["task"], 300)} for place in places]
