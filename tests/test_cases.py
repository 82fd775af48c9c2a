"""Cases from bug reports of systems like this one, as small inputs."""

import asyncio
from itertools import count
from typing import Any

import pytest

from graph import RecursiveTaskSolver, SolveResult

never = lambda task, depth: False  # noqa: E731  # an atomizer that always says no


def solve(**settings: Any) -> tuple[SolveResult, RecursiveTaskSolver]:
    defaults: dict[str, Any] = {"solver": lambda prompt: "an answer", "atomizer": never}
    with RecursiveTaskSolver(**defaults | settings) as solver:
        return solver.solve("the task"), solver


def always(width: int) -> Any:
    numbers = count()
    return lambda task, depth: [f"part {next(numbers)}" for _ in range(width)]


def test_case_1_a_decomposer_that_never_stops_is_held_by_the_depth() -> None:
    result, solver = solve(decomposer=always(5), max_depth=3, max_subtasks=5)
    assert result.success
    assert (result.frames, solver.bound["frames"]) == (156, 156)
    assert result.usage["calls"] <= solver.bound["calls"]


def test_case_1_and_by_the_frame_limit() -> None:
    result, solver = solve(decomposer=always(5), max_depth=9, max_frames=40)
    assert (result.status, result.success, result.output) == ("limited", False, None)
    assert result.frames <= 40
    assert result.usage["calls"] <= solver.bound["calls"]
    assert "max_frames = 40 reached" in result.gaps[0]


@pytest.mark.parametrize("echo", ["the task", "  The  Task. ", "THE TASK"])
def test_case_3_a_plan_that_restates_its_task_is_refused(echo: str) -> None:
    result, _ = solve(decomposer=lambda task, depth: [echo, echo])
    assert result.success
    assert result.frames == 1
    assert result.notes == ["0: plan refused: every subtask restates the task of frame 0; solved directly"]


def test_case_3_at_the_next_level() -> None:
    result, _ = solve(decomposer=lambda task, depth: ["a smaller task"])
    assert result.frames == 2
    assert result.notes == ["0.0: plan refused: every subtask restates the task of frame 0.0; solved directly"]


@pytest.mark.parametrize("plan", [[], None, ["", "  "], [None], ()])
def test_case_5_an_empty_plan_is_solved_directly(plan: Any) -> None:
    result, _ = solve(decomposer=lambda task, depth: plan)
    assert [trace.type for trace in result.traces] == ["SOLVED", "VERIFIED"]


def test_case_7_one_limit_holds_at_every_depth() -> None:
    numbers = count()
    result, solver = solve(
        decomposer=lambda task, depth: [f"link {next(numbers)}"], max_depth=40, max_calls=30, max_retries=1
    )
    assert result.status == "limited"
    assert result.usage["calls"] == solver.bound["calls"] == 30
    assert result.gaps == ["0" + ".0" * 10 + ": max_calls = 30 reached"]


def test_case_7_a_chain_of_depth_40_is_solved() -> None:
    numbers = count()
    result, _ = solve(decomposer=lambda task, depth: [f"link {next(numbers)}"], max_depth=40, max_calls=300)
    assert result.success
    assert (result.frames, result.usage["calls"]) == (41, 41)


def test_case_8_one_call_short_says_what_was_found() -> None:
    result, _ = solve(decomposer=always(3), max_depth=1, max_calls=3)
    assert (result.status, result.output) == ("limited", None)
    assert result.gaps == ["0: max_calls = 3 reached"]
    assert result.partial is not None
    assert result.partial.count("an answer") == 3


async def test_case_28_solve_inside_a_running_loop() -> None:
    result, _ = solve(decomposer=lambda task, depth: [])
    assert result.success


async def test_a_cancelled_solve_ends() -> None:
    async def hang(prompt: str) -> str:
        await asyncio.sleep(60)
        return prompt

    solver = RecursiveTaskSolver(solver=hang, decomposer=lambda task, depth: [])
    task = asyncio.create_task(solver.asolve("t"))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
