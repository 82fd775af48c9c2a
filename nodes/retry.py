"""Retry: a rejected answer is tried again."""

from typing import Protocol

from frames.frame import Frame, Phase, is_instance, is_planned
from nodes.step import Step, Update, node


class Retry(Protocol):
    """Says what text the solver gets. Pure: it computes the text and asks nobody."""

    def __call__(self, task: str, feedback: str | None, /) -> str:
        """Return the text for the next attempt; ``feedback`` is ``None`` at the first."""
        ...


def same_task(task: str, feedback: str | None, /) -> str:  # noqa: ARG001  # the Protocol's arguments
    """Return the task as it is, as the ``classic`` seed has it."""
    return task


def with_feedback(task: str, feedback: str | None, /) -> str:
    """Return the task with what was wrong with the last answer behind it."""
    return f"{task}\n\nYour last answer was rejected: {feedback}" if feedback else task


@node("retry")
async def retry(step: Step) -> Update:
    """Send the frame to its next attempt: to ``solve``, or to ``aggregate`` where it was split; an agent goes on."""
    return step.go(_again(step.frame), attempt=step.frame["attempt"] + 1)


def _again(frame: Frame) -> Phase:
    if is_instance(frame):
        return "act"
    return "aggregate" if is_planned(frame) else "solve"
