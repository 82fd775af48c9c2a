"""Looking: a model calls tools, step by step, until it replies without calling one (ReAct)."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool

from frames.errors import CallError, ToolsRefusedError
from nodes.asking import Asking
from nodes.executors.brief import KNOWN_SHARE, whole_or_cut
from nodes.models.call import Query
from nodes.models.reply import Reply
from nodes.models.resolve import ModelLike
from nodes.structured import objects, without_reasoning

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*[`\"']?([\w.-]+)[`\"']?.*$", re.MULTILINE)
_INPUT = re.compile(r"^[ \t]*Action Input:[ \t]*", re.MULTILINE)
FINAL = re.compile(r"^[ \t]*Final Answer:[ \t]*", re.MULTILINE | re.IGNORECASE)

LAST = "This is your last reply: no tool is run any more. Answer now from what you have, and say what is missing."


async def look(
    work: Asking,
    tools: Sequence[BaseTool],
    prompt: Callable[[bool], str],
    steps: int,
    *,
    model: ModelLike | None = None,
    shown: Callable[[str], None] = lambda _text: None,
    setting: str = "max_steps",
) -> Reply:
    """Return the reply in which the model calls no tool, its last of at most ``steps``.

    ``prompt`` is given whether the model can be given tools, else it names them in words. ``shown`` is told what each
    tool gave, whole. ``setting`` is what limits the steps.

    Raises:
        CallError: the last reply calls a tool again.
    """
    native = await work.tools_for(model)
    try:
        return await _loop(work, tools, (prompt, native), (steps, setting), model, shown)
    except ToolsRefusedError:  # the model is told of them in words, as any other will be from now on
        return await _loop(work, tools, (prompt, False), (steps, setting), model, shown)


async def _loop(
    work: Asking,
    tools: Sequence[BaseTool],
    how: tuple[Callable[[bool], str], bool],
    bounded: tuple[int, str],
    model: ModelLike | None,
    shown: Callable[[str], None],
) -> Reply:
    (prompt, native), (steps, setting) = how, bounded
    said: list[BaseMessage] = [HumanMessage(prompt(native))]
    for left in reversed(range(steps)):
        last = [HumanMessage(LAST)] if not left and len(said) > 1 else []
        reply = await work.reply(Query([*said, *last], tools=tools if native else ()), model=model)
        calls = _calls(reply.message, reply.text)
        if calls and not left:
            again = calls[0]["name"]
            raise CallError(f"no answer within {setting} = {steps}: the last reply calls {again} again")
        if not calls:
            return reply
        said.append(reply.message if native and reply.message else AIMessage(reply.text))
        for call in calls:
            text = await work.use_tool(_named(tools, call["name"]), call["name"], call["args"])
            shown(text)
            text = whole_or_cut(text, int(work.context.window * KNOWN_SHARE * 4 / steps))
            said.append(ToolMessage(text, tool_call_id=call["id"]) if call["id"] else _observed(text, left))
    raise CallError("no step was made")  # not reached: the last step answers


def _observed(text: str, left: int) -> HumanMessage:
    return HumanMessage(f"Observation: {text}\n\n({left} replies left.)")


def _calls(message: AIMessage | None, text: str) -> list[dict[str, Any]]:
    """Return the tools that a reply calls, by the model's own means or in words: name, arguments and id."""
    if message and (message.tool_calls or message.invalid_tool_calls):
        return [
            {"name": call["name"], "args": call["args"], "id": call["id"]}
            for call in (*message.tool_calls, *message.invalid_tool_calls)
        ]
    text = without_reasoning(text)
    action = _ACTION.search(text)
    if not action or ((final := FINAL.search(text)) and final.start() < action.start()):
        return []
    after = text[action.end() :]
    given = _INPUT.search(after)
    return [{"name": action[1], "args": _arguments(after[given.end() :] if given else ""), "id": None}]


def _arguments(text: str) -> Any:
    found = next(objects(text), None)
    return text.strip().partition("\n")[0].strip().strip("\"'`") if found is None else found


def _named(tools: Sequence[BaseTool], name: str) -> BaseTool | None:
    return next((tool for tool in tools if tool.name == name), None)
