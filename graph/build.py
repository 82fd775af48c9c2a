"""Assembly: the nodes and routes as one compiled LangGraph graph."""

from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from frames.state import Input, Output, State
from graph.routes import AFTER, route
from graph.tracing import describe_run
from nodes.aggregate import aggregate
from nodes.atomize import atomize
from nodes.context import Context
from nodes.decompose import decompose
from nodes.retry import retry
from nodes.solve import solve
from nodes.step import NodeFunction, Update
from nodes.verify import verify

Solver = CompiledStateGraph[State, Context, Input, Output]

_NODES: dict[str, NodeFunction] = {
    "atomize": atomize,
    "decompose": decompose,
    "solve": solve,
    "retry": retry,
    "aggregate": aggregate,
    "verify": verify,
}


def make_graph(checkpointer: BaseCheckpointSaver[Any] | None = None, context: Context | None = None) -> Solver:
    """Return the compiled graph.

    Args:
        checkpointer: where its steps are kept; LangGraph's server brings its own.
        context: the settings of runs that bring none.
    """
    builder: Any = StateGraph(State, context_schema=Context, input_schema=Input, output_schema=Output)
    for name, function in _NODES.items():
        builder.add_node(name, _with_context(function, context or Context.checked()), metadata={"role": name})
        builder.add_conditional_edges(name, route, AFTER[name])
    builder.add_edge(START, "atomize")
    return builder.compile(checkpointer=checkpointer, name="cactus")


def _with_context(function: NodeFunction, default: Context) -> Callable[..., Awaitable[Update]]:
    async def run(state: State, runtime: Runtime[Context]) -> Update:
        if runtime.context is None:  # type: ignore[reportUnnecessaryComparison]  # a run may bring none
            runtime = runtime.override(context=default)
        describe_run(function.__name__, state, runtime)
        return await function(state, runtime)

    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    return run
