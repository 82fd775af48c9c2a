"""Evaluation: the tasks of a data set solved under each profile, judged, and summed up.

Each task is a run of the database, named after the evaluation, its task and its settings: whoever evaluates the same
once more goes on where it was stopped, and pays for no task, nor any judge's call, twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast

from langgraph.runtime import RunControl

from frames.errors import UsageError
from frames.journal import digest
from graph.dataset import Row
from graph.result import SolveResult
from graph.runs import Runs, settings_of
from nodes.context import Context
from nodes.prompt import render
from nodes.verify import read_verdict

_ENDED = ("succeeded", "failed", "limited")

_OUTSIDE = ("prices", "parallel", "call_timeout", "call_attempts", "tool_timeout")
"""Settings that do not make a task another one: a kept run is used again whatever they are."""


class Judged(NamedTuple):
    """Whether an answer is right (``None``: nobody could tell), why, and the run in which a model judged it."""

    correct: bool | None
    reason: str = ""
    run: SolveResult | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of one task under one profile. ``correct`` is ``None`` where the run or its judge did not end."""

    profile: str
    line: int
    task: str
    expected: str
    judge: str
    run_id: str
    status: str
    correct: bool | None
    reason: str
    output: str | None
    calls: int
    judge_calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    seconds: float


@dataclass(frozen=True)
class Evaluation:
    """An evaluation at work.

    Args:
        runs: keeps the runs.
        name: its name, from which those of the runs are made.
        contexts: settings by profile.
        judge: settings of the judges' calls; ``None`` where no row wants a model.
        rows: the tasks.
        control: asked to drain, no further task is begun and those under way end after the calls in flight.
    """

    runs: Runs
    name: str
    contexts: Mapping[str, Context]
    judge: Context | None
    rows: Sequence[Row]
    control: RunControl

    def __post_init__(self) -> None:
        if any(context.approve != "off" for context in self.contexts.values()):
            raise UsageError("an evaluation waits for nobody: leave --approve out")

    async def work(self, at_once: int, tell: Callable[[Outcome], None]) -> list[Outcome]:
        """Return the outcomes of all tasks under all profiles, those that were begun, in order.

        Args:
            at_once: the most tasks worked on at a time.
            tell: is told each outcome as it comes.
        """
        places = asyncio.Semaphore(at_once)

        async def one(profile: str, index: int) -> Outcome | None:
            async with places:
                if self.control.drain_requested:
                    return None
                result = await self.solved(profile, index)
                outcome = self.outcome(profile, index, result, await self.judged(index, result))
                tell(outcome)
                return outcome

        pairs = [(profile, index) for profile in self.contexts for index in range(len(self.rows))]
        given = await _all([one(*pair) for pair in pairs])
        return [outcome for outcome in given if outcome]

    async def solved(self, profile: str, index: int) -> SolveResult:
        """Return the result of a task: the kept one, or that of its run, begun or gone on with."""
        return await self._run(self.contexts[profile], self.rows[index].task, self._run_id(profile, index))

    async def judged(self, index: int, result: SolveResult) -> Judged:
        """Return whether a result is as expected of its task."""
        row, answer = self.rows[index], result.output
        if result.status not in _ENDED:
            return Judged(None, f"{result.status}: the same command goes on")
        if answer is None:
            return Judged(correct=False, reason=(result.gaps or [f"no answer: {result.status}"])[-1])
        if row.judge != "model":
            return Judged(row.holds(answer))
        if self.judge is None:
            raise UsageError("a row wants a model as its judge, and none is named")
        prompt = render("judge", task=row.task, expected=row.expected, answer=answer)
        name = f"{result.run_id}-judge-{digest([prompt, settings_of(self.judge)])[:6]}"
        said = await self._run(self.judge, prompt, name)
        if said.output is None:
            return Judged(None, f"the judge gave no verdict: {(said.gaps or [said.status])[-1]}", said)
        verdict = read_verdict(said.output)
        return Judged(verdict.accepted, verdict.feedback, said)

    def outcome(self, profile: str, index: int, result: SolveResult, judged: Judged) -> Outcome:
        """Return the account of a task, its judge's calls included."""
        row = self.rows[index]
        usages = [result.usage, *([judged.run.usage] if judged.run else [])]
        costs = [usage["usd"] for usage in usages if usage["calls"]]
        return Outcome(
            profile=profile,
            line=row.line,
            task=row.task,
            expected=row.expected,
            judge=row.judge,
            run_id=result.run_id,
            status=result.status,
            correct=judged.correct,
            reason=judged.reason,
            output=result.output,
            calls=result.usage["calls"],
            judge_calls=judged.run.usage["calls"] if judged.run else 0,
            input_tokens=sum(usage["input_tokens"] for usage in usages),
            output_tokens=sum(usage["output_tokens"] for usage in usages),
            usd=None if None in costs else sum(costs),
            seconds=result.duration_ms / 1000,
        )

    async def _run(self, context: Context, task: str, run_id: str) -> SolveResult:
        row = await self.runs.store.find(run_id)
        if row is None:
            return await self.runs.outcome(self.runs.start(context, task, run_id, self.control))
        if row["status"] in _ENDED:
            return await self.runs.result(context, run_id)
        return await self.runs.outcome(self.runs.resume(context, run_id, self.control))

    def _run_id(self, profile: str, index: int) -> str:
        """Return the name of a task's run; of equal tasks the second has another than the first."""
        task = self.rows[index].task
        nth = sum(row.task == task for row in self.rows[:index])
        settings = {name: value for name, value in settings_of(self.contexts[profile]).items() if name not in _OUTSIDE}
        return f"{self.name}-{profile}-{digest([task, settings, nth])[:10]}"


def summed_up(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a summary per profile: tasks, how many are right, the calls, what they cost, and the time.

    ``accuracy`` is the share of right answers among all tasks with a verdict, ``None`` where there is none; ``usd`` is
    ``None`` where one task's is unknown; ``seconds`` is the mean time of a task.
    """
    profiles = dict.fromkeys(outcome.profile for outcome in outcomes)
    return [_summary(name, [each for each in outcomes if each.profile == name]) for name in profiles]


def _summary(profile: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    judged = [each for each in outcomes if each.correct is not None]
    correct = sum(bool(each.correct) for each in judged)
    costs = [each.usd for each in outcomes]
    return {
        "profile": profile,
        "tasks": len(outcomes),
        "correct": correct,
        "unjudged": len(outcomes) - len(judged),
        "accuracy": correct / len(judged) if judged else None,
        "calls": sum(each.calls for each in outcomes),
        "judge_calls": sum(each.judge_calls for each in outcomes),
        "input_tokens": sum(each.input_tokens for each in outcomes),
        "output_tokens": sum(each.output_tokens for each in outcomes),
        "usd": None if None in costs else sum(cast("list[float]", costs)),
        "seconds": sum(each.seconds for each in outcomes) / len(outcomes),
    }


def document(name: str, outcomes: Sequence[Outcome], expected: int) -> dict[str, Any]:
    """Return the JSON document of an evaluation of ``expected`` outcomes."""
    finished = len(outcomes) == expected and all(each.status in _ENDED for each in outcomes)
    tasks = [asdict(each) for each in outcomes]
    return {"schema": 1, "name": name, "finished": finished, "profiles": summed_up(outcomes), "tasks": tasks}


async def _all(works: Sequence[Awaitable[Any]]) -> list[Any]:
    """Return what all works give; where one raises, the others are stopped first."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
