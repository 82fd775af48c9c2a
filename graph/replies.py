"""Replies to the questions of a run that waits for a person: each goes to the question that it is meant for."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from typing_extensions import override

from frames.state import Input, Output, State
from nodes.context import Context

_ID = re.compile("[0-9a-f]{32}")


class Answerable(CompiledStateGraph[State, Context, Input, Output]):
    """The compiled graph, which takes a bare reply as that to the one question that waits, and to no other.

    LangGraph would keep it for whatever question comes next in the same step. While a fork is at work that may be
    another branch's, also after a resume: a plan that nobody has seen would be approved.
    """

    @override
    def astream(self, input: Any, config: Any = None, **options: Any) -> Any:
        """Run the graph as LangGraph does, a bare reply aside."""
        if isinstance(input, Command) and _is_bare(cast("Command[Any]", input)):
            return self._astream_reply(input, config, options)
        return super().astream(input, config, **options)

    async def _astream_reply(self, command: Any, config: Any, options: dict[str, Any]) -> AsyncIterator[Any]:
        waiting = (await self.aget_state(config)).interrupts
        if len(waiting) < 2:  # LangGraph refuses a bare reply to several
            command = replace(command, resume={question.id: command.resume for question in waiting})
        given: Any = super().astream(command, config, **options)
        async with aclosing(given) as stream:
            async for chunk in stream:
                yield chunk


def _is_bare(command: Command[Any]) -> bool:
    """Whether a command replies without the id of a question; one that is empty replies with nothing."""
    reply = command.resume
    if not isinstance(reply, dict):
        return reply is not None or not (command.update or command.goto or command.graph)
    return not all(isinstance(key, str) and _ID.fullmatch(key) for key in cast("dict[Any, Any]", reply))
