"""The crafting world under a small window: one agent alone against agents that launch subagents, by a scripted player.

    python bench/crafting.py [--tasks 5] [--window 8000] [--bins easy,medium,hard,extreme]

Prints a row for each bin and way of working: the share of tasks that were solved, and the means of a task's tokens
(in and out), replies, agents, depth and seconds, and the share of launches that were begun side by side. The single
agent has 200 replies, as the paper's has; every other one 25.
"""

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from typing_extensions import override

from graph import RecursiveTaskSolver
from worlds.crafting import BINS, Game, Task, World, expert_turn, generate, goal_text, start, success, tasks, tools

WAYS: dict[str, dict[str, Any]] = {
    "single": {"max_depth": 0, "agent_steps": 200},
    "recursive": {"max_depth": 12, "agent_steps": 25, "max_children": 100},
}

KEPT = 6
"""Crafts near its target that the player keeps for itself: with 1, an agent is launched for every ingredient."""


class Player(BaseChatModel):
    """Replies as the scripted player does, from the conversation alone."""

    @property
    @override
    def _llm_type(self) -> str:
        return "crafting-player"

    @override
    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        system, first, *rest = [str(message.text) for message in messages]
        goal = first.removeprefix("Goal:\n").partition("\n\n")[0]
        history = list(zip(rest[::2], rest[1::2], strict=True))
        reply = expert_turn(goal, history, "launch_subagent" in system, kept=KEPT)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])

    @override
    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return self._generate(messages)


@dataclass(frozen=True)
class Solved:
    """What became of one task; ``launched`` are its launches, ``together`` those that were begun side by side."""

    success: bool
    tokens: int
    replies: int
    agents: int
    depth: int
    launched: int
    together: int
    seconds: float
    reason: str


async def solved(world: World, task: Task, window: int, way: str) -> Solved:
    """Return what becomes of a task under a way of working, with ``window`` tokens for each agent's conversation."""
    game, goal = Game.of(world, task), goal_text(task)
    solver = RecursiveTaskSolver.agent(
        Player(),
        tools=list(tools(game).values()),
        agent_tokens=window,
        max_frames=100_000,
        parallel=64,
        **WAYS[way],
    )
    began, clock = start(game, goal), time.monotonic()
    cells, depth, result = list[int](), 0, dict[str, Any]()
    async for event in solver.astream(goal):
        if event["event"] == "cell" and event["launches"]:
            cells.append(len(event["launches"]))
        if event["event"] == "frame":
            depth = max(depth, event["depth"])
        result = event.get("result", result)
    usage = result["usage"]
    return Solved(
        success=bool(success(game, goal, began, result["output"])),
        tokens=usage["input_tokens"] + usage["output_tokens"],
        replies=usage["calls"],
        agents=result["frames"],
        depth=depth,
        launched=sum(cells),
        together=sum(count for count in cells if count > 1),
        seconds=time.monotonic() - clock,
        reason=(result["gaps"] or ["finished"])[0],
    )


def row(name: str, way: str, found: list[Solved]) -> str:
    """Return one line of the table."""

    def mean(field: str) -> float:
        return statistics.mean(getattr(each, field) for each in found)

    launched = sum(each.launched for each in found)
    together = f"{sum(each.together for each in found) / launched:.0%}" if launched else "-"
    return (
        f"{name:<8} {way:<10} {mean('success'):>7.0%} {mean('tokens'):>11,.0f} {mean('replies'):>8.1f} "
        f"{mean('agents'):>7.1f} {mean('depth'):>6.1f} {together:>9} {mean('seconds'):>8.1f}"
    )


async def main(count: int, window: int, bins: list[str]) -> None:
    """Print the table."""
    world = generate()
    print(f"{count} tasks a bin, {window} tokens a conversation")
    print("bin      way        success      tokens  replies  agents  depth  together  seconds")
    for name in bins:
        for way in WAYS:
            found = [await solved(world, task, window, way) for task in tasks(world, name, count=count)]
            print(row(name, way, found), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--window", type=int, default=8_000)
    parser.add_argument("--bins", default=",".join(BINS))
    given = parser.parse_args()
    asyncio.run(main(given.tasks, given.window, given.bins.split(",")))
