"""The classic profile against a reference of ten lines, over random trees and verdicts."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frames.errors import UsageError
from graph import RecursiveTaskSolver, SolveTrace, Verdict
from nodes.atomize import depth_based
from nodes.decompose import llm_based


@dataclass
class World:
    """Random answers of the outside world: which tasks split, and which verdicts are given."""

    children: dict[str, int]
    rejections: dict[str, int]
    calls: list[str] = field(default_factory=list)

    def decompose(self, task: str, depth: int) -> list[str]:
        return [f"{task}.{i}" for i in range(self.children.get(task, 0))]

    def solve(self, prompt: str) -> str:
        self.calls.append(prompt)
        return f"answer {len(self.calls)}: {prompt}"

    def verify(self, task: str, result: str, attempt: int) -> Verdict:
        rejected = attempt <= self.rejections.get(task, 0)
        return Verdict.reject(f"no {attempt}") if rejected else Verdict.accept("fine")


def reference(world: World, task: str, depth: int, limit: int, attempts: int, out: list[Any]) -> str | None:
    """The seed's recursion, plainly."""
    subtasks = [] if depth >= limit else world.decompose(task, depth)
    if subtasks:
        out.append(("DECOMPOSED", f"{len(subtasks)} sub-tasks: {'; '.join(subtasks)}"[:80], depth, 0))
        results = []
        for subtask in subtasks:
            results.append(reference(world, subtask, depth + 1, limit, attempts, out))
            if results[-1] is None:
                return None
        answer = world.solve(combination(task, subtasks, results))
        out.append(("AGGREGATED", answer[:80], depth, 0))
        return judged(world, task, answer, 1, depth, out, traced=True)
    for attempt in range(1, attempts + 1):
        answer = world.solve(task)
        out.append(("SOLVED", answer[:80], depth, attempt))
        if judged(world, task, answer, attempt, depth, out, traced=attempt < attempts):
            return answer
    return None


def judged(
    world: World, task: str, answer: str, attempt: int, depth: int, out: list[Any], *, traced: bool
) -> str | None:
    verdict = world.verify(task, answer, attempt)
    if verdict.accepted or traced:
        out.append(("VERIFIED", f"{'ACCEPTED' if verdict.accepted else 'REJECTED'}: {verdict.feedback}", depth, 0))
    return answer if verdict.accepted else None


def combination(task: str, subtasks: list[str], results: list[Any]) -> str:
    return f"{task} <- {list(zip(subtasks, results, strict=True))}"


async def aggregate(world: World, task: str, results: Any) -> str:
    return world.solve(combination(task, [r["task"] for r in results], [r["answer"] for r in results]))


def machine(world: World, limit: int, attempts: int, **settings: Any) -> RecursiveTaskSolver:
    async def combine(task: str, results: Any) -> str:
        return await aggregate(world, task, results)

    return RecursiveTaskSolver(
        solver=world.solve,
        decomposer=world.decompose,
        atomizer=depth_based(limit),
        verifier=world.verify,
        aggregator=combine,
        max_retries=attempts,
        **settings,
    )


def shape(trace: SolveTrace) -> tuple[str, str, int, int]:
    return (trace.type, trace.detail, trace.depth, trace.attempt)


names = st.sampled_from([f"t{'.'.join(['', *path])}" for path in [*"012", *["00", "01", "10", "11", "20"]]] + ["t"])
worlds = st.builds(
    World,
    children=st.dictionaries(names, st.integers(0, 3), max_size=9),
    rejections=st.dictionaries(names, st.integers(0, 3), max_size=4),
)


@given(world=worlds, limit=st.integers(0, 4), attempts=st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_traces_answers_and_calls_equal_the_reference(world: World, limit: int, attempts: int) -> None:
    expected: list[Any] = []
    answer = reference(world, "t", 0, limit, attempts, expected)
    expected_calls, world.calls = world.calls, []
    solver = machine(world, limit, attempts)
    depths: list[int] = []

    document = asyncio.run(_document(solver, depths))
    assert [(t["type"], t["detail"], t["depth"], t["attempt"]) for t in document["traces"]] == expected
    assert document["output"] == answer
    assert document["success"] == (answer is not None)
    assert world.calls == expected_calls
    assert document["usage"]["calls"] <= document["bound"]["calls"]
    assert document["frames"] <= document["bound"]["frames"]
    assert max(depths) <= min(limit, 5)


async def _document(solver: RecursiveTaskSolver, depths: list[int]) -> dict[str, Any]:
    async for event in solver.astream("t"):
        if event["event"] == "frame":
            depths.append(event["depth"])
    return event["result"]


def test_defaults_are_the_seeds() -> None:
    with RecursiveTaskSolver(solver=str.upper, decomposer=lambda task, depth: [f"{task}{depth}"]) as solver:
        result = solver.solve("t")
    assert solver.context.max_depth == 5
    assert solver.context.max_retries == 2
    assert max(trace.depth for trace in result.traces) == 3  # the depth-based atomizer stops before max_depth
    assert {t.detail for t in result.traces if t.type == "VERIFIED"} == {"ACCEPTED: "}


def test_a_failed_child_fails_the_branch_at_once_without_output() -> None:
    world = World({"t": 3}, {"t.1": 2})
    with machine(world, 1, 2) as solver:
        result = solver.solve("t")
    assert (result.success, result.output, result.partial, result.status) == (False, None, None, "failed")
    assert not any("t.2" in call for call in world.calls)
    assert result.gaps == ["0.1: rejected after 2 attempts: no 2"]
    assert [shape(t)[0] for t in result.traces][-2:] == ["VERIFIED", "SOLVED"]  # the last rejection is not traced
    assert result.duration_ms >= 0


def test_a_rejected_combination_fails_and_is_traced() -> None:
    with machine(World({"t": 2}, {"t": 1}), 1, 3) as solver:
        result = solver.solve("t")
    assert shape(result.traces[-1]) == ("VERIFIED", "REJECTED: no 1", 0, 0)
    assert result.gaps == ["0: rejected after 1 attempt: no 1"]


def test_feedback_is_kept_whole_and_other_details_are_cut() -> None:
    feedback, answer = "f" * 300, "a" * 300
    solver = RecursiveTaskSolver(
        solver=lambda prompt: answer,
        decomposer=lambda task, depth: ["x" * 100, "y" * 100] if depth == 0 else [],
        verifier=lambda task, result, attempt: Verdict.accept(feedback),
    )
    with solver:
        result = solver.solve("t")
    for trace in result.traces:
        assert len(trace.detail) == (len("ACCEPTED: ") + 300 if trace.type == "VERIFIED" else 80)
    assert result.output == answer


@pytest.mark.parametrize(("told", "expected"), [(False, "t"), (True, "t\n\nYour last answer was rejected: no 1")])
def test_a_retry_sends_the_same_text_unless_told_otherwise(told: bool, expected: str) -> None:
    world = World({}, {"t": 1})
    with machine(world, 0, 2, feedback_on_retry=told) as solver:
        assert solver.solve("t").success
    assert world.calls == ["t", expected]


async def test_components_may_be_async_objects_and_lambdas() -> None:
    class Callable:
        async def __call__(self, task: str, depth: int) -> list[str]:
            return ["a", "b"] if depth == 0 else []

    async def model(prompt: str) -> str:
        return prompt.upper()

    async def verify(task: str, result: str, attempt: int) -> Verdict:
        return Verdict.accept()

    solver = RecursiveTaskSolver(solver=model, decomposer=Callable(), verifier=verify)
    result = await solver.asolve("t")
    assert result.success
    assert result.frames == 3


def test_solve_from_several_threads_at_once() -> None:
    with (
        RecursiveTaskSolver(solver=str.upper, decomposer=lambda task, depth: []) as solver,
        ThreadPoolExecutor(8) as pool,
    ):
        outputs = list(pool.map(lambda n: solver.solve(f"t{n}").output, range(24)))
    assert outputs == [f"T{n}" for n in range(24)]


@pytest.mark.parametrize(
    ("task", "said"), [("  ", "the task is empty"), (None, "the task must be a text, not NoneType")]
)
def test_a_task_that_is_none_is_refused(task: Any, said: str) -> None:
    with (
        RecursiveTaskSolver(solver=str.upper, decomposer=lambda task, depth: []) as solver,
        pytest.raises(UsageError, match=said),
    ):
        solver.solve(task)


async def test_a_component_may_solve_by_another_solver() -> None:
    inner = RecursiveTaskSolver(solver=str.upper, decomposer=lambda task, depth: [])

    async def model(prompt: str) -> str:
        return inner.solve(prompt).output or ""

    assert RecursiveTaskSolver(solver=model, decomposer=lambda task, depth: []).solve("t").output == "T"


@pytest.mark.parametrize("blank", ["", " \n"])
def test_an_empty_reply_is_no_answer(blank: str) -> None:
    with RecursiveTaskSolver(solver=lambda prompt: blank, decomposer=lambda task, depth: []) as solver:
        result = solver.solve("t")
    assert (result.status, result.output, result.usage["calls"]) == ("failed", None, 1)
    assert "gave an empty reply" in result.gaps[0]


async def test_solve_works_inside_a_running_loop() -> None:
    with RecursiveTaskSolver(solver=str.upper, decomposer=lambda task, depth: []) as solver:
        assert [solver.solve("t").output for _ in range(2)] == ["T", "T"]


def test_a_component_that_raises_is_a_failed_result_that_says_where() -> None:
    def verify(task: str, result: str, attempt: int) -> Verdict:
        raise ZeroDivisionError("half of nothing")

    with RecursiveTaskSolver(
        solver=str.upper, decomposer=lambda t, d: ["a"] if d == 0 else [], verifier=verify
    ) as solver:
        result = solver.solve("t")
    assert result.status == "failed"
    assert result.gaps == ["0.0: verify raised ZeroDivisionError: half of nothing"]
    assert result.usage["calls"] == 1


@pytest.mark.parametrize(
    ("component", "said"),
    [
        ({"solver": lambda prompt: 42}, "the model returned int, not a text"),
        ({"decomposer": lambda task, depth: "a, b"}, "the decomposer returned str, not a list of texts"),
        ({"decomposer": lambda task, depth: [1, 2]}, "the decomposer's subtask 1 is int, not a text"),
        ({"verifier": lambda task, result, attempt: True}, "the verifier returned bool, not a Verdict"),
        ({"verifier": lambda task, result, attempt: Verdict("no")}, "accepted is str"),
        ({"verifier": lambda task, result, attempt: Verdict(True, None)}, "feedback is NoneType"),
        ({"atomizer": lambda task, depth: "no"}, "the atomizer returned str, not a bool"),
        ({"decomposer": llm_based}, "the decomposer returned LlmBased, not a list of texts"),
        ({"decomposer": lambda task, depth: next(iter([]))}, "raised StopIteration"),
        ({"solver": lambda prompt: sys.exit(3)}, "raised SystemExit: 3"),
        (
            {"decomposer": lambda t, d: ["a"] if d == 0 else [], "aggregator": lambda t, r: None},
            "the aggregator returned",
        ),
    ],
)
def test_a_component_of_the_wrong_form_says_so(component: dict[str, Any], said: str) -> None:
    parts: dict[str, Any] = {"solver": str.upper, "decomposer": lambda task, depth: [], **component}
    with RecursiveTaskSolver(**parts) as solver:
        result = solver.solve("t")
    assert result.status == "failed"
    assert said in result.gaps[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_retries": 0}, "max_retries must be greater than or equal to 1, not 0"),
        ({"max_depth": -1}, "max_depth must be greater than or equal to 0, not -1"),
        ({"max_frames": 0}, "max_frames must be greater than or equal to 1"),
        ({"deadline": 0}, "deadline must be greater than 0"),
        ({"max_deph": 3}, "unknown setting 'max_deph'"),
        ({"verifier": 3}, "verifier must be a function, not int"),
        ({"solver": 3}, "solver must be"),
        ({"solver": None}, "solver is required"),
        ({"solver": "nonsense"}, "model 'nonsense' is not PROVIDER:NAME"),
        ({"decomposer": llm_based("scripted:/no/such/file")}, "/no/such/file"),
    ],
)
def test_wrong_settings_are_refused_when_it_is_built(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        RecursiveTaskSolver(**{"solver": str.upper, "decomposer": lambda t, d: [], **wrong})
    assert said in str(error.value)
    assert "\n" not in str(error.value)
