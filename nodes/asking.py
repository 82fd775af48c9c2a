"""Asking a model within a run: limits, places for calls in flight, fallbacks and accounts."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from langchain_core.tools import BaseTool

from frames.errors import CactusError, CallError, EmptyReplyError, LimitError, ReplyCutError, ToolsRefusedError
from frames.frame import Frame
from frames.state import Call
from frames.text import clean, one_line
from nodes.artifacts import Artifacts
from nodes.component import Ask, ComponentError
from nodes.executors.brief import fitted
from nodes.models.call import CallPolicy, Model, Query, call, calls_tools, explained, say
from nodes.models.reply import Reply, answer
from nodes.models.request import Request
from nodes.models.resolve import ModelLike, name_of
from nodes.models.transport import is_transport, retry_after, status_of

if TYPE_CHECKING:
    from nodes.context import Context
    from nodes.sandbox.run import Ran

_ANSWERING = ("solve", "aggregate")  # an empty plan is a plan, an empty answer is none

Emit = Callable[[Any], None]


class Asking:
    """Asks models on behalf of one step: the ``ask`` that built-in components get.

    ``frame`` is the frame at work. ``calls`` and ``notes`` are what the asking adds to the run's account.
    """

    def __init__(self, role: str, frame: Frame, context: "Context", artifacts: Artifacts, emit: Emit) -> None:
        self.role, self.frame, self.context, self.artifacts, self.emit = role, frame, context, artifacts, emit
        self.calls: list[Call] = []
        self.notes: list[str] = []
        self.before: Sequence[Call] = ()
        self.asked: str | None = None

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
        models = [model] if model is not None else self.context.models_of(self.role, self.frame["kind"])
        for meant in models[:-1]:
            # each client has exceptions of its own, so that the fault is looked at as a value
            [reply] = await asyncio.gather(self._reply(query, meant), return_exceptions=True)
            if isinstance(reply, Reply):
                return reply
            if not _is_models(reply):
                raise reply
            self._note_fallback(reply)
        return await self._reply(query, models[-1])

    async def use_tool(self, tool: BaseTool | None, name: str, arguments: Any) -> str:
        """Return what a tool gives, for a model to read; a failure is given as one, never as an answer."""
        before = self.context.now()
        if tool is None:
            ok, text = False, f"ERROR: there is no tool {name!r}; use one of those named above"
        else:
            from nodes.tools.load import run_tool

            ok, text = await run_tool(tool, _by_name(tool, arguments), self.context.tool_timeout)
        self._tell_tool(name, arguments, ok, before)
        return clean(text)

    async def run_code(self, program: str, files: Mapping[str, bytes]) -> "Ran":
        """Return what a program gave that ran in the sandbox with ``files`` before it."""
        before = self.context.now()
        ran = await self.context.resources.sandbox().run(program, files)
        self._tell_tool("python", program, ran.error is None, before)
        return ran

    def _tell_tool(self, name: str, arguments: Any, ok: bool, before: float) -> None:
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
        self.emit(
            {
                "event": "tool",
                "frame": self.frame["id"],
                "tool": name,
                "arguments": one_line(clean(shown), 300),
                "ok": ok,
                "seconds": self.context.now() - before,
            }
        )

    async def tools_for(self, model: ModelLike | None = None) -> bool:
        """Whether the model that would be asked can be given tools."""
        models = [model] if model is not None else self.context.models_of(self.role, self.frame["kind"])
        resolved = [await self._resolved(meant) for meant in models]
        refused = self.context.models.refusals.tools
        return all(calls_tools(model) and id(model) not in refused for model in resolved)

    async def _reply(self, query: Query, meant: ModelLike) -> Reply:
        self._admit()
        self.asked = name_of(meant)
        resolved = await self._resolved(meant)
        before = self.context.now()
        with self.context.shared.under_way() if self.context.shared else nullcontext():
            reply = await call(resolved, query, self.request, self.policy(meant))
        self._account(reply, self.asked, self.context.now() - before)
        text = answer(reply, self.asked)
        message = reply.message
        calls = reply.parsed is not None or (message and (message.tool_calls or message.invalid_tool_calls))
        if self.role in _ANSWERING and not text.strip() and not calls:
            raise EmptyReplyError(
                f"{self.asked} gave an empty reply, which is no answer; rephrase the task or use another model"
            )
        self.asked = None
        return reply

    async def _resolved(self, meant: ModelLike) -> Model:
        models = self.context.models
        # resolving may import a provider's package, which must not block the event loop
        return models.known(meant) or await asyncio.to_thread(models.resolve, meant)

    def _note_fallback(self, fault: Exception) -> None:
        said = str(fault) if isinstance(fault, CactusError) else str(explained(fault, self.asked or "", self.policy()))
        self.notes.append(f"{self.frame['id']}: {self.role}: {one_line(said, 200)}; the next model is asked")

    def _admit(self) -> None:
        shared = self.context.shared
        if shared and shared.reached:
            raise shared.reached
        most, tokens = self.context.max_calls, self.context.max_tokens
        if most is None and tokens is None:
            return
        made = [*self.before, *self.calls]
        count = shared.calls + shared.in_flight if shared else len(made)
        if most is not None and count >= most:
            raise LimitError("max_calls", f"max_calls = {most} reached")
        used = shared.tokens if shared else sum(c["input_tokens"] + c["output_tokens"] for c in made)
        if tokens is not None and used >= tokens:
            raise LimitError("max_tokens", f"max_tokens = {tokens} reached")

    def policy(self, model: ModelLike | None = None) -> CallPolicy:
        """Return how calls of this step are made."""
        context, shared = self.context, self.context.shared
        provider = name_of(model).partition(":")[0] if model is not None else ""

        def on_wait(seconds: float, fault: BaseException) -> None:
            if shared and status_of(fault) == 429 and retry_after(fault):
                shared.pause(provider, seconds)
            self._tell_wait(seconds, say(fault))

        def place() -> AbstractAsyncContextManager[None]:
            return shared.place(provider) if shared else nullcontext()

        return CallPolicy(context.call_timeout, context.call_attempts, on_wait, place, context.models.refusals)

    def _tell_wait(self, seconds: float, reason: str) -> None:
        self.emit({"event": "wait", "frame": self.frame["id"], "role": self.role, "seconds": seconds, "reason": reason})

    def _account(self, reply: Reply, model: str, seconds: float) -> None:
        made = Call(
            frame=self.frame["id"],
            role=self.role,
            attempt=self.frame["attempt"],
            model=model,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            estimated=reply.estimated,
        )
        self.calls.append(made)
        if self.context.shared:
            self.context.shared.count(made)
        self.emit({"event": "call", **made, "seconds": seconds})


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


def _is_models(fault: BaseException) -> TypeGuard[Exception]:
    """Whether a fault lies with the model asked, so that another may do; a reply cut short is the task's size."""
    if isinstance(fault, ReplyCutError | ToolsRefusedError):
        return False
    return isinstance(fault, CallError) or is_transport(fault) or status_of(fault) is not None
