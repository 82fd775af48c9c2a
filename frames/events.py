"""Events: what a run tells while it works. One TypedDict an event, the kind in ``event``.

They feed the live view and ``RecursiveTaskSolver.astream``; the state holds what must survive.
"""

from typing import Any, Literal

from typing_extensions import TypedDict


class FrameStarted(TypedDict):
    """A frame was made; ``parent`` is ``None`` for the root."""

    event: Literal["frame"]
    frame: str
    parent: str | None
    task: str
    depth: int
    kind: str | None


class StepStarted(TypedDict):
    """A node began to work on a frame."""

    event: Literal["step"]
    frame: str
    role: str
    attempt: int


class Planned(TypedDict):
    """A task was split."""

    event: Literal["plan"]
    frame: str
    subtasks: list[str]


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
    """A model replied, after ``seconds``."""

    event: Literal["call"]
    frame: str
    role: str
    attempt: int
    model: str
    input_tokens: int
    output_tokens: int
    seconds: float


class ToolUsed(TypedDict):
    """A tool was used, or a program run (tool ``python``), within ``seconds``; ``ok`` is false where it failed."""

    event: Literal["tool"]
    frame: str
    tool: str
    arguments: str
    ok: bool
    seconds: float


class Waiting(TypedDict):
    """A transport fault; the call is made again in ``seconds``."""

    event: Literal["wait"]
    frame: str
    role: str
    seconds: float
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
    FrameStarted
    | StepStarted
    | Planned
    | PlanRefused
    | Approval
    | Answered
    | Judged
    | CallEnded
    | ToolUsed
    | Waiting
    | FrameEnded
    | RunEnded
)
