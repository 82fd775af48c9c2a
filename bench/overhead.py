"""What the machine costs: CPU a frame beside a minimal LangGraph loop, database bytes and memory a frame.

    python bench/overhead.py            all tables
    python bench/overhead.py --json     the same as JSON
    python bench/overhead.py --only cpu

The loop has as many supersteps as the machine's run, the same checkpointer and the same durability, a state of
two small values, calls the same functions as often, and does nothing else. Both are run in turn; the ratio is the
median of the pairs. Models answer at once. Sizes are taken in a fresh process for each run: memory is its peak
above what imports and one small run need, the database is measured after its write-ahead log was written back.
"""

import argparse
import asyncio
import gc
import inspect
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from graph import RecursiveTaskSolver  # noqa: E402  # so that it runs from anywhere
from graph.store import open_store  # noqa: E402

FAN_OUT, DEPTH = 4, 3
FRAMES = sum(FAN_OUT**level for level in range(DEPTH + 1))
INNER = sum(FAN_OUT**level for level in range(DEPTH))
STEPS = 4 * INNER + 3 * (FRAMES - INNER)
AIM = 1.5
SIZES = (50, 200, 800)
ANSWER = 5_000
CASE_20 = (500, 20_000_000)


# --- the machine, and the loop beside it --------------------------------------------------------------------


async def split(task: str, depth: int) -> list[str]:
    """Return the parts of a task of the balanced tree."""
    return [f"{task}.{part}" for part in range(FAN_OUT)]


async def reply(prompt: str) -> str:
    """Answer at once."""
    return "an answer"


def split_sync(task: str, depth: int) -> list[str]:
    """Return what ``split`` does; a plain function is called in a thread."""
    return [f"{task}.{part}" for part in range(FAN_OUT)]


def reply_sync(prompt: str) -> str:
    """Answer at once; called in a thread."""
    return "an answer"


def chat() -> GenericFakeChatModel:
    """Return LangChain's fake chat model, which answers at once."""
    return GenericFakeChatModel(messages=(AIMessage("an answer") for _ in count()))


async def machine(saver: Any, solver: Any, decomposer: Any) -> None:
    """Solve the balanced tree."""
    with RecursiveTaskSolver(solver=solver, decomposer=decomposer, max_depth=DEPTH, checkpointer=saver) as made:
        result = await made.asolve("0")
    assert result.success
    assert result.frames == FRAMES


class Counter(TypedDict):
    """The loop's state."""

    step: int
    text: str


async def again(state: Counter) -> str:  # async: a plain function would be called in a thread
    """Loop until as many supersteps are done as the machine needs."""
    return "tick" if state["step"] < STEPS else END


async def loop(saver: Any, solver: Any, decomposer: Any) -> None:
    """Run the minimal loop, with as many calls of the same functions."""

    async def tick(state: Counter) -> dict[str, Any]:
        step, text = state["step"], state["text"]
        if step < FRAMES:
            text = await called(solver, "0")
        elif step < FRAMES + INNER:
            await called(decomposer, "0", 0)
        return {"step": step + 1, "text": text}

    builder = StateGraph(Counter)
    builder.add_node("tick", tick)
    builder.add_edge(START, "tick")
    builder.add_conditional_edges("tick", again, ["tick", END])
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "loop"}, "recursion_limit": STEPS + 10}
    result = await graph.ainvoke({"step": 0, "text": ""}, config, durability="sync")
    assert result["step"] == STEPS


async def called(function: Any, *args: Any) -> Any:
    """Return what a component gives, called as plainly as its kind allows."""
    if isinstance(function, GenericFakeChatModel):
        return (await function.ainvoke([HumanMessage(args[0])])).text
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    return await asyncio.to_thread(function, *args)


# --- CPU ----------------------------------------------------------------------------------------------------

Work = Callable[[Any, Any, Any], Awaitable[None]]
KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "async functions": lambda: (reply, split),
    "plain functions (threads)": lambda: (reply_sync, split_sync),
    "LangChain chat model": lambda: (chat(), split),
}


async def _cpu_ms(work: Work, kind: str, store: str) -> float:
    """Return the milliseconds of CPU that ``work`` takes in all threads of this process."""
    async with AsyncExitStack() as stack:
        saver: Any = InMemorySaver()
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            saver = (await stack.enter_async_context(open_store(Path(folder) / "runs.db"))).saver
        components = KINDS[kind]()
        gc.collect()
        before = time.process_time()
        await work(saver, *components)
        return (time.process_time() - before) * 1000


async def _compare(kind: str, store: str, repetitions: int) -> dict[str, float]:
    pairs = []
    for repetition in range(repetitions + 1):
        pair = (await _cpu_ms(machine, kind, store), await _cpu_ms(loop, kind, store))
        pairs += [pair] if repetition else []  # the first warms up
    return {
        "machine_ms": statistics.median(mine for mine, _ in pairs) / FRAMES,
        "loop_ms": statistics.median(other for _, other in pairs) / FRAMES,
        "ratio": statistics.median(mine / other for mine, other in pairs),
    }


async def cpu(repetitions: int) -> list[dict[str, Any]]:
    """Return a row for each store and kind of component."""
    return [
        {"store": store, "components": kind, **await _compare(kind, store, repetitions)}
        for store in ("memory", "sqlite")
        for kind in KINDS
    ]


# --- sizes --------------------------------------------------------------------------------------------------


async def wide(frames: int, path: Path) -> None:
    """Solve a tree of exactly ``frames`` frames, up to 20 parts a task, with answers of 5 KB."""
    numbers, left = count(), frames - 1

    async def parts(task: str, depth: int) -> list[str]:
        nonlocal left
        taken = min(20, left)
        left -= taken
        return [f"part {next(numbers)}" for _ in range(taken)]

    async def long_reply(prompt: str) -> str:
        return f"{next(numbers):08d}".ljust(ANSWER, "x")

    async with open_store(path) as store:
        parts_and_limits: Any = {"decomposer": parts, "max_depth": 5, "atomizer": lambda task, depth: False}
        with RecursiveTaskSolver(solver=long_reply, checkpointer=store.saver, **parts_and_limits) as solver:
            result = await solver.asolve("the task")
        assert result.frames == frames
        await store.saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def flat(frames: int, path: Path) -> None:
    """Solve one task of ``frames - 1`` parts, with answers of 5 KB: the largest stack there is."""

    async def parts(task: str, depth: int) -> list[str]:
        return [f"part {number}" for number in range(frames - 1)]

    async def long_reply(prompt: str) -> str:
        return prompt[-20:].ljust(ANSWER, "x")

    async with open_store(path) as store:
        with RecursiveTaskSolver(solver=long_reply, decomposer=parts, max_depth=1, checkpointer=store.saver) as solver:
            result = await solver.asolve("the task")
        assert result.frames == frames
        await store.saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")


TREES = {"tree": wide, "flat": flat}


async def measure(tree: str, frames: int) -> dict[str, float]:
    """Return database bytes and peak memory of one run in this process."""
    with tempfile.TemporaryDirectory() as folder:
        await TREES[tree](2, Path(folder) / "warm.db")
        before = _peak()
        path = Path(folder) / "runs.db"
        started = time.process_time()
        await TREES[tree](frames, path)
        took = time.process_time() - started
        size = sum(file.stat().st_size for file in Path(folder).glob("runs.db*"))
    return {"bytes": size, "memory": _peak() - before, "cpu_ms": took * 1000}


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _in_fresh_process(tree: str, frames: int) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", tree, str(frames)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def sizes() -> list[dict[str, Any]]:
    """Return a row for each tree and number of frames."""
    rows = []
    for tree in TREES:
        for frames in sorted({*SIZES, CASE_20[0]}):
            found = _in_fresh_process(tree, frames)
            per_frame = {f"{name}_per_frame": value / frames for name, value in found.items()}
            rows.append({"tree": tree, "frames": frames, **found, **per_frame})
    return rows


def growth(rows: list[dict[str, Any]], tree: str, name: str) -> float:
    """Return a figure per frame at 800 frames over that at 200: 1 where it is linear."""
    per_frame = {row["frames"]: row[f"{name}_per_frame"] for row in rows if row["tree"] == tree}
    return per_frame[800] / per_frame[200]


# --- report -------------------------------------------------------------------------------------------------


def _print_cpu(rows: list[dict[str, Any]]) -> None:
    print(f"CPU a frame, {FRAMES} frames in {STEPS} supersteps, zero model latency (aim: ratio <= {AIM})\n")
    print(f"{'store':8} {'components':27} {'machine ms':>10} {'loop ms':>10} {'ratio':>7}")
    for row in rows:
        figures = f"{row['machine_ms']:10.2f} {row['loop_ms']:10.2f} {row['ratio']:7.2f}"
        print(f"{row['store']:8} {row['components']:27} {figures}")


def _print_sizes(rows: list[dict[str, Any]]) -> None:
    print(f"\nSQLite bytes, peak memory and CPU, answers of {ANSWER} bytes\n")
    print(f"{'tree':5} {'frames':>6} {'MB':>7} {'KB/frame':>9} {'memory MB':>10} {'KB/frame':>9} {'CPU ms/frame':>13}")
    for row in rows:
        database = f"{row['bytes'] / 1e6:7.2f} {row['bytes_per_frame'] / 1e3:9.2f}"
        memory = f"{row['memory'] / 1e6:10.2f} {row['memory_per_frame'] / 1e3:9.2f}"
        print(f"{row['tree']:5} {row['frames']:6} {database} {memory} {row['cpu_ms_per_frame']:13.2f}")
    for tree in TREES:
        found = ", ".join(f"{name} {growth(rows, tree, name):.2f}" for name in ("bytes", "memory", "cpu_ms"))
        print(f"{tree}: per frame at 800 frames over 200: {found}")
    frames, most = CASE_20
    worst = max(row["bytes"] for row in rows if row["frames"] == frames)
    print(f"case 20: {frames} frames take {worst / 1e6:.1f} MB at most, of {most / 1e6:.0f} MB allowed")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", choices=["cpu", "sizes"], help="one of the two parts")
    parser.add_argument("--repetitions", type=int, default=7, help="pairs of runs for each row of the CPU table")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        tree, frames = options.measure
        print(json.dumps(asyncio.run(measure(tree, int(frames)))))
        return
    report: dict[str, Any] = {}
    if options.only != "sizes":
        report["cpu"] = asyncio.run(cpu(options.repetitions))
    if options.only != "cpu":
        report["sizes"] = sizes()
    if options.json:
        print(json.dumps(report, indent=2))
        return
    if "cpu" in report:
        _print_cpu(report["cpu"])
    if "sizes" in report:
        _print_sizes(report["sizes"])


if __name__ == "__main__":
    main()
