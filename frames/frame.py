"""A frame: one task being worked on, as plain JSON values.

A frame holds the *results* of its children, never their transcripts, so that a stack grows with its depth
and fan-out and not with the work done.
"""

from typing import Literal

from typing_extensions import TypedDict

from frames.errors import UsageError
from frames.text import clean

Phase = Literal["atomize", "decompose", "solve", "verify", "retry", "aggregate"]
"""The node that works on the frame next."""


class Subtask(TypedDict):
    """One entry of a plan: its id within the plan, and its task text."""

    id: str
    task: str


class ChildResult(TypedDict):
    """What a finished child gives its parent."""

    frame: str
    task: str
    answer: str


class Frame(TypedDict):
    """One task being worked on.

    ``id`` is its path (the root is ``0``, its third child ``0.2``), ``attempt`` the number of the attempt
    under way, from 1, ``answer`` what the verifier is to judge, ``feedback`` what it said last.
    """

    id: str
    task: str
    depth: int
    phase: Phase
    attempt: int
    plan: list[Subtask]
    results: list[ChildResult]
    answer: str | None
    feedback: str | None


def checked_task(task: object) -> str:
    """Return a whole run's task, made safe to store.

    Raises:
        UsageError: it is no text, or blank.
    """
    if not isinstance(task, str):
        raise UsageError(f"the task must be a text, not {type(task).__name__}")
    if not task.strip():
        raise UsageError("the task is empty: say what to solve")
    return clean(task)


def root(task: str) -> Frame:
    """Return the frame of a whole run's task."""
    return _new("0", task, 0)


def next_child(parent: Frame) -> Frame:
    """Return the frame of the first subtask of ``parent`` that has no result yet."""
    index = len(parent["results"])
    return _new(f"{parent['id']}.{index}", parent["plan"][index]["task"], parent["depth"] + 1)


def _new(id_: str, task: str, depth: int) -> Frame:
    return Frame(
        id=id_,
        task=task,
        depth=depth,
        phase="atomize",
        attempt=1,
        plan=[],
        results=[],
        answer=None,
        feedback=None,
    )


def is_planned(frame: Frame) -> bool:
    """Whether the frame was split, so that its answer combines its children's."""
    return bool(frame["plan"])
