"""How forks end: stopped and taken up again, asking a person, failed in part, at a limit, done anew."""

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt

from frames.frame import KINDS
from graph import RecursiveTaskSolver, Verdict, always_accept, make_graph
from graph.run import run
from tests.trees import Node, solver

# --- checkpoints, interrupts, drains -------------------------------------------------------------------------


async def test_a_branch_that_is_done_is_not_done_again_after_a_resume() -> None:
    worked: list[str] = []
    control = RunControl()

    async def work(frame: str) -> None:
        worked.append(frame)
        await asyncio.sleep(0.05 if frame == "0.0" else 0.3)
        if frame == "0.0":
            control.request_drain("stop")

    plan = [Node([]), Node([], [Node([]), Node([0])]), Node([0])]
    made, saver = solver(plan, work), InMemorySaver()
    graph, config = make_graph(saver), {"configurable": {"thread_id": "r"}}
    with pytest.raises(GraphDrained):
        await graph.ainvoke({"task": "0"}, config, context=made.context, control=control)  # type: ignore[arg-type]
    first = list(worked)
    assert "0.0" in first
    assert "0.2" not in first
    await graph.ainvoke(None, config, context=made.context)  # type: ignore[arg-type]
    state = (await graph.aget_state(config)).values  # type: ignore[arg-type]
    assert state["success"]
    assert sorted(worked) == ["0.0", "0.1.0", "0.1.1", "0.2"]


async def test_branches_interrupt_together_and_are_answered_by_id() -> None:
    async def work(frame: str) -> Any:
        return interrupt({"ask": frame}) if frame in ("0.0", "0.1.1") else None

    plan = [Node([]), Node([], [Node([]), Node([])]), Node([0]), Node([])]
    made = solver(plan, work)
    graph, config = make_graph(InMemorySaver()), {"configurable": {"thread_id": "r"}}
    stopped = await graph.ainvoke({"task": "0"}, config, context=made.context)  # type: ignore[arg-type]
    asked = {item.value["ask"]: item.id for item in stopped["__interrupt__"]}
    assert set(asked) == {"0.0", "0.1.1"}
    assert len(stopped["__interrupt__"]) == 2
    answers = {asked["0.1.1"]: "second", asked["0.0"]: "first"}
    ended = await graph.ainvoke(Command(resume=answers), config, context=made.context)  # type: ignore[arg-type]
    assert ended["output"] is not None
    assert ended["output"].startswith("0(first 0.1(re 0.1.0 second) re 0.2")


# --- failures ------------------------------------------------------------------------------------------------


async def test_case_6_a_failing_child_leaves_a_gap_and_four_answers() -> None:
    async def work(frame: str) -> None:
        if frame == "0.2":
            raise ValueError("bang")

    result = await solver([Node([]) for _ in range(5)], work).asolve("0")
    assert result.success
    assert result.gaps == ["0.2: solve raised ValueError: bang"]
    assert result.output == "0(re 0.0 re 0.1  re 0.3 re 0.4)"


async def test_case_6_with_fail_the_branch_fails_at_once_and_paid_calls_are_kept() -> None:
    cancelled: list[str] = []

    async def model(prompt: str) -> str:
        if "0.2" in prompt:
            await asyncio.sleep(0.05)
            raise ValueError("bang")
        try:
            await asyncio.sleep(0 if "0.0" in prompt else 30)
        except asyncio.CancelledError:
            cancelled.append(prompt)
            raise
        return "an answer"

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: [f"0.{place}" for place in range(5)],
        verifier=always_accept(),
        on_failure="fail",
    )
    async with asyncio.timeout(10):
        result = await made.asolve("0")
    assert (result.status, result.output) == ("failed", None)
    assert [gap.partition(":")[0] for gap in result.gaps] == ["0.2"]
    assert len(cancelled) == 3
    assert {frame: made["calls"] for frame, made in result.usage["by_frame"].items()} == {"0.0": 1}


async def test_a_child_whose_predecessors_all_failed_is_not_begun() -> None:
    async def work(frame: str) -> None:
        assert frame != "0.3"
        if frame == "0.0":
            raise ValueError("bang")

    plan = [Node([]), Node([]), Node([0, 1]), Node([0])]
    result = await solver(plan, work).asolve("0")
    assert result.success
    assert result.gaps == [
        "0.0: solve raised ValueError: bang",
        "0.3: not attempted: it depends on 0.0, without an answer",
    ]


@pytest.mark.parametrize("plan", [[Node([]), Node([])], [Node([]), Node([0])]], ids=["fork", "chain"])
async def test_a_task_none_of_whose_parts_has_an_answer_fails_up_to_one_that_has(plan: list[Node]) -> None:
    async def work(frame: str) -> None:
        if frame.startswith("0.0."):
            raise ValueError("bang")

    result = await solver([Node([], plan), Node([])], work).asolve("0")
    assert result.success
    assert "0.0: none of its subtasks has an answer" in result.gaps
    assert result.output == "0( re 0.1)"
    alone = await solver([Node([], plan)], work).asolve("0")
    assert (alone.status, alone.output) == ("failed", None)
    assert alone.gaps[-1] == "0: none of its subtasks has an answer"


async def test_case_4_a_child_that_never_returns_ends_at_the_deadline_and_its_siblings_are_kept() -> None:
    async def work(frame: str) -> None:
        await asyncio.sleep(60 if frame == "0.1.0" else 0)

    plan = [Node([]), Node([], [Node([]), Node([])]), Node([])]
    result = await solver(plan, work, deadline=0.5).asolve("0")
    assert (result.status, result.output) == ("limited", None)
    assert result.gaps == ["0.1.0: deadline = 0.5 s reached"]
    assert result.partial is not None
    assert [f"re {frame}" in result.partial for frame in ("0.0", "0.1.1", "0.2", "0.1.0")] == [True, True, True, False]


async def test_case_11_a_combination_that_never_returns_gives_the_childrens_answers() -> None:
    async def never(task: str, results: Any) -> str:
        await asyncio.sleep(60)
        return ""

    made = solver([Node([]), Node([])], lambda frame: asyncio.sleep(0), deadline=0.5)
    parts = {**vars(made.context.components), "aggregator": never}
    made.context._components = type(made.context.components)(**parts)
    result = await made.asolve("0")
    assert (result.status, result.gaps) == ("limited", ["0: deadline = 0.5 s reached"])
    assert result.partial == "0.0 0.0\nre 0.0\n\n0.1 0.1\nre 0.1"


@pytest.mark.parametrize("cap", [3, 5])
async def test_case_7_calls_side_by_side_never_pass_the_limit_together(cap: int) -> None:
    async def model(prompt: str) -> str:
        await asyncio.sleep(0.02)
        return "an answer"

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 1,
        decomposer=lambda task, depth: [f"{task}.{place}" for place in range(3)],
        verifier=always_accept(),
        max_calls=cap,
    )
    result = await made.asolve("0")
    assert result.status == "limited"
    assert result.usage["calls"] == {3: 1, 5: 4}[cap], "one call short of a plan, and of the plans below it"
    assert result.partial == "an answer"


async def test_case_15_a_slow_sibling_holds_nobody_back() -> None:
    log: list[str] = []

    async def work(frame: str) -> None:
        log.append(f"start {frame}")
        await asyncio.sleep({"0.0": 0.5, "0.1": 0.05}.get(frame, 0))
        log.append(f"end {frame}")

    await solver([Node([]), Node([]), Node([1])], work).asolve("0")
    assert log.index("start 0.2") < log.index("end 0.0")
    assert log.index("end 0.1") < log.index("start 0.2")


async def test_what_unjoined_branches_have_done_is_in_the_result_of_a_stopped_run() -> None:
    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        atomizer=lambda task, depth: task in ("0.0", "0.1.0", "0.1.1"),
        decomposer=lambda task, depth: [f"{task}.0", f"{task}.1"],
        verifier=always_accept(),
    )
    saver, control = InMemorySaver(), RunControl()
    graph, calls = make_graph(saver), 0
    stopped: dict[str, Any] = {}
    async for event in run(graph, made.context, "0", "r", control):
        calls += event["event"] == "call"
        if event["event"] == "call" and calls == 2:
            control.request_drain("enough")
        stopped = event.get("result", stopped)
    assert stopped["status"] == "cancelled"
    assert stopped["usage"]["calls"] == calls >= 2
    assert stopped["frames"] == 5
    assert stopped["partial"] is not None
    assert "an answer" in stopped["partial"]


async def test_a_component_that_is_cancelled_leaves_a_gap_and_its_siblings() -> None:
    async def work(frame: str) -> None:
        if frame == "0.1":
            raise asyncio.CancelledError

    result = await solver([Node([]), Node([]), Node([])], work).asolve("0")
    assert result.success
    assert [gap.partition(":")[0] for gap in result.gaps] == ["0.1"]
    assert result.output == "0(re 0.0  re 0.2)"


@pytest.mark.parametrize("limit", [{"max_calls": 7}, {"max_frames": 8}, {"deadline": 0.3}, {"on_failure": "fail"}])
async def test_case_24_every_frame_that_began_ends_and_every_other_is_in_a_gap(limit: dict[str, Any]) -> None:
    async def model(prompt: str) -> str:
        if "0.1.2" in prompt and "on_failure" in limit:
            raise ValueError("bang")
        await asyncio.sleep(5 if "0.1.1" in prompt and "deadline" in limit else 0.01)
        return "an answer"

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 1,
        decomposer=lambda task, depth: [f"{task}.{place}" for place in range(3)],
        verifier=always_accept(),
        **limit,
    )
    events = [event async for event in made.astream("0")]
    begun = [event["frame"] for event in events if event["event"] == "frame"]
    ended = [event["frame"] for event in events if event["event"] == "done"]
    assert sorted(begun) == sorted(ended)
    result = events[-1]["result"]
    assert not result["success"]
    if "on_failure" not in limit:
        assert result["status"] == "limited"
        assert not any("none of its subtasks" in gap for gap in result["gaps"])
        planned = {event["frame"]: len(event["subtasks"]) for event in events if event["event"] == "plan"}
        parts = {f"{frame}.{place}" for frame, count in planned.items() for place in range(count)} - set(planned)
        answered = {event["frame"] for event in events if event["event"] == "done" and event["success"]}
        without = [gap for gap in result["gaps"] if not gap.endswith("solved directly")]
        assert parts - answered == {gap.partition(":")[0] for gap in without} & parts


def test_a_child_that_is_sent_back_takes_those_that_build_on_it_along() -> None:
    told: dict[str, list[str]] = {}

    def work(text: str) -> str:
        frame = text.partition("\n")[0]
        told.setdefault(frame, []).append(text)
        return f"{frame} v{len(told[frame])}"

    plan = [Node([]), Node([0]), Node([]), Node([1])]
    verdicts = iter([Verdict.reject("0.0 is wrong"), Verdict.accept()])
    made = RecursiveTaskSolver.roma(
        lambda prompt: "never asked",
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: [
            {"id": str(place), "task": f"0.{place}", "kind": "think", "depends_on": node.needs}
            for place, node in enumerate(plan)
        ],
        executors=dict.fromkeys(KINDS, work),
        aggregator=lambda task, results: " ".join(result["answer"] for result in results),
        verifier=lambda task, result, attempt: next(verdicts) if task == "0" else Verdict.accept(),
    )
    assert made.solve("0").output == "0.0 v2 0.1 v2 0.2 v1 0.3 v2"
    assert "0.0 is wrong" in told["0.0"][1]
    assert "0.0 v2" in told["0.1"][1]  # from the new result, told of the old answer
    assert "0.1 v1" in told["0.1"][1]


def chain(*verdicts: bool, **settings: Any) -> RecursiveTaskSolver:
    """Return a solver of a chain whose combination is rejected for its first part; then ``verdicts`` are of that."""
    judged = iter([True, *verdicts])
    root = iter([Verdict.reject("0.0 is wrong"), *[Verdict.accept()] * 9])

    def judge(task: str, result: str, attempt: int) -> Verdict:
        return next(root) if task == "0" else Verdict(next(judged) if task == "0.0" else True)

    async def model(prompt: str) -> str:
        return f"answer {prompt.count('answer') + 1}"

    return RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: [
            {"id": str(place), "task": f"0.{place}", "kind": "think", "depends_on": [place - 1] if place else []}
            for place in range(3)
        ],
        verifier=judge,
        **settings,
    )


def test_an_answer_that_is_done_anew_in_vain_stands() -> None:
    result = chain(False).solve("0")
    assert (result.success, result.gaps) == (True, [])


@pytest.mark.parametrize("calls", [5, 6, 7])
def test_answers_that_are_being_done_anew_are_found_all_the_same(calls: int) -> None:
    result = chain(True, max_calls=calls).solve("0")
    assert result.status == "limited"
    assert result.partial is not None
    assert result.gaps[-1] == f"0: max_calls = {calls} reached"
    assert sorted(line.split()[0] for line in result.partial.splitlines() if line.startswith("0.")) == [
        "0.0",
        "0.1",
        "0.2",
    ]


async def test_a_limit_inside_a_fork_tells_what_the_chain_around_it_leaves() -> None:
    async def work(frame: str) -> None:
        await asyncio.sleep(0 if frame == "0.0.0" else 60)

    plan = [Node([], [Node([]), Node([]), Node([])]), Node([0]), Node([1])]
    gaps = (await solver(plan, work, deadline=0.5).asolve("0")).gaps
    reached = "deadline = 0.5 s reached"
    assert gaps[-2:] == [f"0.1: not begun: {reached}", f"0.2: not begun: {reached}"]
    assert [gap.partition(":")[0] for gap in gaps[:-2]] == ["0.0.1", "0.0.2"]


async def test_answers_within_branches_that_fail_are_found() -> None:
    async def work(frame: str) -> None:
        pass

    def judge(task: str, result: str, attempt: int) -> Verdict:
        return Verdict(task.count(".") == 2)

    plan = [Node([], [Node([]), Node([])]), Node([], [Node([]), Node([])])]
    result = await solver(plan, work, verifier=judge, max_retries=1).asolve("0")
    assert result.status == "failed"
    assert [f"re {frame}" in (result.partial or "") for frame in ("0.0.0", "0.0.1", "0.1.0", "0.1.1")] == [True] * 4


async def test_a_run_stopped_in_a_chain_tells_what_was_found() -> None:
    control = RunControl()

    async def work(frame: str) -> None:
        if frame == "0.1":
            control.request_drain("enough")

    made = solver([Node([]), Node([0]), Node([1])], work)
    events = [event async for event in run(make_graph(InMemorySaver()), made.context, "0", "r", control)]
    assert events[-1]["result"]["status"] == "cancelled"
    assert "re 0.0" in events[-1]["result"]["partial"]
