"""The stack of frames, and the operations on it.

The stack is a list, the root first, the frame being worked on last. Nodes do not send a new stack but the
*operations* that lead to it: a checkpoint then stores what a step changed and not the whole stack, and each
answer is written once. All functions are pure and return new lists.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from frames.frame import ChildResult, Frame, next_child

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
    """Take the top frame off, give its answer to its parent, and go on with the parent."""

    op: Literal["settle"]


class Reset(TypedDict):
    """Empty the stack: a new task starts."""

    op: Literal["reset"]


Op = Push | Revise | Descend | Settle | Reset


def top(stack: Sequence[Frame]) -> Frame:
    """Return the frame being worked on; the stack must not be empty."""
    return stack[-1]


def push(stack: Stack, frame: Frame) -> Stack:
    """Return the stack with ``frame`` on top."""
    return [*stack, frame]


def revise(stack: Stack, fields: dict[str, Any]) -> Stack:
    """Return the stack with ``fields`` of its top frame set."""
    return [*stack[:-1], {**stack[-1], **fields}]  # type: ignore[list-item]  # fields are Frame's


def descend(stack: Stack) -> Stack:
    """Return the stack with the top frame's next child on top."""
    return push(stack, next_child(stack[-1]))


def settle(stack: Stack) -> Stack:
    """Return the stack without its top frame, whose answer its parent has received.

    The parent goes on with its next child, or with ``aggregate`` after its last. The root leaves an empty
    stack.
    """
    *below, done = stack
    if not below:
        return []
    parent = below[-1]
    result = ChildResult(frame=done["id"], task=done["task"], answer=done["answer"] or "")
    parent = Frame({**parent, "results": [*parent["results"], result]})
    if len(parent["results"]) < len(parent["plan"]):
        return [*below[:-1], parent, next_child(parent)]
    return [*below[:-1], Frame({**parent, "phase": "aggregate"})]


def apply(stack: Stack, op: Op) -> Stack:
    """Return the stack after one operation."""
    match op["op"]:
        case "push":
            return push(stack, op["frame"])
        case "revise":
            return revise(stack, op["fields"])
        case "descend":
            return descend(stack)
        case "settle":
            return settle(stack)
        case "reset":
            return []


def fold(stack: Stack, writes: Iterable[Sequence[Op]]) -> Stack:
    """Return the stack after all ``writes``, each a list of operations: the reducer of the state's channel.

    Folding two batches one after the other equals folding them as one, so that a checkpoint can be rebuilt
    from the writes in batches of any size.
    """
    for ops in writes:
        for op in ops:
            stack = apply(stack, op)
    return stack


def found_so_far(stack: Sequence[Frame]) -> list[ChildResult]:
    """Return the results that finished children have left on the stack, the root's first."""
    return [result for frame in stack for result in frame["results"]]
