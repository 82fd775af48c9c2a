"""Asking a model within a run: limits, places for calls in flight, fallbacks and accounts."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, GraphDrained
from langgraph.runtime import RunControl

from frames.errors import (
    CactusError,
    CallError,
    EmptyReplyError,
    LimitError,
    ReplyCutError,
    TooLargeError,
    ToolsRefusedError,
    TransportError,
)
from frames.frame import Frame
from frames.journal import AnswerKind, Entry, Key, Origin, Outcome, digest
from frames.state import Call
from frames.text import clean, one_line
from nodes.admission import admit, admit_spending
from nodes.artifacts import Artifacts
from nodes.budget import Budget
from nodes.component import Ask, ComponentError
from nodes.executors.brief import fitted
from nodes.journal import key_of
from nodes.models.call import CallPolicy, Model, Query, call, calls_tools, explained, say
from nodes.models.reply import Reply, answer, as_plain, from_plain, text_of
from nodes.models.request import Request
from nodes.models.resolve import ModelLike, name_of
from nodes.models.transport import is_transport, status_of, too_large

if TYPE_CHECKING:
    from nodes.capabilities import Match
    from nodes.context import Context
    from nodes.sandbox.run import Ran

_ANSWERING = ("solve", "aggregate")  # an empty plan is a plan, an empty answer is none

_PAUSED = "the provider asked for a pause"

Emit = Callable[[Any], None]


class Asking:
    """Asks models on behalf of one step: the ``ask`` that built-in components get.

    ``frame`` is the frame at work, ``agent`` who works on it where agents are assigned. ``calls`` and ``notes`` are
    what the asking adds to the run's account.
    """

    def __init__(self, role: str, frame: Frame, context: "Context", artifacts: Artifacts, emit: Emit) -> None:
        self.role, self.frame, self.context, self.artifacts, self.emit = role, frame, context, artifacts, emit
        self.calls: list[Call] = []
        self.notes: list[str] = []
        self.before: Sequence[Call] = ()
        self.control: RunControl | None = None
        self.asked: str | None = None
        self.agent: Match | None = None
        self._counts: dict[str, int] = {}

    @property
    def request(self) -> Request:
        """On whose behalf a model is asked."""
        frame = self.frame
        return Request(frame["id"], self.role, frame["depth"], frame["attempt"], frame["task"])

    async def __call__(self, prompt: str, *, model: ModelLike | None = None) -> str:
        """Return the model's answer to ``prompt``; ``model`` overrides the role's own.

        Raises:
            LimitError: a limit of the run allows no further call.
            CallError: the reply is no answer (cut off, refused).
        """
        return (await self.reply(Query(prompt), model=model)).text

    async def reply(self, query: Query, *, model: ModelLike | None = None) -> Reply:
        """Return the reply to ``query`` of the first of the role's models that gives one.

        Raises as ``__call__`` does.
        """
        models = [model] if model is not None else self._models()
        for meant in models[:-1]:
            # each client has exceptions of its own, so that the fault is looked at as a value
            [reply] = await asyncio.gather(self._reply(query, meant), return_exceptions=True)
            if isinstance(reply, Reply):
                return reply
            if not lies_with_model(reply):
                raise reply
            self._note_fallback(reply)
        return await self._reply(query, models[-1])

    async def tools(self) -> list[BaseTool]:
        """Return the run's tools; where an agent is at work, those that it may use."""
        tools = await self.context.resources.tools()
        allowed = self.agent.agent.tools if self.agent else None
        return tools if allowed is None else [tool for tool in tools if tool.name in allowed]

    async def use_tool(self, tool: BaseTool | None, name: str, arguments: Any) -> str:
        """Return what a tool gives, for a model to read; a failure is given as one, never as an answer."""
        return (await self.used(tool, name, arguments))["text"]

    async def used(
        self, tool: BaseTool | None, name: str, arguments: Any, place: Mapping[str, int] | None = None
    ) -> dict[str, Any]:
        """Return what a tool gave: whether that is ``ok``, and the ``text``.

        ``place`` tells the use from equal ones by other steps of the same frame and attempt.
        """

        async def work() -> dict[str, Any]:
            self._heed_drain()
            before = self.context.now()
            if tool is None:
                ok, text = False, f"ERROR: there is no tool {name!r}; use one of those named above"
            else:
                from nodes.tools.load import run_tool

                ok, text = await run_tool(tool, _by_name(tool, arguments), self.context.tool_timeout)
            return {"ok": ok, "text": clean(text), "seconds": self.context.now() - before}

        asked = {"tool": name, "arguments": arguments, **(place or {})}
        key = self._key("tool", asked)
        used = await self._once(key, asked, work)
        self._tell_tool(key, name, arguments, used["ok"], used["seconds"], used["text"])
        return used

    async def run_code(self, program: str, files: Mapping[str, bytes]) -> "Ran":
        """Return what a program gave that ran in the sandbox with ``files`` before it."""
        from nodes.sandbox.run import as_plain, from_plain, output_of

        async def work() -> dict[str, Any]:
            self._heed_drain()
            before = self.context.now()
            ran = await self.context.resources.sandbox().run(program, files)
            return {**as_plain(ran), "seconds": self.context.now() - before}

        given = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
        asked = {"program": program, "files": given}
        key = self._key("code", asked)
        ran = await self._once(key, asked, work)
        self._tell_tool(key, "python", program, ran["error"] is None, ran["seconds"], output_of(ran))
        return from_plain(ran)

    async def component(self, args: Sequence[Any], work: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a user's function gave for ``args``; what no JSON value can hold is not written down."""
        journal, asked = self.context.journal, {"arguments": list(args)}
        if journal is None:
            return await work()
        key = self._key("component", asked)
        entry = journal.recall(key, asked)
        if entry:
            return _from_plain(entry["answer"])
        given = await work()
        if (plain := _plain(given)) is not None:
            await journal.record(key, asked, plain)
        return given

    async def once(self, kind: AnswerKind, asked: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return what the journal holds for a request of this step, or what ``work`` gives, written down first."""
        return await self._once(self._key(kind, asked), asked, work)

    async def _once(self, key: Key, asked: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        journal = self.context.journal
        return await journal.once(key, asked, work) if journal else await work()

    async def in_session(self, asked: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a stretch of an agent's code gave, written down before anything goes on."""

        async def begun() -> Any:
            self._heed_drain()
            return await work()

        return await self.once("cell", asked, begun)

    def holds(self, kind: AnswerKind, asked: Any) -> bool:
        """Whether the journal holds the answer to a request that this step may make next."""
        journal = self.context.journal
        step = (self.frame["id"], self.role, self.frame["attempt"])
        return journal is not None and journal.holds(key_of(step, kind, asked, dict(self._counts)))

    def _key(self, kind: AnswerKind, asked: Any) -> Key:
        return key_of((self.frame["id"], self.role, self.frame["attempt"]), kind, asked, self._counts)

    def _tell_tool(self, key: Key, name: str, arguments: Any, ok: bool, seconds: float, output: str) -> None:
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
        self.emit(
            {
                "event": "tool",
                "frame": self.frame["id"],
                "tool": name,
                "arguments": one_line(clean(shown), 300),
                "ok": ok,
                "seconds": seconds,
                **_told_of(key),
                "output": output,
            }
        )

    async def tools_for(self, model: ModelLike | None = None) -> bool:
        """Whether the model that would be asked can be given tools."""

        async def work() -> bool:
            models = [model] if model is not None else self._models()
            resolved = [await self._resolved(meant) for meant in models]
            refused = self.context.models.refusals.tools
            return all(calls_tools(model) and id(model) not in refused for model in resolved)

        return await self.once("means", {"tools": True}, work)

    def _models(self) -> list[ModelLike]:
        own = [self.agent.agent.model] if self.agent and self.agent.agent.model else []
        return list(self._changed() or own or self.context.models_of(self.role, self.frame["kind"]))

    def _changed(self) -> Sequence[ModelLike] | None:
        change = self.context.change
        return change.models_for(self.frame["id"], self.role, self.frame["kind"]) if change else None

    async def _reply(self, query: Query, meant: ModelLike) -> Reply:
        self.asked = name_of(meant)
        asked = as_asked(query)
        key, journal = self._key("call", asked), self.context.journal
        renewed = bool(self._changed()) and journal is not None and not journal.replays
        entry = journal.recall(key, asked, renewed=renewed) if journal else None
        if entry is None:
            reply = await self._made(query, meant, key, asked)
        elif entry["outcome"] == "fault":
            self._tell_waits(entry["answer"].get("waits", ()))
            raise _fault(entry["answer"])
        else:
            self.asked = entry["model"]
            reply = self._recalled(entry)
        self._check(reply)
        self.asked = None
        return reply

    def _check(self, reply: Reply) -> None:
        """Raise where the reply is no answer: refused, cut off or empty."""
        text = answer(reply, self.asked or "")
        message = reply.message
        calls = reply.parsed is not None or (message and (message.tool_calls or message.invalid_tool_calls))
        if self.role in _ANSWERING and not text.strip() and not calls:
            raise EmptyReplyError(
                f"{self.asked} gave an empty reply, which is no answer; rephrase the task or use another model"
            )

    def _recalled(self, entry: Entry) -> Reply:
        """Return the reply that the journal holds, told and accounted as when it was given."""
        value = entry["answer"]
        if budget := self._budget:
            budget.see(self.frame["id"], self.role)
        self._tell_waits(value["waits"])
        reply = from_plain(value["reply"])
        self._account(entry["key"], entry["asked"], reply, entry["model"], value["seconds"], origin=entry["origin"])
        return reply

    async def _made(self, query: Query, meant: ModelLike, key: Key, asked: Any) -> Reply:
        """Return the reply of the model, or that of an equal request, written down before anything goes on."""
        journal, name = self.context.journal, name_of(meant)
        memo = None if journal is None or self.context.reuse == "off" else self._memo(meant, key)
        found = await journal.reused(memo, self.context.reuse == "all") if journal and memo else None
        if journal and found:
            same = Call(**{field: found[field] for field in ("model", "input_tokens", "output_tokens", "estimated")})  # type: ignore[typeddict-item]
            value: dict[str, Any] = {**found["answer"], "waits": []}
            if budget := self._budget:
                budget.begin(key.frame, key.role)
            return self._recalled(await journal.record(key, asked, value, origin="reuse", call=same))
        entry = None

        async def record(reply: Reply, told: dict[str, Any]) -> None:
            nonlocal entry
            if journal:
                value = {"reply": as_plain(reply), **told}
                outcome: Outcome = "answer" if self._fits(reply) else "unusable"
                made = self._call(reply, name)
                entry = await journal.record(key, asked, value, outcome=outcome, memo=memo, call=made)

        try:
            reply, seconds = await self._called(query, meant, key, asked, record)
        finally:
            if journal and memo:
                if entry and entry["outcome"] == "answer":
                    journal.made(memo, entry)
                else:
                    journal.not_made(memo)
        self._account(key, asked, reply, name, seconds)
        return reply

    async def _called(
        self,
        query: Query,
        meant: ModelLike,
        key: Key,
        asked: Any,
        record: Callable[[Reply, dict[str, Any]], Awaitable[None]],
    ) -> tuple[Reply, float]:
        shared, waits = self.context.shared, list[tuple[float, str]]()
        resolved = await self._resolved(meant)
        await self._admit(key, asked)
        if shared and (seconds := shared.limiter.waits(provider_of(meant))) > 0:
            waits.append((seconds, _PAUSED))
            self._tell_wait(*waits[-1])
        before, seconds = self.context.now(), 0.0
        with shared.under_way() if shared else nullcontext() as count:

            async def on_reply(reply: Reply) -> None:
                """Count and write down a reply before its place goes to another, who is admitted by what was spent."""
                nonlocal seconds
                seconds = self.context.now() - before
                if count:
                    count(self._call(reply, name_of(meant)))
                await record(reply, {"seconds": seconds, "waits": waits})

            policy = replace(self.policy(meant, waits), on_reply=on_reply)
            # each client has exceptions of its own, so that the fault is looked at as a value
            [reply] = await asyncio.gather(call(resolved, query, self.request, policy), return_exceptions=True)
            if isinstance(reply, LimitError) and self.context.journal:
                await self.context.journal.record(key, asked, _as_fault(reply, waits), outcome="fault")
            elif isinstance(reply, Exception) and self.context.journal and not isinstance(reply, GraphBubbleUp):
                said = str(reply) if isinstance(reply, CactusError) else str(explained(reply, name_of(meant), policy))
                fault = {
                    "type": type(reply).__name__ if isinstance(reply, CallError) else "CallError",
                    "models": lies_with_model(reply),
                    "text": said,
                    "waits": waits,
                }
                await self.context.journal.record(key, asked, fault, outcome="fault")
        if isinstance(reply, BaseException):
            raise reply
        return reply, seconds

    def _fits(self, reply: Reply) -> bool:
        try:
            self._check(reply)
        except CallError:
            return False
        return True

    def _memo(self, meant: ModelLike, key: Key) -> str:
        who = meant if isinstance(meant, str) else f"{name_of(meant)} {id(meant)}"
        return digest([who, key.role, self.frame["kind"], key.attempt, key.request, key.position])

    async def _resolved(self, meant: ModelLike) -> Model:
        models = self.context.models
        # resolving may import a provider's package, which must not block the event loop
        return models.known(meant) or await asyncio.to_thread(models.resolve, meant)

    def _note_fallback(self, fault: Exception) -> None:
        said = str(fault) if isinstance(fault, CactusError) else str(explained(fault, self.asked or "", self.policy()))
        self.notes.append(f"{self.frame['id']}: {self.role}: {one_line(said, 200)}; the next model is asked")

    def _heed_drain(self) -> None:
        """Begin nothing new in a run that is asked to stop: the step is left, and done from the journal on resume."""
        if self.control and self.control.drain_requested:
            raise GraphDrained(self.control.drain_reason or "shutdown")

    async def _admit(self, key: Key, asked: Any) -> None:
        """Count a call as begun that the limits allow; that they do not is written down first."""
        self._heed_drain()
        try:
            admit(self.context, key.frame, key.role, [*self.before, *self.calls])
        except LimitError as limit:
            shared = self.context.shared
            if self.context.journal and not (shared and shared.reached):
                await self.context.journal.record(key, asked, _as_fault(limit), outcome="fault")
            raise
        if budget := self._budget:
            budget.begin(key.frame, key.role)
            budget.see(key.frame, key.role)

    @property
    def _budget(self) -> Budget | None:
        return self.context.shared.budget if self.context.shared else None

    async def refusal(self, asked: Any, find: Callable[[], LimitError | None]) -> LimitError | None:
        """Return the limit that refuses a plan of the frame, as the journal has it or as ``find`` does."""
        journal, key = self.context.journal, self._key("admission", asked)
        known = journal.recall(key, asked) if journal and journal.holds(key) else None
        limit = LimitError(**known["answer"]) if known else None if journal and journal.replays else find()
        if limit is None or (journal and journal.knows_below(self.frame["id"])):
            return None
        if journal and not known:
            await journal.record(key, asked, {"name": limit.name, "message": str(limit)})
        return limit

    def policy(self, model: ModelLike | None = None, waits: list[tuple[float, str]] | None = None) -> CallPolicy:
        """Return how calls of this step are made; ``waits`` takes the pauses between attempts and their reasons."""
        context, shared = self.context, self.context.shared
        provider = provider_of(model) if model is not None else ""

        def on_wait(seconds: float, fault: BaseException) -> None:
            if waits is not None:
                waits.append((seconds, say(fault)))
            self._tell_wait(seconds, say(fault))

        @asynccontextmanager
        async def place() -> AsyncGenerator[None]:
            async with shared.place(provider) if shared else nullcontext():
                self._heed_drain()
                # others may have spent what was left while this one waited
                admit_spending(self.context, [*self.before, *self.calls])
                yield

        refusals, called = context.models.refusals, name_of(model) if model is not None else ""
        return CallPolicy(context.call_timeout, context.call_attempts, on_wait, place, refusals, model=called)

    def _tell_waits(self, waits: Sequence[Sequence[Any]]) -> None:
        for seconds, reason in waits:
            self._tell_wait(seconds, reason)

    def _tell_wait(self, seconds: float, reason: str) -> None:
        self.emit({"event": "wait", "frame": self.frame["id"], "role": self.role, "seconds": seconds, "reason": reason})

    def _call(self, reply: Reply, model: str) -> Call:
        return Call(
            frame=self.frame["id"],
            role=self.role,
            attempt=self.frame["attempt"],
            model=model,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            estimated=reply.estimated,
        )

    def _account(
        self, key: Key, asked: Any, reply: Reply, model: str, seconds: float, *, origin: Origin = "run"
    ) -> None:
        made = self._call(reply, model)
        if origin != "reuse":
            self.calls.append(made)
        saved = origin != "run"
        told = {"usd": 0.0 if saved else self.context.cost(made), "seconds": seconds, "saved": saved, **_told_of(key)}
        self.emit({"event": "call", **made, **told, "messages": asked["messages"], "reply": text_of(as_plain(reply))})


def _told_of(key: Key) -> dict[str, Any]:
    """Return what an event says of the journal's entry that it tells of."""
    return {"role": key.role, "attempt": key.attempt, "request": key.request, "position": key.position}


def provider_of(model: ModelLike) -> str:
    """Return whose limits a model's calls count against."""
    return name_of(model).partition(":")[0]


def as_asked(query: Query) -> dict[str, Any]:
    """Return what a model is asked as a JSON value: it is the request's hash, and what a replay compares."""
    messages: Any = query.messages
    said = (
        [{"role": "human", "content": messages}]
        if isinstance(messages, str)
        else [
            {"role": message.type, "content": message.content}
            | ({"calls": message.tool_calls} if isinstance(message, AIMessage) and message.tool_calls else {})
            for message in messages
        ]
    )
    schema = {"schema": query.schema.__name__} if query.schema else {}
    tools = {"tools": [tool.name for tool in query.tools]} if query.tools else {}
    return {"messages": said, **schema, **tools}


def _plain(given: Any) -> dict[str, Any] | None:
    """Return what a component gave as a JSON value that says which kind it is; ``None`` where there is none."""
    kind = "verdict" if type(given).__name__ == "Verdict" else "value"
    value = list(given) if kind == "verdict" else given
    try:
        same = json.loads(json.dumps(value)) == value
    except (TypeError, ValueError, RecursionError):
        return None
    return {"kind": kind, "value": value} if same else None


def _from_plain(value: Mapping[str, Any]) -> Any:
    from nodes.verify import Verdict  # it imports this module

    return Verdict(*value["value"]) if value["kind"] == "verdict" else value["value"]


def _as_fault(limit: LimitError, waits: Sequence[tuple[float, str]] = ()) -> dict[str, Any]:
    """Return what is written down of a call that a limit refused."""
    said = {"name": limit.name, "text": str(limit), "kept": limit.kept}
    return {"type": "LimitError", "models": False, "waits": list(waits), **said}


def _fault(recorded: Mapping[str, Any]) -> CactusError:
    """Return the exception that a recorded call ended with."""
    if recorded["type"] == "LimitError":
        return LimitError(recorded["name"], recorded["text"], kept=recorded["kept"])
    known = {kind.__name__: kind for kind in (TransportError, ToolsRefusedError, TooLargeError)}
    kind = known.get(recorded["type"], CallError) if recorded["models"] else known.get(recorded["type"], CactusError)
    return kind(recorded["text"])


def situation(ask: Ask) -> dict[str, Any]:
    """Return what a prompt about the frame's task may say: the results it builds on, and what is at hand."""
    if not isinstance(ask, Asking):
        return {"known": [], "means": []}
    return {"known": fitted(ask.frame["known"], ask.context.window), "means": ask.context.resources.means()}


def within_run(ask: Ask) -> Asking:
    """Return ``ask`` as that of a run, which has tools, files and limits.

    Raises:
        ComponentError: the component was called by hand.
    """
    if not isinstance(ask, Asking):
        raise ComponentError("this component needs a run around it: its tools, files and settings; use it in a solver")
    return ask


def _by_name(tool: BaseTool, given: Any) -> dict[str, Any]:
    """Return arguments by name; a bare text is the tool's first argument."""
    if isinstance(given, dict):
        return {str(key): value for key, value in cast("dict[Any, Any]", given).items()}
    return {next(iter(tool.args), "input"): given}


def lies_with_model(fault: BaseException) -> TypeGuard[Exception]:
    """Whether a fault lies with the model asked, so that another may do; a reply cut short is the task's size."""
    if isinstance(fault, ReplyCutError | ToolsRefusedError):
        return False
    return isinstance(fault, CallError) or is_transport(fault) or status_of(fault) is not None or too_large(fault)
