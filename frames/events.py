"""Events: what a run tells while it works, the one source of every view. One TypedDict an event, the kind in ``event``.

A run's log (``nodes.event_log``) adds to each ``schema``, ``id`` (1, 2, 3, … within the run, over all its
continuations), ``time`` (seconds since the epoch) and, where it has a ``frame``, that frame's ``parent``.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from frames.frame import Subtask

EVENTS_SCHEMA = 1
"""Version of the events' form; it rises when a reader of older events would read them wrongly."""


class RunStarted(TypedDict):
    """A run began, or went on: ``session`` 2 is its first continuation. ``settings`` are without secrets."""

    event: Literal["run"]
    run_id: str
    task: str
    session: int
    settings: dict[str, Any]
    bound: dict[str, int]


class FrameStarted(TypedDict):
    """A frame was made."""

    event: Literal["frame"]
    frame: str
    task: str
    depth: int
    kind: str | None


class StepStarted(TypedDict):
    """A node began to work on a frame."""

    event: Literal["step"]
    frame: str
    role: str
    attempt: int


class Found(TypedDict):
    """An investigation ended: the files that it found, what it saw, and what it left out (``frames.findings``)."""

    event: Literal["findings"]
    frame: str
    files: list[dict[str, Any]]
    observations: list[str]
    left_out: list[dict[str, Any]]
    source: str


class Assigned(TypedDict):
    """An agent was given a task: its ``score``, 0 to 1, for the capabilities that the task ``requires``."""

    event: Literal["assigned"]
    frame: str
    agent: str
    score: float
    requires: dict[str, float]
    attempt: int


class Planned(TypedDict):
    """A task was split; the frame of the n-th subtask, from 0, is ``FRAME.n``."""

    event: Literal["plan"]
    frame: str
    subtasks: list[Subtask]


class PlanRefused(TypedDict):
    """A plan could not be followed; the task is solved directly."""

    event: Literal["plan_refused"]
    frame: str
    reason: str


class Approval(TypedDict):
    """A person is asked about a plan, ``revision`` of which were rejected before, or has decided."""

    event: Literal["approval"]
    frame: str
    revision: int
    decision: Literal["asked", "approved", "edited", "rejected"]


class Answered(TypedDict):
    """An answer was given, by role solve or aggregate."""

    event: Literal["answer"]
    frame: str
    role: str
    attempt: int
    answer: str


class Judged(TypedDict):
    """An answer was accepted or rejected."""

    event: Literal["verdict"]
    frame: str
    attempt: int
    accepted: bool
    feedback: str


class CallEnded(TypedDict):
    """A model replied, after ``seconds``, for ``usd`` (``None``: nobody knows the price).

    ``saved``: another request's answer, or another run's, spared the call. ``request`` and ``position`` find its entry
    in the run's journal, which keeps ``messages``, what was asked, and ``reply``, what was said.
    """

    event: Literal["call"]
    frame: str
    role: str
    attempt: int
    model: str
    input_tokens: int
    output_tokens: int
    estimated: bool
    usd: float | None
    seconds: float
    saved: bool
    request: str
    position: int
    messages: NotRequired[list[Any]]
    reply: NotRequired[str]


class ToolUsed(TypedDict):
    """A tool was used, or a program run (tool ``python``), within ``seconds``; ``ok`` is false where it failed.

    ``request`` and ``position`` find its entry in the run's journal, which keeps ``output``.
    """

    event: Literal["tool"]
    frame: str
    tool: str
    arguments: str
    ok: bool
    seconds: float
    role: str
    attempt: int
    request: str
    position: int
    output: NotRequired[str]


class CellRun(TypedDict):
    """An agent's code ran until it ended, or until all of it waits for subagents: its ``launches``, by frame and goal.

    ``step`` counts the agent's replies, from 1; ``output`` is what was printed since the cell's last stop, ``finished``
    whether the code gave the agent's answer.
    """

    event: Literal["cell"]
    frame: str
    step: int
    code: str
    output: str
    error: str | None
    launches: list[dict[str, str]]
    finished: bool


class Waiting(TypedDict):
    """A transport fault; the call is made again in ``seconds``."""

    event: Literal["wait"]
    frame: str
    role: str
    seconds: float
    reason: str


class LimitReached(TypedDict):
    """A limit had an effect on a frame: ``limit`` is its setting's name."""

    event: Literal["limit"]
    frame: str
    limit: str
    reason: str


class FrameEnded(TypedDict):
    """A frame is done: its answer was accepted, or it failed."""

    event: Literal["done"]
    frame: str
    success: bool


class RunEnded(TypedDict):
    """The last event; ``result`` is the document that ``cactus solve --json`` prints."""

    event: Literal["end"]
    result: dict[str, Any]


Event = (
    RunStarted
    | FrameStarted
    | StepStarted
    | Found
    | Assigned
    | Planned
    | PlanRefused
    | Approval
    | Answered
    | Judged
    | CallEnded
    | ToolUsed
    | CellRun
    | Waiting
    | LimitReached
    | FrameEnded
    | RunEnded
)


def json_line(value: Mapping[str, Any]) -> str:
    """Return an event, or another JSON value, on one line: the same value, the same bytes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
