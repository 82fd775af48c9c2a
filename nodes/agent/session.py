"""The session of an agent's code: a cell is run stretch by stretch, its tools served, until it ends or waits.

Each stretch and each tool's result is written down before anything goes on. A stretch whose process was killed is run
again on the same session, with the same clock and chance, and is given the results that its tools have had.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.tools import BaseTool

from frames.errors import LimitError
from frames.frame import Subtask
from frames.instance import Instance, Waiting
from frames.journal import digest
from frames.returns import misfit
from nodes.agent.launches import decided
from nodes.agent.prelude import ENDED, LAUNCHED, USED, prelude
from nodes.agent.talk import output_chars
from nodes.sandbox.cells import MOST_CALLS, VERSION, Answers, HostCall, Raised, Rules, Start
from nodes.step import Step

_INLINE = 4_000
"""Characters of results up to which a request of the journal has them as they are, and not their hash."""


class Session:
    """One cell at work. ``instance`` is where the agent stands then; the rest is what has become of the cell."""

    def __init__(self, step: Step, tools: Sequence[BaseTool], instance: Instance) -> None:
        self._step, self._tools = step, {tool.name: tool for tool in tools}
        self.instance = instance
        self.printed = ""
        self.error: str | None = None
        self.finished = False
        self.value: Any = None
        self.begun: list[Subtask] = []
        self.limited = False

    async def start(self, code: str, inputs: Mapping[str, Any]) -> None:
        """Run ``code`` in the session, with ``inputs`` as variables, until it ends or waits for subagents."""
        here = self.instance
        self.instance = Instance({**here, "before": here["state"], "stops": 0, "calls": 0, "printed": ""})
        what = Start(code, prelude(list(self._tools.values())), inputs)
        await self._run(what, {"code": code, "inputs": digest(inputs)})

    async def go_on(self, answers: Mapping[int, Any]) -> None:
        """Give the code what its subagents came back with, and run it on."""
        self.instance = Instance({**self.instance, "waiting": []})
        await self._run(Answers(answers), _asked(answers))

    async def _run(self, what: Start | Answers, asked: Mapping[str, Any]) -> None:
        while True:
            calls = await self._stretch(what, asked)
            waiting = {each["call"] for each in self.instance["waiting"]}
            calls = [call for call in calls if call.id not in waiting]
            if not calls:
                return
            if self.instance["calls"] + len(calls) > MOST_CALLS:
                self._give_up(
                    f"the block called tools and subagents more than {MOST_CALLS} times; do less in one block"
                )
                return
            self.instance = Instance({**self.instance, "calls": self.instance["calls"] + len(calls)})
            answers = await self._served(calls)
            if not answers:
                return
            what, asked = Answers(answers), _asked(answers)

    async def _stretch(self, what: Start | Answers, asked: Mapping[str, Any]) -> list[HostCall]:
        """Run the code to its next stop and return what it waits for."""
        here = self.instance
        place = {"turn": here["steps"], "stop": here["stops"], "session": here["state"]}
        given = await self._step.ask.in_session({**place, **asked}, lambda: self._ran(what))
        self.printed += given["printed"]
        self.error, self.finished, self.value = given["error"], given["finished"], given["value"]
        state = here["before"] if given["state"] is None else given["state"]
        version = given["version"] if given["state"] else here["version"]
        self.instance = Instance({**here, "state": state, "version": version, "stops": here["stops"] + 1})
        return [HostCall(*call) for call in given["calls"]]

    async def _ran(self, what: Start | Answers) -> dict[str, Any]:
        step, context = self._step, self._step.context
        before = context.now()
        schema = step.frame.get("returns")
        rules = Rules(
            host=frozenset({LAUNCHED, USED}),
            end=ENDED,
            refuse_end=lambda value: _refused(value, schema),
            seed=step.frame["id"],
            now=step.started,
            seconds=context.code_seconds,
            output_chars=max(
                output_chars(context.agent_tokens) - len(self.instance["printed"]) - len(self.printed), 200
            ),
        )
        stop = await context.resources.cells().run(await self._state(), what, rules)
        name = f"session-{step.frame['id']}-{self.instance['steps']}-{self.instance['stops']}.monty"
        kept = await step.artifacts.put(stop.state, name, step.frame["id"]) if stop.state else None
        return {
            "state": kept["id"] if kept else None,
            "version": VERSION,
            "printed": stop.printed,
            "calls": [list(call) for call in stop.calls],
            "error": stop.error,
            "finished": stop.finished,
            "value": stop.value,
            "seconds": context.now() - before,
        }

    async def _state(self) -> bytes | None:
        """Return the session as bytes; ``None`` where there is none yet.

        Raises:
            LimitError: another version of the interpreter wrote it, or it is gone; no frame's failure, but the end of
                what can be done here.
        """
        here = self.instance
        if here["state"] is None:
            return None
        if here["version"] != VERSION:
            raise LimitError(
                "pydantic-monty",
                f"its session was written by pydantic-monty {here['version']}, and this is {VERSION}, which cannot "
                f"read it: install pydantic-monty=={here['version']} and resume the run",
            )
        stored = await self._step.artifacts.get(here["state"])
        if stored is None:
            raise LimitError(
                "pydantic-monty", f"its session, artifact {here['state']}, is not in the run's store: resume it there"
            )
        return stored.content

    async def _served(self, calls: Sequence[HostCall]) -> dict[int, Any]:
        """Return what calls are answered with at once; subagents that begin are waited for."""
        launches = [call for call in calls if call.name == LAUNCHED]
        used = [call for call in calls if call.name == USED]
        places = asyncio.Semaphore(self._step.context.parallel)

        async def use(call: HostCall) -> Any:
            async with places:
                return await self._used(call)

        given = await asyncio.gather(*map(use, used))
        answers = {call.id: answer for call, answer in zip(used, given, strict=True)}
        frame = self._step.frame
        plan = [*frame["plan"], *self.begun]
        place = {"turn": self.instance["steps"], "stop": self.instance["stops"]}
        what = await decided(self._step, cast("Any", {**frame, "plan": plan}), launches, place)
        waiting = [Waiting(call=id_, place=len(plan) + nth) for nth, id_ in enumerate(what.begun)]
        self.begun += what.begun.values()
        self.limited |= what.limited
        self.instance = Instance({**self.instance, "waiting": [*self.instance["waiting"], *waiting]})
        return {**answers, **what.answers}

    async def _used(self, call: HostCall) -> Any:
        """Return what a tool gives: a JSON list or object as such, all else as text; a failure is raised."""
        name, given, named = [*call.arguments, None, None, None][:3]
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not isinstance(given, list) or not isinstance(named, dict):
            return Raised("NameError", f"there is no tool {str(name)[:100]!r}")
        positional, taken = cast("list[Any]", given), list(tool.args)
        if len(positional) > len(taken):
            return Raised("TypeError", f"{name}() takes {len(taken)} arguments ({', '.join(taken)})")
        arguments = {**dict(zip(taken, positional, strict=False)), **cast("dict[str, Any]", named)}
        place = {"turn": self.instance["steps"], "call": call.id}
        used = await self._step.ask.used(tool, tool.name, arguments, place)
        return _value(used["text"]) if used["ok"] else Raised("RuntimeError", used["text"].removeprefix("ERROR: "))

    def _give_up(self, why: str) -> None:
        """End the cell; its session is the one before it."""
        self.error = f"{why}. The variables are as before this block."
        self.begun = []
        self.instance = Instance({**self.instance, "state": self.instance["before"], "waiting": []})


def _asked(answers: Mapping[int, Any]) -> dict[str, Any]:
    """Return what the journal knows a stretch by that goes on with ``answers``."""
    plain = {str(id_): given._asdict() if isinstance(given, Raised) else given for id_, given in answers.items()}
    return {"answers": plain if len(json.dumps(plain)) <= _INLINE else digest(plain)}


def _value(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refused(value: Any, schema: Mapping[str, Any] | None) -> str | None:
    """Return what is wrong with the value that an agent would finish with."""
    if fault := misfit(value, schema):
        return f"finish: {fault}; give a value of the form that was asked for"
    if schema is None and (value is None or (isinstance(value, str) and not value.strip())):
        return "finish: the answer is empty; give it as a text, a number, a list or a dict"
    return None
