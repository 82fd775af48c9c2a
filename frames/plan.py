"""A plan: the subtasks that a task is split into, and what makes one unusable."""

from collections.abc import Sequence
from typing import Any, cast

from frames.errors import CactusError
from frames.frame import Frame, Subtask
from frames.text import clean, same_task


class PlanFormError(CactusError):
    """What a decomposer gave is no list of texts at all."""


class PlanError(CactusError):
    """A plan that cannot be followed; the message names the subtask and the fault."""


def from_texts(texts: Any) -> list[Subtask]:
    """Return a plan of the given subtask texts, in order; ``None`` and blank texts are left out.

    Raises:
        PlanFormError: ``texts`` is no list of texts.
    """
    if texts is None:
        return []
    if not isinstance(texts, list | tuple):
        raise PlanFormError(f"the decomposer returned {type(texts).__name__}, not a list of texts")
    kept: list[str] = []
    for text in cast("Sequence[Any]", texts):
        if not isinstance(text, str | None):
            raise PlanFormError(f"the decomposer's subtask {len(kept) + 1} is {type(text).__name__}, not a text")
        if text and text.strip():
            kept.append(clean(text).strip())
    return [Subtask(id=str(index), task=text) for index, text in enumerate(kept)]


def check(plan: Sequence[Subtask], path: Sequence[Frame], max_subtasks: int | None) -> None:
    """Refuse a plan that would not make the task smaller.

    Args:
        plan: the subtasks.
        path: the frames from the root to the one that is split.
        max_subtasks: the most subtasks a plan may have; ``None`` for no limit.

    Raises:
        PlanError: too many subtasks, or none that differs from its own task or an ancestor's.
    """
    if max_subtasks is not None and len(plan) > max_subtasks:
        raise PlanError(f"{len(plan)} subtasks, more than max_subtasks = {max_subtasks}")
    restated = [_restated(subtask, path) for subtask in plan]
    if restated and all(restated):
        raise PlanError(f"every subtask restates the task of frame {restated[0]}")


def _restated(subtask: Subtask, path: Sequence[Frame]) -> str | None:
    """Return the id of the frame on ``path`` whose task ``subtask`` repeats."""
    return next((frame["id"] for frame in path if same_task(subtask["task"], frame["task"])), None)
