"""A branch worked through without LangGraph: a replay asks nobody, saves nothing, and needs no subgraph for it.

It is the same machine: the nodes, the routes and the operations on the state are those of ``graph.build``.
"""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.runtime import get_runtime

from frames.channels import append
from frames.stack import fold
from frames.state import State
from graph.routes import route
from nodes.context import Context
from nodes.step import NodeFunction, Update

_LISTS = ("traces", "calls", "notes", "gaps")


async def worked_through(nodes: Mapping[str, NodeFunction], start: Update, context: Context) -> dict[str, Any]:
    """Return the last state of a branch that starts with the update ``start``; a node of the graph must be at work."""
    runtime = get_runtime(Context).override(context=context)
    state = _updated({"stack": [], **{name: [] for name in _LISTS}}, start)
    while (name := await route(cast("Any", state))) != "__end__":
        state = _updated(state, await nodes[name](cast("State", state), runtime))
    return state


def _updated(state: dict[str, Any], update: Update) -> dict[str, Any]:
    """Return the state after an update, as the channels of ``frames.state`` make it."""
    grown = {name: append(state[name], [update[name]]) for name in _LISTS if name in update}
    stack = {"stack": fold(state["stack"], [update["stack"]])} if "stack" in update else {}
    return {**state, **update, **grown, **stack}
