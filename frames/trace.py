"""Traces: what happened, one entry a decision, in the four types of the ``classic`` seed."""

from typing import Literal

from typing_extensions import TypedDict

from frames.frame import Frame, Subtask
from frames.text import cut

TraceType = Literal["DECOMPOSED", "SOLVED", "AGGREGATED", "VERIFIED"]


class Trace(TypedDict):
    """One entry. ``detail`` is cut to 80 characters, except a verifier's feedback.

    ``attempt`` is the attempt's number in SOLVED, otherwise 0.
    """

    type: TraceType
    task: str
    detail: str
    depth: int
    attempt: int
    frame: str


def decomposed(frame: Frame, plan: list[Subtask]) -> Trace:
    """The number of subtasks and their text."""
    texts = "; ".join(subtask["task"] for subtask in plan)
    return _trace("DECOMPOSED", frame, cut(f"{len(plan)} sub-tasks: {texts}"))


def solved(frame: Frame, answer: str, agent: str | None = None) -> Trace:
    """An answer to an atomic task; ``agent`` is who gave it, by name and score, where agents are assigned."""
    return _trace("SOLVED", frame, cut(f"[{agent}] {answer}" if agent else answer), frame["attempt"])


def aggregated(frame: Frame, answer: str) -> Trace:
    """The combined answer of a planned task."""
    return _trace("AGGREGATED", frame, cut(answer))


def verified(frame: Frame, *, accepted: bool, feedback: str) -> Trace:
    """The verdict on an answer, its feedback whole."""
    return _trace("VERIFIED", frame, f"{'ACCEPTED' if accepted else 'REJECTED'}: {feedback}")


def _trace(type_: TraceType, frame: Frame, detail: str, attempt: int = 0) -> Trace:
    return Trace(
        type=type_,
        task=frame["task"],
        detail=detail,
        depth=frame["depth"],
        attempt=attempt,
        frame=frame["id"],
    )
