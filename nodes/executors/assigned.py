"""Assigned: a task is given to the agent that fits it best, and to the next one where that fails."""

import asyncio
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from frames.errors import CallError
from frames.text import one_line
from nodes.asking import Asking, lies_with_model, within_run
from nodes.capabilities import Match, required_of
from nodes.component import Ask, ModelComponent, ask_directly, least_calls, model_calls, use


@dataclass(frozen=True)
class Assigned(ModelComponent):
    """Has ``executor`` work for the agent whose turn it is, with its model, tools and instructions.

    ``agents`` is how many may be asked in turn: one whose model fails has the next one asked. A task that requires no
    capability is worked on as without agents.
    """

    executor: Any
    agents: int = 1

    @property
    @override
    def model_calls(self) -> int:
        return model_calls(self.executor) * max(self.agents, 1)

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return least_calls(self.executor, searches=searches, attaches=attaches)

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        required = required_of(work.frame)
        matches = work.context.agents_for(work.frame)[work.frame.get("agent", 0) :]
        for match in matches[:-1]:
            # each client has exceptions of its own, so that the fault is looked at as a value
            [answer] = await asyncio.gather(self._by(match, required, task, work), return_exceptions=True)
            if not isinstance(answer, BaseException):
                return answer
            if not (isinstance(answer, CallError) or lies_with_model(answer)):
                raise answer
            why = one_line(str(answer), 200)
            work.notes.append(f"{work.frame['id']}: agent {match.agent.name} failed: {why}; the next agent is asked")
        if matches:
            return await self._by(matches[-1], required, task, work)
        return await use(self.executor, task, ask=work)

    async def _by(self, match: Match, required: dict[str, float], task: str, work: Asking) -> str:
        work.agent = match
        work.emit(
            {
                "event": "assigned",
                "frame": work.frame["id"],
                "agent": match.agent.name,
                "score": round(match.score, 4),
                "requires": required,
                "attempt": work.frame["attempt"],
            }
        )
        told = f"{match.agent.instructions.strip()}\n\n{task}" if match.agent.instructions.strip() else task
        return await use(self.executor, told, ask=work)
