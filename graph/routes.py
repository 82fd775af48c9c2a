"""Routes: which node works next. The top frame's phase says it; each node has the few that can follow it."""

from typing import Annotated, Literal, TypedDict

from langgraph.graph import END

from frames.channels import stack_channel
from frames.frame import Frame
from frames.state import Status

Next = Literal[
    "atomize",
    "investigate",
    "decompose",
    "approve",
    "fork",
    "solve",
    "verify",
    "retry",
    "aggregate",
    "act",
    "__end__",
]

AFTER: dict[str, list[str]] = {
    "atomize": ["solve", "investigate", "decompose", "act", END],
    "investigate": ["atomize", "decompose", "solve", END],
    "decompose": ["atomize", "approve", "fork", "solve", "aggregate", END],
    "approve": ["atomize", "fork", "decompose", "solve", "aggregate", "approve", END],
    "fork": ["aggregate", "atomize", "act", END],
    "solve": ["verify", "retry", "solve", "atomize", "aggregate", END],
    "retry": ["solve", "aggregate", "act"],
    "aggregate": ["verify", "retry", "atomize", "aggregate", END],
    "verify": ["atomize", "aggregate", "retry", "solve", "act", END],
    "act": ["act", "fork", "verify", END],
}
"""The nodes that can follow each node: what the drawing of the graph shows."""


class Routed(TypedDict):
    """The part of the state that the route depends on: LangGraph reads no more of it after each node."""

    stack: Annotated[list[Frame], stack_channel()]
    status: Status | None


async def route(state: Routed) -> Next:  # async: LangGraph would call a plain function in a thread
    """Return the node that works on the top frame; the end where the run has a status."""
    if state.get("status") is not None or not state["stack"]:  # a branch begins without
        return "__end__"
    return state["stack"][-1]["phase"]
