"""Solve: answer an atomic task."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from frames import trace
from frames.errors import EmptyReplyError, ReplyCutError
from frames.text import clean
from nodes.component import Ask, ComponentError, ModelComponent, ask_directly, use
from nodes.executors.brief import brief
from nodes.models.resolve import ModelLike
from nodes.step import Step, Update, node


class Executor(Protocol):
    """Answers an atomic task."""

    def __call__(self, task: str, /) -> str | Awaitable[str]:
        """Return an answer to ``task``."""
        ...


@dataclass(frozen=True)
class Direct(ModelComponent):
    """Gives a model the task's text, nothing before or behind it."""

    model: ModelLike | None = None

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        return await ask(task, model=self.model)


def direct(model: ModelLike | None = None) -> Direct:
    """Return an executor that asks ``model`` (by default the run's model for the role)."""
    return Direct(model)


@node("solve")
async def solve(step: Step) -> Update:
    """Answer the frame's task and send the answer to ``verify``."""
    frame, parts = step.frame, step.context.components
    task = parts.retry(frame["task"], frame["feedback"])
    if step.context.profile != "classic":
        task = brief(task, frame, step.context)
    try:
        answer = text_of(await use(parts.executor(frame["kind"]), task, ask=step.ask), "solver")
    except (ReplyCutError, EmptyReplyError) as none:
        if not step.may_retry:
            raise
        return step.go("retry", feedback=f"{none}{'. Answer in fewer words' * isinstance(none, ReplyCutError)}.")
    step.emit_answer(answer)
    agent = step.ask.agent.said if step.ask.agent else None
    return step.go("verify", answer=answer, traces=[trace.solved(frame, answer, agent)])


def text_of(answer: object, component: str) -> str:
    """Return ``answer``, made safe to store.

    Raises:
        ComponentError: it is no text.
    """
    if not isinstance(answer, str):
        raise ComponentError(f"the {component} returned {type(answer).__name__}, not a text")
    return clean(answer)
