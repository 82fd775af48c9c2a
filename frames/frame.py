"""A frame: one task being worked on, as plain JSON values.

A frame holds the *results* of its children, never their transcripts, so that a stack grows with its depth
and fan-out and not with the work done.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from frames.errors import UsageError
from frames.instance import Given, Instance, Reason, Turn
from frames.text import clean

Phase = Literal[
    "atomize", "investigate", "decompose", "approve", "fork", "solve", "verify", "retry", "aggregate", "act"
]
"""The node that works on the frame next."""

Kind = Literal["search", "think", "write", "code"]
"""What sort of work a task is, which chooses its executor (the four of ROMA)."""

KINDS: tuple[Kind, ...] = ("search", "think", "write", "code")

Tier = Literal["per_file", "cross_file"]
"""Which part of a plan from findings a subtask is: a pass over files, or the integration of all passes."""


class Subtask(TypedDict):
    """One entry of a plan: its id within the plan, its task text, its kind, and the ids whose results it needs.

    One that code launched has the ``context`` handed over, and the JSON schema that its answer ``returns``. One of a
    plan from findings has its ``tier`` and ``files``; ``requires`` are the capabilities it takes, by weight.
    """

    id: str
    task: str
    kind: Kind | None
    depends_on: list[str]
    context: NotRequired[Given]
    returns: NotRequired[dict[str, Any]]
    tier: NotRequired[Tier]
    files: NotRequired[list[str]]
    requires: NotRequired[dict[str, float]]


class ChildResult(TypedDict):
    """What a finished child gives its parent.

    ``failed`` says why there is no answer, ``None`` where there is one. A large answer lies in the artifact
    ``artifact``, and ``answer`` is its beginning. ``attempts`` counts the attempts made. ``limited`` and ``json``: as a
    frame's. What an agent's code launched and has no answer says its ``reason``, and the ``partial`` result.
    """

    frame: str
    task: str
    answer: str
    artifact: str | None
    failed: str | None
    attempts: int
    limited: NotRequired[bool]
    json: NotRequired[bool]
    reason: NotRequired[Reason]
    partial: NotRequired[str]


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
    An agent's frame has its ``instance`` and ``turns``; ``context`` and ``returns`` are those of its subtask. ``json``:
    the answer is a JSON value and no text.
    ``approval`` is there once a person has replied to a plan otherwise than by approving it. ``limited`` is there, and
    true, once a limit had an effect on it or on a frame below it. ``tier``, ``files`` and ``requires`` are those of its
    subtask; ``findings`` what was found before the root was split (``frames.findings``); ``agent`` is the place, in the
    chain of agents that may work on it, of the one whose turn it is, from 0.
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
    limited: NotRequired[bool]
    instance: NotRequired[Instance]
    turns: NotRequired[list[Turn]]
    context: NotRequired[Given]
    returns: NotRequired[dict[str, Any]]
    json: NotRequired[bool]
    tier: NotRequired[Tier]
    files: NotRequired[list[str]]
    requires: NotRequired[dict[str, float]]
    findings: NotRequired[dict[str, Any]]
    agent: NotRequired[int]


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
    begun = Frame({**frame, "kind": subtask["kind"], "known": [*parent["known"], *known]})
    if "tier" in subtask:
        begun["tier"] = subtask["tier"]
    if "files" in subtask:
        begun["files"] = subtask["files"]
    if "requires" in subtask:
        begun["requires"] = subtask["requires"]
    return _launched(begun, subtask) if is_instance(parent) else begun


def _launched(frame: Frame, subtask: Subtask) -> Frame:
    """Return the frame of a subtask that code launched: the same agent works on it."""
    launched = Frame({**frame, "phase": "act"})
    if "context" in subtask:
        launched["context"] = subtask["context"]
    if "returns" in subtask:
        launched["returns"] = subtask["returns"]
    return launched


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


def is_instance(frame: Frame) -> bool:
    """Whether the frame is solved by an agent that has begun: its subtasks are those that its code launched."""
    return "instance" in frame


def place(result: ChildResult) -> int:
    """Return a child's place in its parent's plan: the order in which results are combined."""
    return int(result["frame"].rpartition(".")[2])


def is_limited(part: Frame | ChildResult) -> bool:
    """Whether a limit had an effect on a frame or on one below it."""
    return part.get("limited", False)


def child_result(
    frame: Frame, *, failed: str | None = None, kept: Mapping[str, str] | None = None, limited: bool = False
) -> ChildResult:
    """Return what a finished frame gives its parent.

    ``kept`` has the ``artifact`` and ``answer`` of a large answer; ``limited``: a limit ended it.
    """
    result = ChildResult(
        frame=frame["id"],
        task=frame["task"],
        answer="" if failed else frame["answer"] or "",
        artifact=None,
        failed=failed,
        attempts=frame["attempt"],
    )
    if limited or is_limited(frame):
        result["limited"] = True
    if failed and (instance := frame.get("instance")):
        result["reason"] = "budget" if instance["ended"] or is_limited(result) else "failed"
        if instance["partial"]:
            result["partial"] = instance["partial"]
    elif frame.get("json"):
        result["json"] = True
    return ChildResult({**result, **kept}) if kept else result  # type: ignore[typeddict-item]
