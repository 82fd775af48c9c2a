"""Assembly: the nodes and routes as one compiled LangGraph graph."""

from collections.abc import Awaitable, Callable
from typing import Any

from langgraph._internal._runnable import RunnableCallable
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from frames.state import Input, Output, State
from graph.app import App
from graph.replaying import worked_through
from graph.routes import AFTER, route
from graph.tracing import TRACED, described
from nodes.act import act
from nodes.aggregate import aggregate
from nodes.approve import approve
from nodes.atomize import atomize
from nodes.context import Context
from nodes.decompose import decompose
from nodes.fork import BRANCH, forking
from nodes.investigate import investigate
from nodes.retry import retry
from nodes.solve import solve
from nodes.step import NodeFunction, Update
from nodes.verify import verify

Solver = CompiledStateGraph[State, Context, Input, Output]

_NODES: dict[str, NodeFunction] = {
    "atomize": atomize,
    "investigate": investigate,
    "decompose": decompose,
    "approve": approve,
    "solve": solve,
    "retry": retry,
    "aggregate": aggregate,
    "verify": verify,
    "act": act,
}


_ROUTE: Any = RunnableCallable(None, route, name="route", trace=False)  # a run of its own a step would be noise


class _Branches:
    """The machine as a subgraph, which the fork runs for each subtask; compiled when first used, as it holds a fork."""

    def __init__(self, default: Context) -> None:
        self._default = default
        self._graph: Any = None

    async def run(self, start: dict[str, Any], config: dict[str, Any], context: Context) -> dict[str, Any]:
        """Run the machine on a branch and return its last state."""
        if context.journal and context.journal.replays:
            return await worked_through({**_NODES, "fork": forking(self.run)}, start, context)
        if self._graph is None:
            builder = StateGraph(State, context_schema=type(self._default))
            _add_nodes(builder, self, self._default)
            builder.add_conditional_edges(START, _ROUTE, list(_NODES))
            self._graph = builder.compile(name="branch")
        return await self._graph.ainvoke(start, config, context=context, output_keys=BRANCH)


def make_graph(
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    context: Context | None = None,
    store: BaseStore | None = None,
    name: str = "cactus",
) -> Solver:
    """Return the compiled graph.

    Args:
        checkpointer: where its steps are kept; LangGraph's server brings its own.
        context: the settings of runs that bring none; its class says which there are, and what their defaults are.
        store: where artifacts are kept; LangGraph's server brings its own.
        name: what drawings and traces call it.
    """
    default = context or Context.checked()
    builder: Any = StateGraph(State, context_schema=type(default), input_schema=Input, output_schema=Output)
    _add_nodes(builder, _Branches(default), default)
    builder.add_edge(START, "atomize")
    compiled = builder.compile(checkpointer=checkpointer, store=store, name=name)
    compiled.__class__ = App
    return compiled


def _add_nodes(builder: Any, branches: _Branches, default: Context) -> None:
    for name, function in {**_NODES, "fork": forking(branches.run)}.items():
        builder.add_node(name, _with_context(function, default), metadata={"role": name}, trace_policy=TRACED)
        builder.add_conditional_edges(name, _ROUTE, AFTER[name])


def _with_context(function: NodeFunction, default: Context) -> Callable[..., Awaitable[Update]]:
    async def run(state: State, runtime: Runtime[Context]) -> Update:
        if runtime.context is None:  # type: ignore[reportUnnecessaryComparison]  # a run may bring none
            runtime = runtime.override(context=default)
        return await function(state, described(function.__name__, state, runtime))

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    return run
