"""Runs in a process of its own: ``python -m tests.worker`` reads jobs ``WHERE RUN_ID MODE`` and prints outcomes.

MODE is ``solve``, ``slow`` (to be killed), ``stop`` (interrupted after the first verdict) or ``resume``.
"""

import asyncio
import json
import sys
from typing import Any

from frames.errors import UsageError
from graph import RecursiveTaskSolver, make_graph
from graph.store import open_store

PARTS = 14
TASK = "the task"


async def split(task: str, depth: int) -> list[str]:
    return [f"{task}.{part}" for part in range(PARTS)]


def solver(saver: Any, nap: float = 0) -> RecursiveTaskSolver:
    async def reply(prompt: str) -> str:
        await asyncio.sleep(nap)
        return f"re: {prompt}"

    return RecursiveTaskSolver(solver=reply, decomposer=split, max_depth=1, checkpointer=saver)


async def state_of(saver: Any, run_id: str) -> dict[str, Any]:
    snapshot = await make_graph(saver).aget_state({"configurable": {"thread_id": run_id}})
    return dict(snapshot.values)


async def go_on(saver: Any, run_id: str, given: Any = None, **options: Any) -> dict[str, Any]:
    """Continue a run with LangGraph's own means, or start it where ``given`` is its input."""
    config: Any = {"configurable": {"thread_id": run_id}}
    await make_graph(saver).ainvoke(given, config, context=solver(saver).context, durability="sync", **options)
    return await state_of(saver, run_id)


async def work(where: str, run_id: str, mode: str) -> dict[str, Any]:
    async with open_store(where) as store:
        if mode == "resume":
            return await go_on(store.saver, run_id)
        await store.add(run_id, TASK, {}, {})
        if mode == "stop":
            return await go_on(store.saver, run_id, {"task": TASK}, interrupt_after=["verify"])
        result = await solver(store.saver, nap=0.05 if mode == "slow" else 0).asolve(TASK, run_id=run_id)
        await store.set_status(run_id, result.status)
        return result.to_dict()


def outcome(job: str) -> Any:
    try:
        return asyncio.run(work(*job.split()))
    except UsageError as error:
        return type(error).__name__


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(outcome(line)), flush=True)
