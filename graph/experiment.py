"""An evaluation as experiments in LangSmith: the rows as a data set, a profile as an experiment on it."""

import asyncio
import os
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from langsmith import Client, aevaluate  # pyright: ignore[reportUnknownVariableType]
from langsmith.schemas import Example
from langsmith.utils import LangSmithError

from frames.errors import CactusError, UsageError
from frames.text import one_line
from graph.dataset import Row
from graph.evaluate import Evaluation, Outcome
from graph.result import SolveResult
from graph.runs import settings_of


def checked_key() -> None:
    """Check that LangSmith has a key.

    Raises:
        UsageError: there is none.
    """
    if not (os.environ.get("LANGSMITH_API_KEY") or os.environ.get("LANGCHAIN_API_KEY")):
        raise UsageError("--upload needs LANGSMITH_API_KEY: set it, or leave --upload out to evaluate offline")


async def uploaded(
    evaluation: Evaluation, dataset: str, at_once: int, tell: Callable[[Outcome], None]
) -> tuple[list[Outcome], dict[str, str]]:
    """Work as ``Evaluation.work`` does, and upload it.

    Args:
        evaluation: what is evaluated.
        dataset: the name of LangSmith's data set, made where it is missing; rows that it lacks are added.
        at_once: the most tasks worked on at a time.
        tell: is told each outcome as it comes.

    Returns:
        The outcomes, and the name of each profile's experiment.

    Raises:
        CactusError: LangSmith cannot be reached or refuses; the runs are kept, so that the same command goes on.
    """
    client = Client()
    try:
        examples = await asyncio.to_thread(_examples, client, dataset, evaluation.rows)
        outcomes, experiments = list[Outcome](), dict[str, str]()
        for profile in evaluation.contexts:
            experiment = _Experiment(evaluation, profile, examples, tell)
            experiments[profile] = await experiment.work(client, at_once)
            outcomes += experiment.in_order()
        await asyncio.to_thread(client.flush)
    except (LangSmithError, OSError) as error:
        said = one_line(str(error), 300)
        raise CactusError(f"LangSmith failed: {said}; the runs are kept, so that the same command goes on") from error
    return outcomes, experiments


class _Experiment:
    """One profile's work on the examples of a data set, which stand in the order of the rows."""

    def __init__(
        self, evaluation: Evaluation, profile: str, examples: list[Example], tell: Callable[[Outcome], None]
    ) -> None:
        self._evaluation, self._profile, self._examples, self._tell = evaluation, profile, examples, tell
        self._index = {example.id: index for index, example in enumerate(examples)}
        self._waiting: dict[str, list[int]] = {}  # rows not begun by their task, which is all that a target is told
        for index, row in enumerate(evaluation.rows):
            self._waiting.setdefault(row.task, []).append(index)
        self._results: dict[str, SolveResult] = {}
        self._outcomes: dict[UUID, Outcome] = {}
        self._faults: list[CactusError] = []

    async def work(self, client: Client, at_once: int) -> str:
        """Solve and judge all examples, and return the experiment's name.

        Raises:
            CactusError: a run could not be made.
        """
        context = self._evaluation.contexts[self._profile]
        settings = {name: value for name, value in settings_of(context).items() if name != "mcp_servers"}
        evaluators: list[Any] = [self._correct]  # typed by LangSmith as synchronous
        given = await aevaluate(
            self._target,
            data=self._examples,
            evaluators=evaluators,
            experiment_prefix=f"{self._evaluation.name}-{self._profile}",
            metadata={"profile": self._profile, "settings": settings},
            max_concurrency=at_once,
            client=client,
            error_handling="ignore",
        )
        async for _ in given:
            pass
        if self._faults:
            raise self._faults[0]
        return str(given.experiment_name)

    def in_order(self) -> list[Outcome]:
        """Return the outcomes, those that there are, in the order of the rows."""
        return [self._outcomes[example.id] for example in self._examples if example.id in self._outcomes]

    async def _target(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Solve the task of an example."""
        if self._evaluation.control.drain_requested:
            return {}
        try:
            result = await self._evaluation.solved(self._profile, self._waiting[inputs["task"]].pop(0))
        except CactusError as error:
            self._faults.append(error)  # LangSmith only notes it
            raise
        self._results[result.run_id] = result
        return {"output": result.output, "status": result.status, "run_id": result.run_id}

    async def _correct(self, run: Any, example: Any) -> dict[str, Any]:
        """Judge the result of an example."""
        outputs = cast("dict[str, Any]", run.outputs or {})
        result, index = self._results.get(outputs.get("run_id", "")), self._index[example.id]
        if result is None:
            return {"key": "correct", "score": None, "comment": "not solved"}
        try:
            judged = await self._evaluation.judged(index, result)
        except CactusError as error:
            self._faults.append(error)
            raise
        outcome = self._evaluation.outcome(self._profile, index, result, judged)
        self._outcomes[example.id] = outcome
        self._tell(outcome)
        score = None if judged.correct is None else int(judged.correct)
        return {"key": "correct", "score": score, "comment": judged.reason or None}


def _examples(client: Client, dataset: str, rows: Any) -> list[Example]:
    """Return the data set's example of each row, made where it is missing."""
    if not client.has_dataset(dataset_name=dataset):
        client.create_dataset(dataset, description="Tasks with what is expected of them, from cactus eval.")
    known = _by_row(client, dataset)
    missing = list[Row]()
    for row in rows:
        if found := known.get(_key(row)):
            found.pop()
        else:
            missing.append(row)
    if missing:
        client.create_examples(
            dataset_name=dataset,
            examples=[
                {"inputs": {"task": row.task}, "outputs": {"expected": row.expected, "judge": row.judge}}
                for row in missing
            ],
        )
        client.flush()
    known = _by_row(client, dataset)
    return [known[_key(row)].pop() for row in rows]


def _key(row: Row) -> tuple[str, str, str]:
    return row.task, row.expected, row.judge


def _by_row(client: Client, dataset: str) -> dict[tuple[str, str, str], list[Example]]:
    found: dict[tuple[str, str, str], list[Example]] = {}
    for example in client.list_examples(dataset_name=dataset):
        given, expected = example.inputs or {}, example.outputs or {}
        key = (str(given.get("task")), str(expected.get("expected")), str(expected.get("judge")))
        found.setdefault(key, []).append(example)
    return found
