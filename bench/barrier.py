"""What waiting for the slowest costs: wall clock over the critical path, beside LangGraph waves and plain recursion.

    python bench/barrier.py             random dependency trees, two to three minutes
    python bench/barrier.py --sqlite    the machine with checkpoints in a SQLite file too
    python bench/barrier.py --json      the same as JSON

A tree is a nest of plans whose subtasks depend on earlier siblings. A call takes a log-normal time, drawn from the
seed and its frame: answering a leaf, or combining the answers of a plan. The critical path is what the longest chain
of calls takes. Each tree is solved by

    machine    the roma profile, each subtask as soon as those it depends on are done
    waves      a LangGraph graph that sends all that is ready, over the whole tree, and waits for all of it
    recursion  a function that gathers all of a plan that is ready, each by itself, and waits for all of it

one after the other in one process. All must make the same calls, with the same results at hand, and give the same
answer; the exit status is 1 where they do not.
"""

import argparse
import asyncio
import gc
import hashlib
import json
import math
import operator
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from frames.frame import KINDS, ChildResult, Kind  # noqa: E402  # so that it runs from anywhere
from graph import RecursiveTaskSolver, always_accept  # noqa: E402
from graph.store import open_store  # noqa: E402

SIGMA = 0.8
PARTS = (2, 8)
DEPTHS = (2, 4)
DEPENDS = 0.5
AIM = 1.05


# --- trees --------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """A task of a tree: the places of the siblings it depends on, its own plan (none: a leaf), and its call's time.

    ``latency`` is in seconds: of its answer where it is a leaf, else of the combination of its plan's answers.
    """

    id: str
    kind: Kind | None
    needs: list[int]
    latency: float = 0.0
    plan: "list[Node]" = field(default_factory=list["Node"])

    @property
    def task(self) -> str:
        return f"task {self.id}"

    def walk(self) -> "Iterator[Node]":
        """Yield it and all below it."""
        yield self
        for part in self.plan:
            yield from part.walk()

    def depth(self) -> int:
        """Return the levels below it."""
        return 1 + max(part.depth() for part in self.plan) if self.plan else 0

    def critical(self) -> float:
        """Return the seconds that it takes where nothing waits but for what it depends on."""
        ended: list[float] = []
        for part in self.plan:
            ended.append(max((ended[place] for place in part.needs), default=0.0) + part.critical())
        return max(ended, default=0.0) + self.latency


@dataclass(frozen=True)
class Sizes:
    """What trees are drawn from: the fewest and most frames, and the median of a call's seconds."""

    least: int
    most: int
    median: float


def tree(seed: int, number: int, sizes: Sizes) -> Node:
    """Return a random tree; the same for the same arguments."""
    draw = random.Random(f"{seed} {number}")
    for _ in range(1000):
        deepest = draw.randint(*DEPTHS)
        root = _grown(draw, deepest, min(draw.randint(sizes.least, sizes.most), _most_frames(deepest)))
        found = list(root.walk())
        if sizes.least <= len(found) <= sizes.most:
            for node in found:
                latency = random.Random(f"{seed} {number} {node.id}")
                node.latency = latency.lognormvariate(math.log(sizes.median), SIGMA)
            return root
    raise SystemExit(f"no tree of {sizes.least} to {sizes.most} frames was found: allow for more")


def _grown(draw: random.Random, deepest: int, frames: int) -> Node:
    """Return a tree of ``frames`` frames, one fewer where one was left over, or fewer where it grew too deep."""
    root = Node("0", None, [])
    leaves, left = [root], frames - 1
    while left >= PARTS[0] and leaves:
        node = leaves.pop(draw.randrange(len(leaves)))
        for place in range(min(draw.randint(*PARTS), left)):
            needs = sorted(draw.sample(range(place), min(place, draw.randint(1, 2)))) if draw.random() < DEPENDS else []
            node.plan.append(Node(f"{node.id}.{place}", draw.choice(KINDS), needs))
        left -= len(node.plan)
        leaves += [part for part in node.plan if part.id.count(".") < deepest]
    return root


def _most_frames(depth: int) -> int:
    """Return three quarters of the frames of the full tree, which random plans reach."""
    return sum(PARTS[1] ** level for level in range(depth + 1)) * 3 // 4


# --- the calls ----------------------------------------------------------------------------------------------

_ANSWER = re.compile(r"<([\d.]+) [0-9a-f]{12}>")


@dataclass
class World:
    """Makes the calls of one run: each takes its time, and its answer depends on all that it was told."""

    root: Node
    calls: list[tuple[str, str, list[str]]] = field(default_factory=list[tuple[str, str, list[str]]])

    def __post_init__(self) -> None:
        self.nodes = {node.task: node for node in self.root.walk()}

    async def call(self, what: str, task: str, told: str) -> str:
        """Return the answer to ``task``, after its time; ``told`` holds the answers it builds on."""
        node = self.nodes[task]
        known = sorted({found[0] for found in _ANSWER.finditer(told)})
        self.calls.append((node.id, what, known))
        await asyncio.sleep(node.latency)
        digest = hashlib.sha256(f"{node.id} {what} {known}".encode()).hexdigest()
        return f"<{node.id} {digest[:12]}>"


Run = Callable[[World], Awaitable[str | None]]


# --- the machine --------------------------------------------------------------------------------------------


async def machine(world: World, store: Any = None) -> str | None:
    """Solve the tree by the roma profile."""

    def atomic(task: str, depth: int) -> bool:
        return not world.nodes[task].plan

    def split(task: str, depth: int) -> list[dict[str, Any]]:
        return [
            {"id": str(place), "task": part.task, "kind": part.kind, "depends_on": list(map(str, part.needs))}
            for place, part in enumerate(world.nodes[task].plan)
        ]

    async def solve(kind: Kind, text: str) -> str:
        return await world.call(kind, text.partition("\n")[0], text)

    async def combine(task: str, results: Sequence[ChildResult]) -> str:
        return await world.call("combine", task, " ".join(result["answer"] for result in results))

    with RecursiveTaskSolver.roma(
        atomizer=atomic,
        decomposer=split,
        executors={kind: partial(solve, kind) for kind in KINDS},
        aggregator=combine,
        verifier=always_accept(),
        checkpointer=store and store.saver,
        store=store and store.artifacts,
        max_depth=DEPTHS[1],
        max_subtasks=PARTS[1],
        max_frames=1000,
        parallel=1000,
    ) as solver:
        return (await solver.asolve(world.root.task)).output


# --- LangGraph in waves -------------------------------------------------------------------------------------


class Waves(TypedDict):
    """The graph's state: the answers so far, by frame."""

    answers: Annotated[dict[str, str], operator.or_]


class Job(TypedDict):
    """What a call is sent."""

    what: str
    task: str
    told: str


async def waves(world: World) -> str | None:
    """Solve the tree by a graph that sends all calls that are ready, in supersteps."""

    async def call(job: Job) -> dict[str, Any]:
        return {"answers": {world.nodes[job["task"]].id: await world.call(**job)}}

    async def schedule(state: Waves) -> dict[str, Any]:
        return {}

    async def ready(state: Waves) -> list[Send]:
        return [Send("call", job) for job in _ready(world.root, state["answers"], "")]

    builder: Any = StateGraph(Waves)
    builder.add_node("schedule", schedule)
    builder.add_node("call", call)
    builder.add_edge(START, "schedule")
    builder.add_conditional_edges("schedule", ready, ["call"])
    builder.add_edge("call", "schedule")
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "waves"}, "recursion_limit": 2 * len(world.nodes) + 10}
    state = await graph.ainvoke({"answers": {}}, config, durability="sync")
    return state["answers"].get("0")


def _ready(node: Node, answers: dict[str, str], told: str) -> Iterator[Job]:
    """Yield the calls below ``node`` whose needs are met; ``told`` is what all of them build on."""
    if node.id in answers:
        return
    if all(part.id in answers for part in node.plan):
        what = "combine" if node.plan else str(node.kind)
        yield Job(what=what, task=node.task, told=_told(node.plan, answers) if node.plan else told)
        return
    for part in node.plan:
        needed = [node.plan[place] for place in part.needs]
        if all(other.id in answers for other in needed):
            yield from _ready(part, answers, f"{told} {_told(needed, answers)}")


def _told(nodes: Sequence[Node], answers: dict[str, str]) -> str:
    return " ".join(answers[node.id] for node in nodes)


# --- recursion in waves -------------------------------------------------------------------------------------


async def recursion(world: World) -> str | None:
    """Solve the tree by a function that calls itself."""
    return await _solve(world, world.root, "")


async def _solve(world: World, node: Node, told: str) -> str:
    if not node.plan:
        return await world.call(str(node.kind), node.task, told)
    answers: dict[str, str] = {}
    while len(answers) < len(node.plan):
        wave = [part for part in node.plan if part.id not in answers and _met(node, part, answers)]
        known = [_told([node.plan[place] for place in part.needs], answers) for part in wave]
        work = [_solve(world, part, f"{told} {more}") for part, more in zip(wave, known, strict=True)]
        answers |= zip([part.id for part in wave], await asyncio.gather(*work), strict=True)
    return await world.call("combine", node.task, _told(node.plan, answers))


def _met(node: Node, part: Node, answers: dict[str, str]) -> bool:
    return all(node.plan[place].id in answers for place in part.needs)


# --- measuring ----------------------------------------------------------------------------------------------


@dataclass
class Solved:
    """One run: seconds of wall clock and of CPU, the calls that were made, and the answer."""

    wall: float
    cpu: float
    calls: list[tuple[str, str, list[str]]]
    answer: str | None


async def solved(run: Run, root: Node) -> Solved:
    """Return what one run took and gave."""
    world = World(root)
    gc.collect()
    started, cpu = time.perf_counter(), time.process_time()
    answer = await run(world)
    return Solved(time.perf_counter() - started, time.process_time() - cpu, sorted(world.calls), answer)


async def measure(trees: Sequence[Node], *, sqlite: bool) -> list[dict[str, Any]]:
    """Return a row for each tree, with a ratio for each way to solve it."""
    async with AsyncExitStack() as stack:
        ways: dict[str, Run] = {"machine": machine, "waves": waves, "recursion": recursion}
        if sqlite:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            store = await stack.enter_async_context(open_store(Path(folder) / "runs.db"))
            ways["machine, sqlite"] = partial(machine, store=store)
        warm = tree(0, 0, Sizes(8, 12, 0.001))
        for run in ways.values():
            await solved(run, warm)
        return [await _row(root, ways) for root in trees]


async def _row(root: Node, ways: dict[str, Run]) -> dict[str, Any]:
    runs = {way: await solved(run, root) for way, run in ways.items()}
    critical, frames = root.critical(), sum(1 for _ in root.walk())
    reference = runs["recursion"]
    differ = [way for way, run in runs.items() if (run.calls, run.answer) != (reference.calls, reference.answer)]
    return {
        "frames": frames,
        "depth": root.depth(),
        "critical_s": critical,
        "ratios": {way: run.wall / critical for way, run in runs.items()},
        "over_ms": {way: (run.wall - critical) * 1000 for way, run in runs.items()},
        "cpu_ms_per_frame": {way: run.cpu * 1000 / frames for way, run in runs.items()},
        "calls": len(reference.calls),
        "differ": differ or ([] if len(reference.calls) == frames else ["recursion"]),
    }


# --- report -------------------------------------------------------------------------------------------------


def summary(rows: Sequence[dict[str, Any]], way: str) -> dict[str, float]:
    """Return the median and the 90th percentile of a way's ratios."""
    ratios = [row["ratios"][way] for row in rows]
    tenths = statistics.quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios
    return {"median": statistics.median(ratios), "p90": tenths[-1]}


def _print(report: dict[str, Any]) -> None:
    rows, ways = report["trees"], list(report["ratios"])
    print("Wall clock over the critical path, and in brackets the CPU milliseconds a frame\n")
    print(f"{'tree':>4} {'frames':>6} {'depth':>5} {'critical s':>10}" + "".join(f" {way:>18}" for way in ways))
    for number, row in enumerate(rows):
        figures = "".join(f" {row['ratios'][way]:9.3f} ({row['cpu_ms_per_frame'][way]:6.2f})" for way in ways)
        print(f"{number:4} {row['frames']:6} {row['depth']:5} {row['critical_s']:10.2f}{figures}")
        for way in row["differ"]:
            print(f"     {way} made other calls, or gave another answer")
    for name in ("median", "p90"):
        print(f"{name:28}" + "".join(f" {report['ratios'][way][name]:9.3f}         " for way in ways))
    met = report["ratios"]["machine"]["median"] <= AIM
    print(f"\nmachine, median {report['ratios']['machine']['median']:.3f}, aim <= {AIM}: {'OK' if met else 'MISSED'}")
    print(f"the same calls and answers: {'NO' if report['differ'] else 'yes'}")


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trees", type=int, default=5, help="how many trees")
    parser.add_argument("--frames", type=int, nargs=2, default=[40, 200], metavar=("MIN", "MAX"), help="their sizes")
    parser.add_argument("--median", type=float, default=0.2, metavar="SECONDS", help="median time of a call")
    parser.add_argument("--seed", type=int, default=1, help="what the trees and times are drawn from")
    parser.add_argument("--sqlite", action="store_true", help="the machine with checkpoints in a SQLite file too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    sizes = Sizes(*options.frames, options.median)
    trees = [tree(options.seed, number, sizes) for number in range(options.trees)]
    rows = asyncio.run(measure(trees, sqlite=options.sqlite))
    ratios = {way: summary(rows, way) for way in rows[0]["ratios"]}
    report = {"ratios": ratios, "differ": any(row["differ"] for row in rows), "trees": rows}
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        _print(report)
    return int(report["differ"])


if __name__ == "__main__":
    sys.exit(main())
