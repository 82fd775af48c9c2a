"""Aggregate: combine the answers of a task's subtasks."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from frames import trace
from frames.frame import ChildResult
from nodes.component import Ask, ModelComponent, ask_directly, use
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.solve import text_of
from nodes.step import Step, Update, node


class Aggregator(Protocol):
    """Combines the results of subtasks into an answer to their task."""

    def __call__(self, task: str, results: Sequence[ChildResult], /) -> str | Awaitable[str]:
        """Return the combined answer; each result has ``task`` and ``answer``, in plan order."""
        ...


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model; its prompt lists the task and each subtask with its result."""

    model: ModelLike | None = None

    async def __call__(self, task: str, results: Sequence[ChildResult], /, *, ask: Ask = ask_directly) -> str:
        return await ask(render("aggregate", task=task, results=results), model=self.model)


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return an aggregator that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


@node("aggregate")
async def aggregate(step: Step) -> Update:
    """Combine the children's answers and send the result to ``verify``."""
    frame = step.frame
    combined = await use(step.context.components.aggregator, frame["task"], frame["results"], ask=step.ask)
    answer = text_of(combined, "aggregator")
    step.emit_answer(answer)
    return step.go("verify", answer=answer, traces=[trace.aggregated(frame, answer)])
