"""Search: look things up with tools, then answer with sources (ReAct)."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool

from frames.errors import CallError, ToolsRefusedError
from nodes.asking import Asking, within_run
from nodes.component import Ask, Stepwise, ask_directly
from nodes.executors.brief import KNOWN_SHARE, whole_or_cut
from nodes.executors.reading import readers
from nodes.executors.sources import sources, with_sources
from nodes.executors.think import Think, conclusion
from nodes.models.call import Query
from nodes.prompt import render
from nodes.structured import objects, without_reasoning

if TYPE_CHECKING:
    from nodes.tools.docs import Passage

_ACTION = re.compile(r"^[ \t]*Action:[ \t]*[`\"']?([\w.-]+)[`\"']?.*$", re.MULTILINE)
_INPUT = re.compile(r"^[ \t]*Action Input:[ \t]*", re.MULTILINE)
_FINAL = re.compile(r"^[ \t]*Final Answer:[ \t]*", re.MULTILINE | re.IGNORECASE)

LAST = "This is your last reply: no tool is run any more. Answer now from what you have, and say what is missing."


class Search(Stepwise):
    """Asks a model that may call tools, at most ``max_steps`` times; without tools it is asked to reason.

    Where documents are given, the passages that fit the task best are in the first prompt already, so that a model
    that calls no tool has something to go by; with one step, they are all there is.
    """

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        tools = [*await work.context.resources.tools(), *await readers(work)]
        if not tools:
            return await Think(self.model)(task, ask=work)
        passages = await work.context.resources.passages(work.frame["task"])
        if self.max_steps == 1 and passages:
            prompt = render("roma/read", task=task, passages=passages)
            return with_sources(_answer(await work(prompt, model=self.model)), [p.source for p in passages])
        seen = [passage.source for passage in passages]
        native = await work.tools_for(self.model)
        try:
            return with_sources(await self._loop(work, task, tools, passages, seen, native=native), seen)
        except ToolsRefusedError:  # the model is told of them in words, as any other will be from now on
            return with_sources(await self._loop(work, task, tools, passages, seen, native=False), seen)

    async def _loop(
        self,
        work: Asking,
        task: str,
        tools: Sequence[BaseTool],
        passages: "Sequence[Passage]",
        seen: list[str],
        *,
        native: bool,
    ) -> str:
        """Let the model call tools until it answers; ``seen`` takes the sources that it is shown."""
        prompt = render("roma/search", task=task, passages=passages, tools=tools, native=native, steps=self.max_steps)
        said: list[BaseMessage] = [HumanMessage(prompt)]
        for left in reversed(range(self.max_steps)):
            last = [HumanMessage(LAST)] if not left and len(said) > 1 else []
            reply = await work.reply(Query([*said, *last], tools=tools if native else ()), model=self.model)
            calls = _calls(reply.message, reply.text)
            if calls and not left:
                again = calls[0]["name"]
                raise CallError(f"no answer within max_steps = {self.max_steps}: the last reply calls {again} again")
            if not calls:
                return _answer(reply.text)
            said.append(reply.message if native and reply.message else AIMessage(reply.text))
            for call in calls:
                text = await work.use_tool(_named(tools, call["name"]), call["name"], call["args"])
                seen += sources(text)
                text = whole_or_cut(text, int(work.context.window * KNOWN_SHARE * 4 / self.max_steps))
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
    if not action or ((final := _FINAL.search(text)) and final.start() < action.start()):
        return []
    after = text[action.end() :]
    given = _INPUT.search(after)
    return [{"name": action[1], "args": _arguments(after[given.end() :] if given else ""), "id": None}]


def _arguments(text: str) -> Any:
    found = next(objects(text), None)
    return text.strip().partition("\n")[0].strip().strip("\"'`") if found is None else found


def _named(tools: Sequence[BaseTool], name: str) -> BaseTool | None:
    return next((tool for tool in tools if tool.name == name), None)


def _answer(text: str) -> str:
    text = without_reasoning(text) or text.strip()
    final = _FINAL.search(text)
    return conclusion(text[final.end() :] if final else text)
