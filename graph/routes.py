"""Routes: which node works next. The top frame's phase says it; each node has the few that can follow it."""

from typing import Literal

from langgraph.graph import END

from frames.state import State

Next = Literal["atomize", "decompose", "solve", "verify", "retry", "aggregate", "__end__"]

AFTER: dict[str, list[str]] = {
    "atomize": ["solve", "decompose", END],
    "decompose": ["atomize", "solve", END],
    "solve": ["verify", END],
    "retry": ["solve"],
    "aggregate": ["verify", END],
    "verify": ["atomize", "aggregate", "retry", END],
}
"""The nodes that can follow each node: what the drawing of the graph shows."""


def route(state: State) -> Next:
    """Return the node that works on the top frame; the end where the run has a status."""
    if state["status"] is not None or not state["stack"]:
        return "__end__"
    return state["stack"][-1]["phase"]
