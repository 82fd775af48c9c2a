"""A frame: one task being worked on, as plain JSON values.

A frame holds the *results* of its children, never their transcripts, so that a stack grows with its depth
and fan-out and not with the work done.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from frames.errors import UsageError
from frames.text import clean

Phase = Literal["atomize", "decompose", "approve", "fork", "solve", "verify", "retry", "aggregate"]
"""The node that works on the frame next."""

Kind = Literal["search", "think", "write", "code"]
"""What sort of work a task is, which chooses its executor (the four of ROMA)."""

KINDS: tuple[Kind, ...] = ("search", "think", "write", "code")


class Subtask(TypedDict):
    """One entry of a plan: its id within the plan, its task text, its kind, and the ids whose results it needs."""

    id: str
    task: str
    kind: Kind | None
    depends_on: list[str]


class ChildResult(TypedDict):
    """What a finished child gives its parent.

    ``failed`` says why there is no answer, ``None`` where there is one. A large answer lies in the artifact
    ``artifact``, and ``answer`` is its beginning. ``attempts`` counts the attempts made.
    """

    frame: str
    task: str
    answer: str
    artifact: str | None
    failed: str | None
    attempts: int


class Rejection(TypedDict):
    """A plan that a person rejected: the texts of its subtasks, and what was said of it."""

    subtasks: list[str]
    text: str


class Approval(TypedDict):
    """What a person has said of a frame's plans: those rejected, and why the last reply was no decision.

    ``replies`` counts all of them, so that no question is the same as an earlier one.
    """

    rejections: list[Rejection]
    problem: str | None
    replies: int


class Named(TypedDict):
    """A frame by its id and task."""

    id: str
    task: str


class Frame(TypedDict):
    """One task being worked on.

    ``id`` is its path (the root is ``0``, its third child ``0.2``), ``attempt`` the number of the attempt
    under way, from 1, ``answer`` what the verifier is to judge, ``feedback`` what it said last. ``known`` are
    the results it builds on: those of the subtasks that it, or a frame above it, depends on. ``stale`` are the
    results of children that are to be done anew, ``None`` before any was; it is empty in such a child itself.
    ``approval`` is there once a person has replied to a plan otherwise than by approving it.
    """

    id: str
    task: str
    kind: Kind | None
    depth: int
    phase: Phase
    attempt: int
    plan: list[Subtask]
    results: list[ChildResult]
    answer: str | None
    feedback: str | None
    known: list[ChildResult]
    stale: list[ChildResult] | None
    approval: NotRequired[Approval]


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


def child(parent: Frame, index: int) -> Frame:
    """Return the frame of a subtask of ``parent`` by its place in the plan, with the results it depends on."""
    subtask = parent["plan"][index]
    needed = [
        child_id(parent, place) for place, other in enumerate(parent["plan"]) if other["id"] in subtask["depends_on"]
    ]
    known = [result for result in parent["results"] if result["frame"] in needed]
    frame = _new(child_id(parent, index), subtask["task"], parent["depth"] + 1)
    return Frame({**frame, "kind": subtask["kind"], "known": [*parent["known"], *known]})


def child_id(parent: Frame, index: int) -> str:
    """Return the id of a subtask's frame by its place in the plan of ``parent``."""
    return f"{parent['id']}.{index}"


def _new(id_: str, task: str, depth: int) -> Frame:
    return Frame(
        id=id_,
        task=task,
        kind=None,
        depth=depth,
        phase="atomize",
        attempt=1,
        plan=[],
        results=[],
        answer=None,
        feedback=None,
        known=[],
        stale=None,
    )


def is_planned(frame: Frame) -> bool:
    """Whether the frame was split, so that its answer combines its children's."""
    return bool(frame["plan"])


def place(result: ChildResult) -> int:
    """Return a child's place in its parent's plan: the order in which results are combined."""
    return int(result["frame"].rpartition(".")[2])


def child_result(frame: Frame, *, failed: str | None = None, kept: Mapping[str, str] | None = None) -> ChildResult:
    """Return what a finished frame gives its parent; ``kept`` has the ``artifact`` and ``answer`` of a large answer."""
    result = ChildResult(
        frame=frame["id"],
        task=frame["task"],
        answer="" if failed else frame["answer"] or "",
        artifact=None,
        failed=failed,
        attempts=frame["attempt"],
    )
    return ChildResult({**result, **kept}) if kept else result  # type: ignore[typeddict-item]
