"""The stack of frames, and the operations on it.

The stack is a list, the root first, the frame being worked on last. Nodes do not send a new stack but the
*operations* that lead to it: a checkpoint then stores what a step changed and not the whole stack, and each
answer is written once. All functions are pure and return new lists.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from frames.frame import ChildResult, Frame, child, child_id, child_result, is_instance, is_limited
from frames.plan import order

Stack = list[Frame]


class Push(TypedDict):
    """Put ``frame`` on top."""

    op: Literal["push"]
    frame: Frame


class Revise(TypedDict):
    """Set ``fields`` of the top frame."""

    op: Literal["revise"]
    fields: dict[str, Any]


class Descend(TypedDict):
    """Put the top frame's next child on top."""

    op: Literal["descend"]


class Settle(TypedDict):
    """Take the top frame off, give its result to its parent, and go on with the parent.

    ``failed`` is why there is no answer, ``limited`` whether a limit is; ``kept`` the artifact and the beginning of a
    large answer.
    """

    op: Literal["settle"]
    failed: NotRequired[str]
    limited: NotRequired[bool]
    kept: NotRequired[dict[str, str]]


class Deliver(TypedDict):
    """Give the top frame the results of all its children, which were worked on in branches."""

    op: Literal["deliver"]
    results: list[ChildResult]


class SendBack(TypedDict):
    """Solve the top frame's child ``frame`` once more, told ``feedback``, and what depends on it; then combine anew."""

    op: Literal["send_back"]
    frame: str
    feedback: str


class Extend(TypedDict):
    """Add entries to lists of the top frame: a checkpoint then stores what was added, and not the whole lists."""

    op: Literal["extend"]
    lists: dict[str, list[Any]]


class Reset(TypedDict):
    """Empty the stack: a new task starts."""

    op: Literal["reset"]


Op = Push | Revise | Extend | Descend | Settle | Deliver | SendBack | Reset


def top(stack: Sequence[Frame]) -> Frame:
    """Return the frame being worked on; the stack must not be empty."""
    return stack[-1]


def push(stack: Stack, frame: Frame) -> Stack:
    """Return the stack with ``frame`` on top."""
    return [*stack, frame]


def revise(stack: Stack, fields: dict[str, Any]) -> Stack:
    """Return the stack with ``fields`` of its top frame set."""
    return [*stack[:-1], {**stack[-1], **fields}]  # type: ignore[list-item]  # fields are Frame's


def extend(stack: Stack, lists: dict[str, list[Any]]) -> Stack:
    """Return the stack with entries added to lists of its top frame, which may have none yet."""
    frame: dict[str, Any] = dict(stack[-1])
    return revise(stack, {name: [*frame.get(name, ()), *entries] for name, entries in lists.items()})


def descend(stack: Stack) -> Stack:
    """Return the stack with the top frame's next child on top, where it has one."""
    index = _next(stack[-1])
    return stack if index is None else push(stack, child(stack[-1], index))


def settle(
    stack: Stack, failed: str | None = None, kept: dict[str, str] | None = None, *, limited: bool = False
) -> Stack:
    """Return the stack without its top frame, whose result its parent has received.

    The parent goes on with its next child, or with ``aggregate`` after its last (an agent's with ``act``). A child all
    of whose predecessors failed is not begun. The root leaves an empty stack.
    """
    *below, done = stack
    if not below:
        return []
    parent = with_result(below[-1], child_result(done, failed=failed, kept=kept, limited=limited))
    index = _next(parent)
    if index is not None:
        return [*below[:-1], parent, _begin(parent, index)]
    return [*below[:-1], Frame({**parent, "phase": "act" if is_instance(parent) else "aggregate"})]


def joined(parent: Frame, results: Sequence[ChildResult]) -> list[Op]:
    """Return the operations that give the frame what its branches gave; an agent's has the earlier ones already."""
    if not is_instance(parent):
        return [Deliver(op="deliver", results=list(results))]
    limited = {"limited": True} if any(map(is_limited, results)) else {}
    revised = Revise(op="revise", fields={"phase": "act", **limited})
    return [Extend(op="extend", lists={"results": list(results)}), revised]


def with_result(parent: Frame, result: ChildResult) -> Frame:
    """Return ``parent`` with a child's result, and those of children that it dooms.

    Where a child that is done anew fails, its earlier answer, which had been accepted, stands.
    """
    if is_limited(result):
        parent = Frame({**parent, "limited": True})
    earlier = next((other for other in parent["stale"] or [] if other["frame"] == result["frame"]), None)
    if result["failed"] and earlier and not earlier["failed"]:
        result = earlier
    others = [other for other in parent["results"] if other["frame"] != result["frame"]]
    parent = Frame({**parent, "results": [*others, result]})
    while result["failed"] and (doomed := _doomed(parent)):
        parent = Frame({**parent, "results": [*parent["results"], doomed]})
    return parent


def new_gaps(before: Frame, after: Frame) -> list[str]:
    """Return what is said of the children that have failed since ``before``."""
    known = {result["frame"] for result in before["results"]}
    return [f"{r['frame']}: {r['failed']}" for r in after["results"] if r["failed"] and r["frame"] not in known]


def not_begun(stack: Sequence[Frame], why: str) -> list[str]:
    """Return what is said of the planned children that will not be begun.

    A fork's branches speak for themselves, and a plan that nobody has approved has none.
    """
    on_stack = {frame["id"] for frame in stack}
    said: list[str] = []
    for frame in stack:
        if frame["phase"] not in ("approve", "fork"):
            known = on_stack | {result["frame"] for result in frame["results"]}
            left = (child_id(frame, index) for index in range(len(frame["plan"])))
            said += [f"{id_}: not begun: {why}" for id_ in left if id_ not in known]
    return said


def has_answers(frame: Frame) -> bool:
    """Whether any child of the frame has an answer to combine; an agent's code is told of failures too."""
    return is_instance(frame) or any(not result["failed"] for result in frame["results"])


def _doomed(parent: Frame) -> ChildResult | None:
    """Return the result of a child that can no longer be begun: everything it depends on failed."""
    failed = {result["frame"]: bool(result["failed"]) for result in parent["results"]}
    frames = {subtask["id"]: child_id(parent, index) for index, subtask in enumerate(parent["plan"])}
    for index, subtask in enumerate(parent["plan"]):
        needed = [frames[name] for name in subtask["depends_on"]]
        if needed and frames[subtask["id"]] not in failed and all(failed.get(frame) for frame in needed):
            why = f"not attempted: it depends on {' and '.join(needed)}, without an answer"
            return child_result(child(parent, index), failed=why)
    return None


def _next(parent: Frame) -> int | None:
    """Return the place in the plan of the next child to work on; ``None`` after the last."""
    done = {result["frame"] for result in parent["results"]}
    if len(done) == len(parent["plan"]):
        return None
    return next(index for index in order(parent["plan"]) if child_id(parent, index) not in done)


def send_back(stack: Stack, frame: str, feedback: str) -> Stack:
    """Return the stack with a finished child of the top frame on top again, to be solved once more.

    The children that depend on it follow it, also those that do by way of others.
    """
    parent = stack[-1]
    after = _dependents(parent, int(frame.rpartition(".")[2]))
    stale = [result for result in parent["results"] if result["frame"] in {frame, *after}]
    kept = [result for result in parent["results"] if result["frame"] not in {frame, *after}]
    before = next(result for result in parent["results"] if result["frame"] == frame)
    parent = Frame({**parent, "results": kept, "stale": stale, "attempt": parent["attempt"] + 1})
    index = int(frame.rpartition(".")[2])
    return [*stack[:-1], parent, _anew(child(parent, index), before, feedback)]


def _begin(parent: Frame, index: int) -> Frame:
    """Return the frame of a child that is begun, or done anew because a result it builds on has changed."""
    frame = child(parent, index)
    before = next((result for result in parent["stale"] or [] if result["frame"] == frame["id"]), None)
    return _anew(frame, before, "a result that it builds on has changed; it is given above") if before else frame


def _anew(frame: Frame, before: ChildResult, feedback: str) -> Frame:
    answer = before["answer"] or None
    return Frame(
        {
            **frame,
            "phase": "solve",
            "attempt": before["attempts"] + 1,
            "answer": answer,
            "feedback": feedback,
            "stale": [],
        }
    )


def _dependents(parent: Frame, index: int) -> set[str]:
    """Return the frames of the children that build on a child's result."""
    found = {parent["plan"][index]["id"]}
    for place in order(parent["plan"]):
        if found.intersection(parent["plan"][place]["depends_on"]):
            found.add(parent["plan"][place]["id"])
    return {child_id(parent, place) for place, other in enumerate(parent["plan"]) if other["id"] in found} - {
        child_id(parent, index)
    }


def apply(stack: Stack, op: Op) -> Stack:
    """Return the stack after one operation."""
    match op["op"]:
        case "push":
            return push(stack, op["frame"])
        case "revise":
            return revise(stack, op["fields"])
        case "extend":
            return extend(stack, op["lists"])
        case "descend":
            return descend(stack)
        case "settle":
            return settle(stack, op.get("failed"), op.get("kept"), limited=op.get("limited", False))
        case "deliver":
            limited = {"limited": True} if any(map(is_limited, op["results"])) else {}
            return revise(stack, {"results": op["results"], "phase": "aggregate", **limited})
        case "send_back":
            return send_back(stack, op["frame"], op["feedback"])
        case "reset":
            return []


def fold(stack: Stack, writes: Iterable[Sequence[Op] | Stack]) -> Stack:
    """Return the stack after all ``writes``, each a list of operations: the reducer of the state's channel.

    Folding two batches one after the other equals folding them as one, so that a checkpoint can be rebuilt
    from the writes in batches of any size. A write of frames takes the stack's place: whoever edits a saved state
    writes what they were shown.
    """
    for write in writes:
        if write and all("op" not in entry for entry in write):
            stack = list(cast("Stack", write))
        else:
            for op in cast("Sequence[Op]", write):
                stack = apply(stack, op)
    return stack


def found_so_far(stack: Sequence[Frame]) -> list[ChildResult]:
    """Return the answers that finished children have left on the stack, the root's first; of one done anew the last."""
    found: list[ChildResult] = []
    for frame in stack:
        current = {result["frame"] for result in frame["results"]}
        earlier = [result for result in frame["stale"] or [] if result["frame"] not in current]
        found += [result for result in [*frame["results"], *earlier] if not result["failed"]]
    return found


def found_text(found: Sequence[ChildResult]) -> str | None:
    """Return answers as one text, each under its frame and task; ``None`` for none."""
    return "\n\n".join(f"{result['frame']} {result['task']}\n{result['answer']}" for result in found) or None
