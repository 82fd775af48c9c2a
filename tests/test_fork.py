"""The fork: dependents start as soon as they can, the cap holds, and results do not depend on who ends first."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt

from frames.frame import KINDS
from graph import RecursiveTaskSolver, SolveResult, Verdict, always_accept, make_graph
from graph.run import run


@dataclass
class Node:
    """A subtask of a random plan: the places of those it depends on, and its own plan (none: it is a leaf)."""

    needs: list[int]
    plan: "list[Node]" = field(default_factory=list)


@st.composite
def plans(draw: st.DrawFn, depth: int = 2, most: int = 4) -> list[Node]:
    """Draw a plan of one to ``most`` subtasks that depend on earlier ones, planned themselves or not."""
    nodes = []
    for place in range(draw(st.integers(1, most))):
        needs = draw(st.lists(st.sampled_from(range(place)), unique=True, max_size=2)) if place else []
        inner = draw(plans(depth=depth - 1, most=3)) if depth > 1 and draw(st.booleans()) else []
        nodes.append(Node(needs, inner))
    return nodes


def named(plan: list[Node], prefix: str = "0") -> dict[str, Node]:
    """Return every node below ``prefix`` by its frame's id."""
    found = {f"{prefix}.{place}": node for place, node in enumerate(plan)}
    return found | {id_: inner for name, node in list(found.items()) for id_, inner in named(node.plan, name).items()}


def solver(plan: list[Node], work: Any, **options: Any) -> RecursiveTaskSolver:
    """Return a solver that follows ``plan`` and does each leaf by ``await work(frame)``."""
    nodes = named(plan)

    def split(task: str, depth: int) -> list[dict[str, Any]]:
        inner = plan if task == "0" else nodes[task].plan
        return [
            {"id": str(place), "task": f"{task}.{place}", "kind": "think", "depends_on": node.needs}
            for place, node in enumerate(inner)
        ]

    async def solve(text: str) -> str:
        return await work(text.partition("\n")[0]) or f"re {text}"

    return RecursiveTaskSolver.roma(
        lambda prompt: "never asked",
        atomizer=lambda task, depth: False,
        decomposer=split,
        executors=dict.fromkeys(KINDS, solve),
        aggregator=lambda task, results: f"{task}({' '.join(result['answer'] for result in results)})",
        verifier=options.pop("verifier", always_accept()),
        **{"max_subtasks": 9, "max_depth": 9, "parallel": 99, **options},
    )


class Conductor:
    """Lets one leaf end at a time, at random, once every leaf that can have started has started."""

    def __init__(self, plan: list[Node], seed: int) -> None:
        self.nodes, self.random = named(plan), random.Random(seed)
        self.running: dict[str, asyncio.Event] = {}
        self.ended: set[str] = set()

    async def work(self, frame: str) -> None:
        assert self.may_start(frame), f"{frame} started before those it depends on ended"
        self.running[frame] = asyncio.Event()
        await self.running[frame].wait()

    def done(self, frame: str) -> bool:
        inner = self.nodes[frame].plan
        return all(self.done(f"{frame}.{place}") for place in range(len(inner))) if inner else frame in self.ended

    def may_start(self, frame: str) -> bool:
        """Whether all that the frame, and each frame above it, depends on is done."""
        parent, _, _ = frame.rpartition(".")
        needed = (self.done(f"{parent}.{place}") for place in self.nodes[frame].needs)
        return all(needed) and (parent == "0" or self.may_start(parent))

    async def conduct(self) -> None:
        leaves = {frame for frame, node in self.nodes.items() if not node.plan}
        while self.ended < leaves:
            ready = {frame for frame in leaves - self.ended if self.may_start(frame)}
            async with asyncio.timeout(20):
                while set(self.running) - self.ended != ready:  # noqa: ASYNC110  # nobody tells who has started
                    await asyncio.sleep(0)
            frame = self.random.choice(sorted(ready))
            self.ended.add(frame)
            self.running[frame].set()


async def conducted(plan: list[Node], seed: int) -> SolveResult:
    conductor = Conductor(plan, seed)
    run = asyncio.ensure_future(solver(plan, conductor.work).asolve("0"))
    await conductor.conduct()
    return await run


def as_set(result: SolveResult) -> Any:
    return (result.output, result.frames, result.gaps, sorted(map(str, result.traces)))


@settings(max_examples=25, deadline=None)
@given(plans(), st.integers(0, 99), st.integers(100, 199))
def test_a_dependent_starts_when_its_own_predecessors_are_done_and_no_order_changes_the_result(
    plan: list[Node], one: int, other: int
) -> None:
    """Nobody ends before all that can have started have started: a barrier would hang here."""
    first, second = asyncio.run(conducted(plan, one)), asyncio.run(conducted(plan, other))
    assert first.success
    assert first.frames == len(named(plan)) + 1
    assert as_set(first) == as_set(second)


@settings(max_examples=25, deadline=None)
@given(plans(), st.integers(1, 4))
def test_calls_in_flight_never_exceed_the_cap_over_the_whole_tree(plan: list[Node], cap: int) -> None:
    flying = most = 0

    async def model(prompt: str) -> str:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.002)
        flying -= 1
        return "yes"

    nodes = named(plan)
    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: task != "0" and not nodes[task].plan,
        decomposer=lambda task, depth: [
            {"id": str(place), "task": f"{task}.{place}", "kind": "think", "depends_on": node.needs}
            for place, node in enumerate(plan if task == "0" else nodes[task].plan)
        ],
        verifier=always_accept(),
        parallel=cap,
        max_depth=9,
    )
    result = asyncio.run(made.asolve("0"))
    assert result.success  # no parent that waits holds a place, or one place would never be enough
    assert most <= cap
    assert result.usage["calls"] == len(nodes) + 1  # one a frame: a leaf is solved, the others are combined


async def test_a_dependent_gets_the_results_of_its_predecessors_and_so_do_its_children() -> None:
    seen: dict[str, str] = {}
    plan = [Node([], [Node([]), Node([])]), Node([], []), Node([0, 1], [Node([]), Node([])])]

    async def keep(text: str) -> str:
        seen[text.partition("\n")[0]] = text
        return f"re {text.partition(chr(10))[0]}"

    made = solver(plan, lambda frame: asyncio.sleep(0))
    parts = dict.fromkeys([*KINDS, ""], keep)
    made.context._components = type(made.context.components)(**{**vars(made.context.components), "executors": parts})
    assert (await made.asolve("0")).success
    assert seen["0.0.0"] == "0.0.0"
    for child in ("0.2.0", "0.2.1"):
        assert "[0.0] 0.0\n0.0(re 0.0.0 re 0.0.1)" in seen[child]  # of a planned one
        assert "[0.1] 0.1\nre 0.1" in seen[child]  # of an atomic one


async def test_a_chain_walks_on_the_one_stack() -> None:
    plan = [Node([]), Node([0]), Node([1])]
    made = solver(plan, lambda frame: asyncio.sleep(0))
    saver = InMemorySaver()
    made._checkpointer = saver
    assert (await made.asolve("0", run_id="r")).success
    namespaces = {item.config["configurable"]["checkpoint_ns"] async for item in saver.alist(None)}
    assert namespaces == {""}


async def test_a_plan_listed_backwards_is_followed_by_its_dependencies() -> None:
    order: list[str] = []

    async def work(frame: str) -> None:
        order.append(frame)

    plan = [Node([1]), Node([2]), Node([])]
    result = await solver(plan, work).asolve("0")
    assert order == ["0.2", "0.1", "0.0"]
    assert result.output is not None
    assert result.output.startswith("0(re 0.0")  # combined in the plan's order all the same


async def test_branches_stream_through_the_parent() -> None:
    plan = [Node([], [Node([]), Node([])]), Node([])]
    events = [event async for event in solver(plan, lambda frame: asyncio.sleep(0)).astream("0")]
    ids = [event["frame"] for event in events if event["event"] == "frame"]
    assert sorted(ids) == ["0", "0.0", "0.0.0", "0.0.1", "0.1"]
    done = [event["frame"] for event in events if event["event"] == "done"]
    assert sorted(done) == sorted(ids)
    assert events[-1]["event"] == "end"


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
    assert result.usage["calls"] == cap
    assert result.partial is not None
    assert result.partial.count("an answer") == cap


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
    assert sorted(line.split()[0] for line in result.partial.splitlines() if line.startswith("0.")) == [
        "0.0",
        "0.1",
        "0.2",
    ]


async def test_a_limit_inside_a_fork_tells_what_the_chain_around_it_leaves() -> None:
    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        atomizer=lambda task, depth: task not in ("0", "0.0"),
        decomposer=lambda task, depth: [
            {"id": str(n), "task": f"{task}.{n}", "kind": "think", "depends_on": [n - 1] if n and task == "0" else []}
            for n in range(3)
        ],
        verifier=always_accept(),
        max_calls=1,
    )
    assert "0: not begun: 0.1, 0.2" in (await made.asolve("0")).gaps


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
