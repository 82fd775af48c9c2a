"""Subagents side by side: agents over three levels on two worker processes, the time and the memory that they take.

``python bench/subagents.py [WIDTH [INNER]]``: the root launches WIDTH agents at once, each of which launches INNER at
once; all are paused together, for no leaf is answered before all have begun. Prints one JSON line; memory is that of
the process and its workers, at its most, in MB.
"""

import asyncio
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

import psutil

from graph import RecursiveTaskSolver

ROOT = """```python
parts = await asyncio.gather(*[launch_subagent('part %d' % i, context=i) for i in range({width})])
finish(sum(parts))
```"""
PART = """```python
leaves = await asyncio.gather(*[launch_subagent('leaf %d of %d' % (i, context), context=i) for i in range({inner})])
finish(sum(leaves))
```"""
LEAF = "```python\nfinish(context)\n```"


class Model:
    """Writes the code of each level; a leaf's reply waits until all leaves have asked."""

    def __init__(self, width: int, inner: int) -> None:
        self.width, self.inner, self.waiting, self.most = width, inner, 0, 0
        self.all = asyncio.Event()

    async def __call__(self, prompt: str) -> str:
        goal = prompt.partition("Goal:\n")[2]
        if goal.startswith("part"):
            return PART.format(inner=self.inner)
        if not goal.startswith("leaf"):
            return ROOT.format(width=self.width)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == self.width * self.inner:
            self.all.set()
        await self.all.wait()
        return LEAF


class Memory:
    """Watches the memory of this process and all below it, in MB, and counts the workers."""

    def __init__(self) -> None:
        self.most = self.workers = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._done.wait(0.05):
            below = own.children(recursive=True)
            sizes = [_size(process) for process in (own, *below)]
            self.most, self.workers = max(self.most, sum(sizes) >> 20), max(self.workers, len(below))


def _size(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


async def measured(width: int, inner: int, db: str | None) -> dict[str, float | int | str]:
    """Return the figures of one run; ``db`` is where it is kept, ``None`` in memory."""
    model = Model(width, inner)
    solver = RecursiveTaskSolver.agent(
        model, parallel=width * inner + width, max_children=max(width, inner), max_frames=10_000, db=db
    )
    began = time.monotonic()
    with Memory() as memory:
        result = await solver.asolve("add all up")
    return {
        "frames": result.frames,
        "at_once": model.most,
        "workers": memory.workers,
        "seconds": round(time.monotonic() - began, 1),
        "mb": memory.most,
        "output": result.output or result.status,
        "expected": str(width * sum(range(inner))),
        "store": "sqlite" if db else "memory",
    }


def main(width: str = "14", inner: str = "14") -> None:
    """Print the figures, of a run in memory and of one that is kept."""
    with tempfile.TemporaryDirectory() as folder:
        for db in (None, str(Path(folder) / "runs.db")):
            print(json.dumps(asyncio.run(measured(int(width), int(inner), db))))


if __name__ == "__main__":
    main(*sys.argv[1:])
