"""What the roma profile costs: CPU a frame with subtasks side by side, memory of 1,000 frames, and bytes a frame.

    python bench/fork_overhead.py               all figures, each with its aim
    python bench/fork_overhead.py --only cpu    cpu, memory or sizes
    python bench/fork_overhead.py --json        the same as JSON
    python bench/fork_overhead.py --profile     where the CPU goes: the functions that take most

Models and components answer at once. CPU is that of all threads of the process, the median of several runs after
one to warm up. Memory is the peak of a fresh process, interpreter and imports included. The database is measured
after its write-ahead log was written back, in a file for each run; the state is the last checkpoint's values.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from frames.frame import KINDS, ChildResult  # noqa: E402  # so that it runs from anywhere
from graph import RecursiveTaskSolver, always_accept, make_graph  # noqa: E402
from graph.compressed import serializer  # noqa: E402
from graph.store import open_store  # noqa: E402

AIM_CPU = {"memory": 9.0, "sqlite": 20.0}
AIM_MEMORY = 300
AIM_GROWTH = 1.1
SIZES = (250, 500, 1000)
GROUP = 25
ANSWER = 5_000
STORES = ("memory", "sqlite")


# --- trees --------------------------------------------------------------------------------------------------

Plans = dict[str, list[str]]


def grouped(frames: int, groups: int | None = None) -> Plans:
    """Return the plans of a root whose ``groups`` children are planned in turn, ``frames`` in all."""
    groups = groups or max(frames // GROUP, 1)
    leaves = [(frames - 1 - groups) // groups + (place < (frames - 1 - groups) % groups) for place in range(groups)]
    parts = {f"part {place}": [f"part {place}.{leaf}" for leaf in range(most)] for place, most in enumerate(leaves)}
    return {"the task": list(parts), **parts}


def flat(frames: int) -> Plans:
    """Return the plan of a root with ``frames - 1`` leaves."""
    return {"the task": [f"part {place}" for place in range(frames - 1)]}


TREES: dict[str, Callable[[int], Plans]] = {"grouped": grouped, "flat": flat}
SMALL = {"8 x 4": grouped(41, 8), "flat 40": flat(41)}


# --- runs ---------------------------------------------------------------------------------------------------


def solver(plans: Plans, answer: str, *, plain: bool = False, **stores: Any) -> RecursiveTaskSolver:
    """Return a solver that follows ``plans`` and answers ``answer``; ``plain`` functions are called in threads."""
    numbers = count()

    def atomic(task: str, depth: int) -> bool:
        return task not in plans

    def split(task: str, depth: int) -> list[dict[str, Any]]:
        return [{"id": str(place), "task": part, "kind": "think"} for place, part in enumerate(plans[task])]

    def solve(task: str) -> str:
        return f"{next(numbers):08d} {answer}"

    def combine(task: str, results: Sequence[ChildResult]) -> str:
        return f"{next(numbers):08d} {answer}"

    made: Callable[[Any], Any] = (lambda function: function) if plain else _async
    return RecursiveTaskSolver.roma(
        atomizer=made(atomic),
        decomposer=made(split),
        executors=dict.fromkeys(KINDS, made(solve)),
        aggregator=made(combine),
        verifier=always_accept(),
        max_subtasks=1000,
        max_frames=1000,
        parallel=1000,
        **stores,
    )


def _async(function: Callable[..., Any]) -> Callable[..., Any]:
    async def run(*args: Any) -> Any:
        return function(*args)

    return run


def frames_of(plans: Plans) -> int:
    """Return the frames that a run makes."""
    return 1 + sum(map(len, plans.values()))


async def solved(plans: Plans, answer: str = "an answer", *, plain: bool = False, **stores: Any) -> None:
    """Run once, and check that all frames were solved."""
    with solver(plans, answer, plain=plain, **stores) as made:
        result = await made.asolve("the task", run_id="run")
    assert result.success, result.gaps
    assert result.frames == frames_of(plans)


async def stores_of(store: str, stack: AsyncExitStack) -> dict[str, Any]:
    """Return the places for checkpoints and artifacts; those of SQLite in a new file."""
    if store == "memory":
        return {"checkpointer": InMemorySaver(), "store": InMemoryStore()}
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    opened = await stack.enter_async_context(open_store(Path(folder) / "runs.db"))
    return {"checkpointer": opened.saver, "store": opened.artifacts}


# --- CPU ----------------------------------------------------------------------------------------------------


async def _cpu_ms(plans: Plans, store: str, *, plain: bool) -> float:
    async with AsyncExitStack() as stack:
        stores = await stores_of(store, stack)
        gc.collect()
        before = time.process_time()
        await solved(plans, plain=plain, **stores)
        return (time.process_time() - before) * 1000 / frames_of(plans)


async def cpu(repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each store, tree and kind of component."""
    rows = []
    for store in STORES:
        for name, plans in SMALL.items():
            for plain in (False, True):
                took = [await _cpu_ms(plans, store, plain=plain) for _ in range(repetitions + 1)][1:]
                figures = {"ms": statistics.median(took), "least": min(took), "most": max(took)}
                components = "plain functions (threads)" if plain else "async functions"
                rows.append({"store": store, "tree": name, "components": components, **figures, "aim": AIM_CPU[store]})
    return rows


async def profile(store: str, tree: str, runs: int, lines: int) -> None:
    """Print the functions that take most of ``runs`` runs, by their own time and by that of all they call."""
    plans = SMALL[tree]
    async with AsyncExitStack() as stack:
        await solved(plans, **(await stores_of(store, stack)))
        places = [await stores_of(store, stack) for _ in range(runs)]
        profiler = cProfile.Profile(time.process_time)
        profiler.enable()
        for stores in places:
            await solved(plans, **stores)
        profiler.disable()
    print(f"{runs} runs of {tree}, {store}: {runs * frames_of(plans)} frames, the event loop's thread alone")
    for key in ("tottime", "cumulative"):
        pstats.Stats(profiler).strip_dirs().sort_stats(key).print_stats(lines)


# --- memory and sizes ---------------------------------------------------------------------------------------


async def measure(store: str, tree: str, frames: int) -> dict[str, float]:
    """Return the peak memory, the database and the last state, all in bytes, of one run in this process."""
    async with AsyncExitStack() as stack:
        await solved(grouped(5, 2), **(await stores_of(store, stack)))
        warm, started = _peak(), time.process_time()
        stores = await stores_of(store, stack)
        await solved(TREES[tree](frames), "x" * (ANSWER - 9), **stores)
        found = {"peak": _peak(), "warm": warm, "cpu_ms": (time.process_time() - started) * 1000}
        saver = stores["checkpointer"]
        snapshot = await make_graph(saver).aget_state({"configurable": {"thread_id": "run"}})
        found["state"] = len(serializer().dumps_typed(snapshot.values)[1])
        return found | ({"database": await _database(saver)} if store == "sqlite" else {})


async def _database(saver: Any) -> int:
    await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    async with saver.conn.execute("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()") as rows:
        return (await rows.fetchone())[0]


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _in_fresh_process(store: str, tree: str, frames: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", store, tree, str(frames)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"store": store, "tree": tree, "frames": frames, **found}


def memory() -> list[dict[str, Any]]:
    """Return a row for each store and tree of 1,000 frames."""
    return [_in_fresh_process(store, tree, SIZES[-1]) for store in STORES for tree in TREES]


def sizes() -> list[dict[str, Any]]:
    """Return a row for each tree and number of frames, with checkpoints in SQLite."""
    return [_in_fresh_process("sqlite", tree, frames) for tree in TREES for frames in SIZES]


def growth(rows: Sequence[dict[str, Any]], tree: str, name: str) -> float:
    """Return a figure per frame at the most frames over that at the fewest: 1 where it is linear."""
    per_frame = [row[name] / row["frames"] for row in rows if row["tree"] == tree]
    return per_frame[-1] / per_frame[0]


# --- report -------------------------------------------------------------------------------------------------


def _said(figure: float, aim: float) -> str:
    return f"aim <= {aim:g}: {'OK' if figure <= aim else 'MISSED'}"


def _print_cpu(rows: Sequence[dict[str, Any]]) -> None:
    print("CPU milliseconds a frame, 41 frames, everything answers at once\n")
    print(f"{'store':8} {'tree':8} {'components':26} {'median':>7} {'least':>7} {'most':>7}")
    for row in rows:
        figures = f"{row['ms']:7.2f} {row['least']:7.2f} {row['most']:7.2f}  {_said(row['ms'], row['aim'])}"
        print(f"{row['store']:8} {row['tree']:8} {row['components']:26} {figures}")


def _print_memory(rows: Sequence[dict[str, Any]]) -> None:
    print(f"\nPeak memory of the whole process in MB, {SIZES[-1]} frames, answers of {ANSWER} bytes\n")
    print(f"{'store':8} {'tree':8} {'peak':>7} {'growth':>7} {'CPU ms/frame':>13}")
    for row in rows:
        grown, per_frame = (row["peak"] - row["warm"]) / 1e6, row["cpu_ms"] / row["frames"]
        peak = row["peak"] / 1e6
        print(f"{row['store']:8} {row['tree']:8} {peak:7.1f} {grown:7.1f} {per_frame:13.2f}  {_said(peak, AIM_MEMORY)}")


def _print_sizes(rows: Sequence[dict[str, Any]]) -> None:
    print(f"\nBytes in SQLite and of the last state, answers of {ANSWER} bytes\n")
    print(f"{'tree':8} {'frames':>6} {'MB':>7} {'KB/frame':>9} {'state KB':>9} {'KB/frame':>9} {'CPU ms/frame':>13}")
    for row in rows:
        frames, database, state = row["frames"], row["database"] / 1e3, row["state"] / 1e3
        stored = f"{database / 1e3:7.2f} {database / frames:9.2f} {state:9.1f} {state / frames:9.2f}"
        print(f"{row['tree']:8} {frames:6} {stored} {row['cpu_ms'] / frames:13.2f}")
    for tree in TREES:
        for name in ("database", "state"):
            grown = growth(rows, tree, name)
            said = _said(grown, AIM_GROWTH)
            print(f"{tree}: {name} per frame at {SIZES[-1]} frames over {SIZES[0]}: {grown:.2f}  {said}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=["cpu", "memory", "sizes"], help="one of the parts")
    parser.add_argument("--repetitions", type=int, default=9, help="runs for each row of the CPU table")
    parser.add_argument("--profile", nargs="?", const="memory", choices=STORES, help="profile instead, with this store")
    parser.add_argument("--tree", choices=list(SMALL), default="8 x 4", help="the tree to profile")
    parser.add_argument("--lines", type=int, default=40, help="functions that a profile lists")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        store, tree, frames = options.measure
        print(json.dumps(asyncio.run(measure(store, tree, int(frames)))))
    elif options.profile:
        asyncio.run(profile(options.profile, options.tree, options.repetitions, options.lines))
    else:
        _report(options)


def _report(options: Any) -> None:
    parts: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
        "cpu": (lambda: asyncio.run(cpu(options.repetitions)), _print_cpu),
        "memory": (memory, _print_memory),
        "sizes": (sizes, _print_sizes),
    }
    chosen = {name: part for name, part in parts.items() if options.only in (None, name)}
    if options.json:
        print(json.dumps({name: take() for name, (take, _) in chosen.items()}, indent=2))
        return
    for take, show in chosen.values():
        show(take())


if __name__ == "__main__":
    main()
