"""The state that a run carries from step to step: plain JSON values, a schema version among them."""

from typing import Annotated, Literal

from typing_extensions import TypedDict

from frames.channels import append_channel, stack_channel
from frames.frame import ChildResult, Frame, Named
from frames.trace import Trace

SCHEMA = 1
"""Version of the state's form; it rises when an older saved run would be read wrongly."""

Status = Literal["succeeded", "failed", "limited", "interrupted", "cancelled"]


class Call(TypedDict):
    """One model call that gave a reply. ``estimated``: the model reported no usage, so it was estimated."""

    frame: str
    role: str
    attempt: int
    model: str
    input_tokens: int
    output_tokens: int
    estimated: bool


class Input(TypedDict):
    """What a run starts from."""

    task: str


class Output(TypedDict):
    """What a run ends with."""

    success: bool
    output: str | None
    status: Status
    partial: str | None
    gaps: list[str]
    traces: list[Trace]
    duration_ms: int
    frames: int


class State(TypedDict):
    """Everything a run carries.

    ``status`` is set when the run has ended, ``started`` is in seconds of the wall clock, ``frames`` counts the
    frames made so far, ``notes`` say what the machine decided and why (a refused plan). A branch of a fork is a
    run of its own whose stack begins with its frame; ``above`` are the frames that it hangs below.
    ``found`` are the answers within a run or branch that ended without one of its own. ``halted`` is whether a limit
    cut it off, so that what else it would have done is open.
    """

    task: str
    schema: int
    started: float
    above: list[Named]
    stack: Annotated[list[Frame], stack_channel()]
    traces: Annotated[list[Trace], append_channel()]
    calls: Annotated[list[Call], append_channel()]
    notes: Annotated[list[str], append_channel()]
    frames: int
    status: Status | None
    success: bool
    output: str | None
    partial: str | None
    found: list[ChildResult]
    halted: bool
    gaps: Annotated[list[str], append_channel()]
    duration_ms: int
