"""A run: the graph driven from a task to its result, its events on the way."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from langsmith.run_helpers import tracing_context  # pyright: ignore[reportUnknownVariableType]

from frames.errors import UsageError
from frames.frame import checked_task
from frames.state import Output, Status
from frames.text import clean
from graph.bound import bound_of
from graph.branches import with_branches
from graph.build import Solver, make_graph
from graph.result import SolveResult, from_state
from graph.tracer import tracer, tracing
from nodes.change import Change
from nodes.component import ModelComponent
from nodes.context import Context
from nodes.event_log import EventLog
from nodes.journal import Journal
from nodes.models.resolve import name_of

SPARE_STEPS = 10
"""Steps above the bound before LangGraph's own brake: the machine ends by its limits, not by this."""


async def run(
    graph: Solver,
    context: Context,
    task: str,
    run_id: str,
    control: RunControl | None = None,
    *,
    journal: Journal | None = None,
    change: Change | None = None,
    spent: float = 0,
    goes_on: bool = False,
    decisions: Mapping[str, Any] | None = None,
    log: EventLog | None = None,
) -> AsyncIterator[dict[str, Any]]:
    """Work on a run and yield its events: ``run`` first, ``end`` last, with the result's document.

    Args:
        graph: compiled with a checkpointer.
        context: the settings and components.
        task: what to solve, from its beginning.
        run_id: the run's name, which is its LangGraph thread.
        control: asked to drain, the run ends after the step under way, with status ``cancelled``.
        journal: what the run has been answered before; it takes what it is answered now.
        change: what a fork of a run changes.
        spent: seconds that the run has taken before.
        goes_on: whether to go on where the last checkpoint left the run, instead of from the beginning.
        decisions: a person's replies to what the run waits for, by the interrupt's id.
        log: the events that the run has told before; it takes what it tells now.

    Raises:
        UsageError: the task is blank.
    """
    unfinished: Status = "interrupted"
    journal = journal or Journal()
    log = log or EventLog(clock=context.now)
    async with _ready(context, journal, change, spent, log) as ready:
        if begun := log.tell(f"session {log.sessions + 1}", _begun(context, task, run_id, log.sessions + 1), {}):
            yield begun
        try:
            stream: Any = graph.astream(
                Command(resume=dict(decisions)) if decisions else None if goes_on else {"task": checked_task(task)},
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
    yield await ended(await result_of(graph, context, run_id, unfinished, journal), log)


async def ended(result: SolveResult, log: EventLog) -> dict[str, Any]:
    """Return the event that ends a session, kept in the run's log."""
    end = {"event": "end", "result": result.to_dict()}
    told = log.tell(f"session {log.sessions}", end, {})
    await log.flush()
    return told or end


async def finish(graph: Solver, context: Context, task: str, run_id: str) -> SolveResult:
    """Solve ``task`` and return its result: ``run`` where nobody watches, which spares the streaming.

    Raises:
        UsageError: the task is blank.
    """
    journal = Journal()
    async with _ready(context, journal) as ready:
        await graph.ainvoke({"task": checked_task(task)}, _config(context, run_id), context=ready, durability="sync")
    return await result_of(graph, context, run_id)


async def replayed(
    context: Context, task: str, run_id: str, journal: Journal, change: Change | None, log: EventLog
) -> SolveResult:
    """Return the result of a run, worked through from its journal alone; nothing of it is kept but in ``log``."""
    keys = [*Output.__annotations__, "notes"]
    async with _ready(context, journal, change, log=log) as ready:
        graph = make_graph(store=InMemoryStore())
        with tracing_context(enabled=False):  # a replay reaches no network
            config = _config(context, run_id)
            values = await graph.ainvoke({"task": checked_task(task)}, config, context=ready, output_keys=keys)
    return from_state(values, run_id, None, journal=journal)


async def result_of(
    graph: Solver, context: Context, run_id: str, unfinished: Status = "interrupted", journal: Journal | None = None
) -> SolveResult:
    """Return the result of a run as its last checkpoint has it, with the account of its journal."""
    snapshot = await graph.aget_state({"configurable": {"thread_id": run_id}})
    bound = await asyncio.to_thread(bound_of, context)
    await asyncio.to_thread(_look_up_prices, context, journal)
    values = await with_branches(graph, run_id, snapshot.values)
    pending: list[dict[str, Any]] = [
        {"id": each.id, **each.value} for each in snapshot.interrupts if isinstance(each.value, dict)
    ]
    result = from_state(values, run_id, bound, unfinished, snapshot.created_at, journal, context.cost)
    return replace(result, pending=pending) if result.status == "interrupted" else result


def _begun(context: Context, task: str, run_id: str, session: int) -> dict[str, Any]:
    """Return the event that begins a session."""
    settings = context.model_dump(mode="json", exclude_none=True, exclude={"mcp_servers"})  # it may hold secrets
    return {
        "event": "run",
        "run_id": run_id,
        "task": clean(task),
        "session": session,
        "settings": settings,
        "bound": dict(bound_of(context)),
    }


def asked_models(context: Context) -> list[Any]:
    """Return every model that a run may ask: those that components have of their own, and those of the roles."""
    parts = context.components
    components = (parts.atomizer, parts.decomposer, *parts.executors.values(), parts.aggregator, parts.verifier)
    components = (*components, parts.investigator)
    built_in = [component for component in components if isinstance(component, ModelComponent)]
    own: list[Any] = [getattr(component, "model", None) for component in components]
    named = context.named_models() if any(getattr(each, "model", None) is None for each in built_in) else []
    return [*(model for model in own if model is not None), *named]


def _look_up_prices(context: Context, journal: Journal | None) -> None:
    """Look the models' prices up, which may import a package, so that accounts find them at once."""
    for model in {call["model"] for call in journal.calls()} if journal else ():
        context.price_list.of(model)


def _know_prices(context: Context) -> None:
    with suppress(UsageError):  # of a run that turns out to ask no model
        for model in asked_models(context):
            context.price_list.of(name_of(model))


@asynccontextmanager
async def _ready(
    context: Context, journal: Journal, change: Change | None = None, spent: float = 0, log: EventLog | None = None
) -> AsyncGenerator[Context]:
    """Give a run resources and counts of its own, and close what it opened.

    Raises:
        UsageError: a tool, document folder or file that the settings name is not there.
    """
    ready = context.for_run(journal, change, spent, log)
    try:
        if not journal.replays:
            if ready.max_usd is not None:
                await asyncio.to_thread(ready.check_money, asked_models(ready))
            if tracing():  # costs are sent with each call
                await asyncio.to_thread(_know_prices, context)
            await ready.resources.open()
        yield ready
    finally:
        await ready.resources.close()


def _config(context: Context, run_id: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": run_id},
        "recursion_limit": bound_of(context)["steps"] + SPARE_STEPS,
        "run_name": f"cactus {run_id}",
        "tags": [context.profile],
        "metadata": {"profile": context.profile},
        "callbacks": [*tracers] if (tracers := tracer(context.cost)) else None,
    }
