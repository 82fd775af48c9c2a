"""Aggregate: combine the answers of a task's subtasks."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol

from frames import trace
from frames.errors import EmptyReplyError, ReplyCutError
from frames.frame import ChildResult, Frame, child_id, place
from frames.text import estimate_tokens
from nodes.asking import within_run
from nodes.component import Ask, ModelComponent, ask_directly, use
from nodes.condense import condensed
from nodes.executors.sources import sources, with_sources
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.solve import text_of
from nodes.step import Step, Update, node
from nodes.structured import without_reasoning


class Aggregator(Protocol):
    """Combines the results of subtasks into an answer to their task."""

    def __call__(self, task: str, results: Sequence[ChildResult], /) -> str | Awaitable[str]:
        """Return the combined answer; each result has ``task`` and ``answer``, or ``failed``, in plan order."""
        ...


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model; its prompt lists the task and each subtask with its result."""

    model: ModelLike | None = None

    async def __call__(self, task: str, results: Sequence[ChildResult], /, *, ask: Ask = ask_directly) -> str:
        return await ask(render("aggregate", task=task, results=results), model=self.model)


@dataclass(frozen=True)
class Synthesizer(ModelComponent):
    """Checks each result against its subtask, names conflicts, cites frames and keeps to a size (ROMA's aggregator).

    An answer that names none of the documents that its results cite gets them appended.

    Results that exceed the model's window are shortened first, in a tree; what is left out is said.
    """

    model: ModelLike | None = None

    async def __call__(self, task: str, results: Sequence[ChildResult], /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        settings, frame = work.context, work.frame
        answered = [result for result in results if not result["failed"]]
        missing = [result for result in results if result["failed"]]
        tokens = settings.answer_tokens if frame["depth"] else None
        about = {"task": task, "missing": missing, "tokens": tokens, "feedback": frame["feedback"]}
        room = settings.window - estimate_tokens(render("roma/aggregate", results=[_EMPTY], **about)) - (tokens or 1000)
        fitting = await condensed(task, answered, room, work, self.model)
        combined = without_reasoning(await ask(render("roma/aggregate", results=fitting, **about), model=self.model))
        return with_sources(combined, sources(*(result["answer"] for result in answered)))


_EMPTY = ChildResult(frame="", task="", answer="", artifact=None, failed=None, attempts=0)


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return an aggregator that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


def synthesizer(model: ModelLike | None = None) -> Synthesizer:
    """Return an aggregator that checks, cites and compresses, asking ``model``."""
    return Synthesizer(model)


@node("aggregate")
async def aggregate(step: Step) -> Update:
    """Combine the children's answers and send the result to ``verify``."""
    frame = step.frame
    if integrated := _integrated(frame):
        answer = (await _whole(step, integrated))["answer"]
        step.emit_answer(answer)
        return await step.take(answer, traces=[trace.aggregated(frame, answer)])
    results = [await _whole(step, result) for result in sorted(frame["results"], key=place)]
    try:
        combined = await use(step.context.components.aggregator, frame["task"], results, ask=step.ask)
    except (ReplyCutError, EmptyReplyError) as none:
        if not (step.may_retry and step.context.combines_again):
            raise
        return step.go("retry", feedback=f"{none}{'. Combine in fewer words' * isinstance(none, ReplyCutError)}.")
    answer = text_of(combined, "aggregator")
    step.emit_answer(answer)
    return step.go("verify", answer=answer, traces=[trace.aggregated(frame, answer)])


def _integrated(frame: Frame) -> ChildResult | None:
    """Return the accepted integration of a plan from findings, which answers the task: it is not combined once more."""
    places = [index for index, subtask in enumerate(frame["plan"]) if subtask.get("tier") == "cross_file"]
    ids = {child_id(frame, index) for index in places}
    return next((result for result in frame["results"] if result["frame"] in ids and not result["failed"]), None)


async def _whole(step: Step, result: ChildResult) -> ChildResult:
    """Return a result with its whole answer, also where that was kept as an artifact."""
    stored = await step.artifacts.get(result["artifact"]) if result["artifact"] else None
    return ChildResult({**result, "answer": stored.content.decode()}) if stored else result
