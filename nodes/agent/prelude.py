"""What the code of an agent finds in a new session: how it launches, finishes, and uses tools."""

import keyword
import re
from collections.abc import Collection, Sequence

from langchain_core.tools import BaseTool

from nodes.agent.block import FINISH, LAUNCH

LAUNCHED, USED, ENDED = "_launch", "_tool", "_finish"
"""The names by which the session calls the host."""

_START = f'''
import asyncio
import json


class Failure:
    """No answer: the reason (refused, budget, failed), it in words, and what there is of a result."""

    def __init__(self, reason, message, partial=None):
        self.reason, self.message, self.partial = reason, message, partial

    def __str__(self):
        return "Failure: " + self.reason + ": " + self.message

    def __repr__(self):
        return "<" + str(self) + ">"


async def {LAUNCH}(goal, context=None, returns=None, kind=None):
    given = await {LAUNCHED}(goal, context, returns, kind)
    if "answer" in given:
        return given["answer"]
    return Failure(given["reason"], given["message"], given["partial"])


def {FINISH}(value):
    {ENDED}(value)
'''

_TOOL = """

async def {name}(*args, **kwargs):
    return await {used}({given!r}, args, kwargs)
"""

_RESERVED = {LAUNCH, FINISH, "Failure", "budget", "context", "asyncio", "json", LAUNCHED, USED, ENDED}


def prelude(tools: Sequence[BaseTool]) -> str:
    """Return the code that a session begins with; each of ``tools`` is an asynchronous function in it."""
    named = code_names([tool.name for tool in tools])
    return _START + "".join(_TOOL.format(name=name, used=USED, given=given) for given, name in named.items())


def code_names(names: Collection[str]) -> dict[str, str]:
    """Return the name that each tool has in code: its own, where that is a name of Python's and not taken."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name)
        if not plain.isidentifier() or keyword.iskeyword(plain) or plain in _RESERVED:
            plain = f"tool_{plain}"
        while plain in found.values():
            plain += "_"
        found[name] = plain
    return found
