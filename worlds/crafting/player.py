"""The scripted player in its world, in this process and without a model: for tests, and to see what a task takes."""

import ast
import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from worlds.crafting.expert import expert_turn
from worlds.crafting.game import Game
from worlds.crafting.toolbox import start, success, tools

_CHARS_A_TOKEN = 4

Expert = Callable[[str, list[tuple[str, str]], bool], str]
Cell = Callable[[str, dict[str, Any]], Awaitable[str]]
"""Runs an agent's blocks of code with the names they may use, and keeps what they set; returns what was printed."""


@dataclass(slots=True)
class Played:
    """An agent's part: its goal, what it saw, how it ended, and its subagents' parts.

    ``read`` counts the tokens of all requests, of which each holds the whole history; ``reason`` is ``finished``,
    ``steps`` or ``window``.
    """

    goal: str
    depth: int
    history: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    children: list["Played"] = field(default_factory=list["Played"])
    message: str | None = None
    success: bool | None = None
    reason: str = "finished"
    read: int = 0

    def all(self) -> Iterator["Played"]:
        """Give this part and all below it."""
        yield self
        for child in self.children:
            yield from child.all()


async def play(
    game: Game,
    goal: str,
    *,
    max_depth: int = 0,
    max_steps: int = 1000,
    window: int | None = None,
    expert: Expert = expert_turn,
    session: Callable[[], Cell] | None = None,
) -> Played:
    """Let the player work on ``goal`` and return what it did.

    Subagents may be ``max_depth`` deep (0: it works alone), every agent may take ``max_steps`` turns, and it ends where
    its goal and history are longer than ``window`` tokens, of four characters each. ``session`` gives each agent what
    runs its code, if not this interpreter.
    """

    async def agent(goal: str, depth: int) -> Played:
        played = Played(goal, depth)
        began, run = start(game, goal), session() if session else cell

        async def launch_subagent(goal: str) -> str:
            child = await agent(goal, depth + 1)
            played.children.append(child)
            return child.message or f"The subagent did not finish: {child.reason}."

        def finish(message: str) -> None:
            played.message = message

        names: dict[str, Any] = {**tools(game), "launch_subagent": launch_subagent, "finish": finish}
        while played.message is None:
            size = (len(goal) + sum(len(reply) + len(seen) for reply, seen in played.history)) // _CHARS_A_TOKEN
            if window is not None and size > window:
                played.reason = "window"
                break
            if len(played.history) >= max_steps:
                played.reason = "steps"
                break
            played.read += size
            reply = expert(goal, played.history, depth < max_depth)
            played.history.append((reply, await run(code(reply), names)))
            await asyncio.sleep(0)  # others' turns come in between
        played.success = success(game, goal, began, played.message)
        return played

    return await agent(goal, 0)


def code(reply: str) -> str:
    """Return the block of Python in the player's ``reply``."""
    return reply.split("```python\n", 1)[1].rsplit("\n```", 1)[0]


async def cell(block: str, names: dict[str, Any]) -> str:
    """Run the player's own ``block`` with ``names``, which keep what it sets; return what it printed."""
    printed = list[str]()

    def show(*values: object) -> None:
        printed.append(" ".join(map(str, values)))

    names["print"] = show
    compiled = compile(block, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)  # noqa: S307 - the scripted player's code, no one else's
    if inspect.isawaitable(result):
        await result
    return "\n".join(printed)
