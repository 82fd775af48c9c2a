"""The conversation of an agent: what its model is told, and what is left of its budget."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool

from frames.frame import Frame
from frames.instance import Instance, Turn
from frames.text import cut, estimate_tokens
from nodes.agent.prelude import code_names
from nodes.prompt import render
from nodes.step import Step

SHOWN_CONTEXT = 2_000
"""Characters of a handed-over context that a prompt shows."""

_MOST_OUTPUT = 8_000
_NEAR = 0.75
"""The part of an instance's window from which on it is told to finish or to delegate."""


class _Tool(NamedTuple):
    name: str
    args: Mapping[str, Any]
    description: str


def output_chars(agent_tokens: int) -> int:
    """Return the characters of one block's output that are shown: a quarter of the window at most."""
    return min(_MOST_OUTPUT, agent_tokens)


def messages(step: Step, tools: Sequence[BaseTool], turns: Sequence[Turn]) -> list[BaseMessage]:
    """Return what the model is asked: its instructions, its goal, and all turns, what its code gave in one message.

    Each request begins with the whole of the one before it.
    """
    told = [_goal(step.frame)]
    said: list[BaseMessage] = [SystemMessage(_system(step, tools))]
    for turn in turns:
        if turn["by"] == "cell":
            told.append(turn["text"])
            continue
        said += [HumanMessage("\n\n".join(told)), AIMessage(turn["text"])]
        told = []
    return [*said, HumanMessage("\n\n".join(told))] if told else said


def tokens_used(said: Sequence[BaseMessage]) -> int:
    """Return the tokens, by the usual estimate, of a conversation."""
    return sum(estimate_tokens(str(message.text)) for message in said)


async def figures(step: Step, instance: Instance, used: int) -> dict[str, int | None]:
    """Return what is left of the instance's budget, by name; ``used`` are the tokens of its conversation.

    Others spend too, and a run may go on under other limits: what an agent was told once, it was told.
    """
    context, frame = step.context, step.frame

    async def work() -> dict[str, int | None]:
        return {
            "steps": context.agent_steps - instance["steps"],
            "depth": context.max_depth - frame["depth"],
            "children": max(context.max_children - len(frame["plan"]), 0),
            "tokens": max(context.agent_tokens - used, 0),
            "calls": _calls_left(step),
        }

    left: dict[str, int | None] = await step.ask.once("means", {"left": instance["steps"]}, work)
    return left


def budget_line(left: Mapping[str, int | None], agent_tokens: int) -> str:
    """Return the line that says what is left."""
    near = (left["tokens"] or 0) < agent_tokens * (1 - _NEAR)
    return render("agent/budget", **left, near=near)


def _calls_left(step: Step) -> int | None:
    most, shared = step.context.max_calls, step.context.shared
    return None if most is None or shared is None else max(most - shared.calls - shared.failed - shared.in_flight, 0)


def _system(step: Step, tools: Sequence[BaseTool]) -> str:
    names = code_names([tool.name for tool in tools])
    shown = [_Tool(names[tool.name], tool.args, tool.description) for tool in tools]
    may_launch = step.frame["depth"] < step.context.max_depth and step.context.max_children > 0
    return render("agent/system", tools=shown, launches=may_launch)


def _goal(frame: Frame) -> str:
    handed, returns = frame.get("context"), frame.get("returns")
    context, short = None, False
    if handed is not None:
        whole = handed.get("preview") or json.dumps(handed.get("value"), ensure_ascii=False)
        context, short = cut(whole, SHOWN_CONTEXT), "artifact" in handed or len(whole) > SHOWN_CONTEXT
    form = None if returns is None else json.dumps(returns, ensure_ascii=False)
    return render("agent/goal", goal=frame["task"], context=context, cut=short, returns=form)
