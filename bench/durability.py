"""What the journal and the checkpoints cost: the same run in memory and in SQLite, and its replay.

    python bench/durability.py [--frames 120] [--replay-frames 500] [--parallel 8]

Prints, at no latency and at 50 ms a call, the wall time of the kept run over that of the run in memory (the median of
three pairs, each pair side by side), and the time of a replay over that of its run at 50 ms.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import yaml
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from graph.build import make_graph
from graph.run import finish
from graph.runs import Runs
from graph.store import open_store
from nodes.context import Context


def settings(folder: Path, frames: int, latency: float, parallel: int) -> Context:
    """Return the settings of a run of about ``frames`` frames: a root, and groups of nine below it."""
    groups = max(1, frames // 10)
    plan = [{"id": str(n), "task": f"group {n}", "kind": "think"} for n in range(groups)]
    parts = [{"id": str(n), "task": f"{{task}} part {n}", "kind": "think"} for n in range(9)]
    rules = [
        {"role": "atomize", "depth": 2, "json": {"atomic": True}},
        {"role": "atomize", "json": {"atomic": False}},
        {"role": "decompose", "depth": 0, "json": {"subtasks": plan}},
        *(
            {
                "role": "decompose",
                "frame": rf"0\.{group}",
                "json": {"subtasks": [{**part, "task": f"group {group} part {part['id']}"} for part in parts]},
            }
            for group in range(groups)
        ),
        {"role": "solve", "reply": "answer to {task} " + "word " * 200},
    ]
    path = folder / f"script-{latency}.yaml"
    path.write_text(yaml.safe_dump({"latency": latency, "rules": rules, "default": "yes"}), encoding="utf-8")
    return Context.checked(
        profile="roma", model=f"scripted:{path}", max_subtasks=groups + 9, max_frames=10 * frames, parallel=parallel
    )


async def in_memory(context: Context) -> float:
    """Return the seconds of a run that nothing is kept of."""
    began = time.perf_counter()
    await finish(make_graph(InMemorySaver(), store=InMemoryStore()), context, "the task", "run")
    return time.perf_counter() - began


async def kept(context: Context, db: Path) -> tuple[float, int, float]:
    """Return the seconds of a run in SQLite, its frames, and the seconds of its replay."""
    async with open_store(db) as store:
        runs = Runs(store)
        began = time.perf_counter()
        result = await runs.outcome(runs.start(context, "the task", "run"))
        took = time.perf_counter() - began
        began = time.perf_counter()
        await runs.replay(Context.checked(**context.model_dump()), "run")
        return took, result.frames, time.perf_counter() - began


async def main(frames: int, replay_frames: int, parallel: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for latency in (0.0, 0.05):
            ratios = []
            for turn in range(3):
                context = settings(folder, frames, latency, parallel)
                memory = await in_memory(context)
                took, made, _ = await kept(context, folder / f"{latency}-{turn}.db")
                ratios.append(took / memory)
                print(f"latency {latency} s, {made} frames: memory {memory:.2f} s, kept {took:.2f} s", flush=True)
            print(f"latency {latency} s: kept / memory {statistics.median(ratios):.2f}")
        took, made, again = await kept(settings(folder, replay_frames, 0.05, parallel), folder / "replay.db")
        size = sum(file.stat().st_size for file in folder.glob("replay.db*")) / 1e6
        print(f"{made} frames at 0.05 s: run {took:.2f} s, replay {again:.2f} s, {size:.1f} MB")
        print(f"replay / run {again / took:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--replay-frames", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=8)
    given = parser.parse_args()
    asyncio.run(main(given.frames, given.replay_frames, given.parallel))
