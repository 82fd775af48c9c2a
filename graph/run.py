"""A run: the graph driven from a task to its result, its events on the way."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from frames.frame import checked_task
from frames.state import Status
from graph.bound import bound_of
from graph.branches import with_branches
from graph.build import Solver
from graph.result import SolveResult, from_state
from nodes.context import Context

SPARE_STEPS = 10
"""Steps above the bound before LangGraph's own brake: the machine ends by its limits, not by this."""


async def run(
    graph: Solver, context: Context, task: str, run_id: str, control: RunControl | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Solve ``task`` and yield the run's events; the last is ``end``, with the result's document.

    Args:
        graph: compiled with a checkpointer.
        context: the settings and components.
        task: what to solve.
        run_id: the run's name, which is its LangGraph thread.
        control: asked to drain, the run ends after the step under way, with status ``cancelled``.

    Raises:
        UsageError: the task is blank.
    """
    unfinished: Status = "interrupted"
    async with _ready(context) as ready:
        try:
            stream: Any = graph.astream(
                _input(task),
                _config(context, run_id),
                context=ready,
                stream_mode="custom",
                subgraphs=True,  # a fork's branches
                durability="sync",
                control=control,
            )
            async for _, event in stream:
                yield event
        except GraphDrained:
            unfinished = "cancelled"
    result = await result_of(graph, context, run_id, unfinished)
    yield {"event": "end", "result": result.to_dict()}


async def finish(graph: Solver, context: Context, task: str, run_id: str) -> SolveResult:
    """Solve ``task`` and return its result: ``run`` where nobody watches, which spares the streaming.

    Raises:
        UsageError: the task is blank.
    """
    async with _ready(context) as ready:
        await graph.ainvoke(_input(task), _config(context, run_id), context=ready, durability="sync")
    return await result_of(graph, context, run_id)


async def result_of(graph: Solver, context: Context, run_id: str, unfinished: Status = "interrupted") -> SolveResult:
    """Return the result of a run as its last checkpoint has it."""
    snapshot = await graph.aget_state({"configurable": {"thread_id": run_id}})
    bound = await asyncio.to_thread(bound_of, context)
    values = await with_branches(graph, run_id, snapshot.values)
    return from_state(values, run_id, bound, unfinished, snapshot.created_at)


@asynccontextmanager
async def _ready(context: Context) -> AsyncGenerator[Context]:
    """Give a run resources and counts of its own, and close what it opened.

    Raises:
        UsageError: a tool, document folder or file that the settings name is not there.
    """
    ready = context.for_run()
    try:
        await ready.resources.open()
        yield ready
    finally:
        await ready.resources.close()


def _input(task: str) -> Any:
    return {"task": checked_task(task)}


def _config(context: Context, run_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": run_id},
        "recursion_limit": bound_of(context)["steps"] + SPARE_STEPS,
        "run_name": f"cactus {run_id}",
        "metadata": {"profile": context.profile},
    }
