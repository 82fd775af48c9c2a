"""Decompose: split a task into subtasks."""

import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from frames import plan as plans
from frames import trace
from frames.errors import LimitError
from frames.frame import Subtask
from nodes.component import Ask, ModelComponent, ask_directly, use
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node

_BULLET = re.compile(r"^[ \t]*([-*])(?!\1)(?:[ \t]+[-*](?=[ \t]))*[ \t]*(\S.*)$", re.MULTILINE)


class Decomposer(Protocol):
    """Splits a task into subtasks."""

    def __call__(self, task: str, depth: int, /) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Return the texts of the subtasks of ``task``; none where it is to be solved directly."""
        ...


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model for subtasks and keeps the lines of its answer that are bullets.

    ``max_subtasks`` is what the prompt asks for at most; without it, 2 to 5.
    """

    model: ModelLike | None = None
    max_subtasks: int | None = None

    async def __call__(self, task: str, depth: int, /, *, ask: Ask = ask_directly) -> list[str]:
        prompt = render("decompose", task=task, depth=depth, max_subtasks=self.max_subtasks)
        return bullets(await ask(prompt, model=self.model))


def llm_based(model: ModelLike | None = None, max_subtasks: int | None = None) -> LlmBased:
    """Return a decomposer that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model, max_subtasks)


def bullets(text: str) -> list[str]:
    """Return the texts of the lines that start with ``-`` or ``*``, white space before it aside.

    A line that starts with two of them is a rule or bold text, no bullet.
    """
    return [match[2].strip() for match in _BULLET.finditer(text)]


@node("decompose")
async def decompose(step: Step) -> Update:
    """Split the frame's task and start its first subtask; without a usable plan, send it to ``solve``."""
    frame = step.frame
    texts = await use(step.context.components.decomposer, frame["task"], frame["depth"], ask=step.ask)
    try:
        plan = plans.from_texts(texts)
        plans.check(plan, step.path, step.context.max_subtasks)
    except plans.PlanError as refusal:
        step.emit({"event": "plan_refused", "frame": frame["id"], "reason": str(refusal)})
        return step.go("solve", notes=[f"{frame['id']}: plan refused: {refusal}; solved directly"])
    if not plan:
        return step.go("solve")
    return _start(step, plan)


def _start(step: Step, plan: list[Subtask]) -> Update:
    frames, most = step.frames + len(plan), step.context.max_frames
    if frames > most:
        raise LimitError("max_frames", f"max_frames = {most} reached: {len(plan)} subtasks would make {frames} frames")
    step.emit({"event": "plan", "frame": step.frame["id"], "subtasks": [subtask["task"] for subtask in plan]})
    traced = trace.decomposed(step.frame, plan)
    return step.update({"op": "revise", "fields": {"plan": plan}}, {"op": "descend"}, traces=[traced], frames=frames)
