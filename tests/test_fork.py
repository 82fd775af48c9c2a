"""The fork: dependents start as soon as they can, the cap holds, and results do not depend on who ends first."""

import asyncio
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from frames.frame import KINDS
from graph import RecursiveTaskSolver, SolveResult, always_accept
from tests.trees import Node, named, plans, solver


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
