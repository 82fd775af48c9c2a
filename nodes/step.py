"""A step: what a node sees of the run, and the update that it leaves.

A node takes the top frame, asks a component and returns an update. ``node`` turns such a function into
LangGraph's ``async (state, runtime) -> update`` and is the frame's boundary: whatever goes wrong inside
becomes a status with a reason, and the stack stays as it was.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from frames.errors import CactusError, CallError, LimitError, RefusedError
from frames.events import Event
from frames.frame import Frame, Phase, checked_task, root
from frames.stack import Op, Stack, fold, found_so_far, settle
from frames.state import SCHEMA, Call, State
from frames.text import one_line
from frames.trace import Trace
from nodes.context import Context
from nodes.models.call import CallPolicy, call, explained, say
from nodes.models.reply import Reply, answer
from nodes.models.request import Request, current_request
from nodes.models.resolve import ModelLike, name_of

Update = dict[str, Any]
NodeFunction = Callable[[State, Runtime[Context]], Awaitable[Update]]

_ANSWERING = ("solve", "aggregate")  # an empty plan is a plan, an empty answer is none

_log = logging.getLogger("cactus")


class Step:
    """One step of a run: the top frame, the run's context, and what this step adds.

    ``fresh`` is set for the first step of a task: it puts the root on the stack and clears what an earlier
    task on the same thread left.
    """

    def __init__(self, role: str, state: State, runtime: Runtime[Context]) -> None:
        self.role = role
        self.context = runtime.context
        self._emit = runtime.stream_writer
        self._state = state
        self._calls: list[Call] = []
        self._asking: str | None = None
        stack = state.get("stack") or []
        task = checked_task(state.get("task"))
        self.fresh = not stack or state.get("status") is not None or stack[0]["task"] != task
        self.path: Stack = [root(task)] if self.fresh else stack
        self.started: float = self.context.now() if self.fresh else state["started"]
        self.frames: int = 1 if self.fresh else state["frames"]

    @property
    def frame(self) -> Frame:
        """The frame being worked on."""
        return self.path[-1]

    # --- what a node does -------------------------------------------------------------------------------

    async def ask(self, prompt: str, *, model: ModelLike | None = None) -> str:
        """Return the model's answer to ``prompt``; ``model`` overrides the role's own.

        Raises:
            LimitError: a limit of the run allows no further call.
            CallError: the reply is no answer (cut off, refused).
        """
        self._admit()
        meant = model or self.context.model_name(self.role)
        self._asking = name_of(meant)
        models = self.context.models
        # resolving may import a provider's package, which must not block the event loop
        resolved = models.known(meant) or await asyncio.to_thread(models.resolve, meant)
        before = self.context.now()
        reply = await call(resolved, prompt, self.request, self._policy())
        self._account(reply, self._asking, self.context.now() - before)
        text = answer(reply, self._asking)
        if self.role in _ANSWERING and not text.strip():
            raise RefusedError(
                f"{self._asking} gave an empty reply, which is no answer; rephrase the task or use another model"
            )
        self._asking = None
        return text

    @property
    def request(self) -> Request:
        """On whose behalf a model is asked in this step."""
        frame = self.frame
        return Request(frame["id"], self.role, frame["depth"], self.attempt, frame["task"])

    @property
    def attempt(self) -> int:
        """The frame's attempt; 1 for what is done once."""
        return 1 if self.frame["plan"] else self.frame["attempt"]

    def emit(self, event: Event | dict[str, Any]) -> None:
        """Tell whoever watches the run."""
        self._emit(event)

    def emit_answer(self, text: str) -> None:
        """Tell whoever watches that the frame has an answer."""
        self.emit(
            {
                "event": "answer",
                "frame": self.frame["id"],
                "role": self.role,
                "attempt": self.attempt,
                "answer": text,
            }
        )

    # --- what a node returns ----------------------------------------------------------------------------

    def go(self, phase: Phase, *, traces: Sequence[Trace] = (), notes: Sequence[str] = (), **fields: Any) -> Update:
        """Return the update that sets ``fields`` of the frame and sends it to ``phase``."""
        op: Op = {"op": "revise", "fields": {"phase": phase, **fields}}
        return self.update(op, traces=traces, notes=notes)

    def settle(self, *, traces: Sequence[Trace]) -> Update:
        """Return the update that pops the accepted frame; the root's ends the run."""
        self.emit({"event": "done", "frame": self.frame["id"], "success": True})
        if len(self.path) > 1:
            self._announce(settle(self.path)[-1])
            return self.update({"op": "settle"}, traces=traces)
        output = self.frame["answer"]
        return self.update({"op": "settle"}, traces=traces, **self._end("succeeded", output=output))

    def fail(self, gap: str, *, traces: Sequence[Trace] = ()) -> Update:
        """Return the update that ends the run without an answer: a failed frame fails its whole branch."""
        return self.halt("failed", gap, traces=traces)

    def halt(
        self,
        status: Literal["failed", "limited"],
        gap: str,
        *,
        partial: str | None = None,
        traces: Sequence[Trace] = (),
    ) -> Update:
        """Return the update that ends the run here, the stack left as it is."""
        self.emit({"event": "done", "frame": self.frame["id"], "success": False})
        return self.update(traces=traces, **self._end(status, gaps=[gap], partial=partial))

    def update(self, *ops: Op, traces: Sequence[Trace] = (), notes: Sequence[str] = (), **channels: Any) -> Update:
        """Return the update of ``ops`` on the stack and of further channels."""
        appended = {"traces": list(traces), "calls": self._calls, "notes": list(notes)}
        if self.fresh:
            begin: list[Op] = [{"op": "reset"}, {"op": "push", "frame": self.frame}]
            reset = {name: Overwrite(entries) for name, entries in appended.items()}
            return self._blank() | {"stack": [*begin, *ops]} | reset | channels
        if any(op["op"] == "descend" for op in ops):
            self._announce(fold(self.path, [ops])[-1])
        update: Update = {name: entries for name, entries in appended.items() if entries}
        return update | ({"stack": list(ops)} if ops else {}) | channels

    # --- inside -----------------------------------------------------------------------------------------

    def _blank(self) -> Update:
        return {
            "task": self.path[0]["task"],
            "schema": SCHEMA,
            "started": self.started,
            "frames": 1,
            "status": None,
            "success": False,
            "output": None,
            "partial": None,
            "gaps": [],
            "duration_ms": 0,
        }

    def _end(
        self, status: str, *, output: str | None = None, gaps: Sequence[str] = (), partial: str | None = None
    ) -> Update:
        return {
            "status": status,
            "success": status == "succeeded",
            "output": output,
            "partial": partial,
            "gaps": list(gaps),
            "duration_ms": round((self.context.now() - self.started) * 1000),
        }

    def _announce(self, frame: Frame) -> None:
        if frame["phase"] != "atomize":
            return
        parent, _, _ = frame["id"].rpartition(".")
        self.emit(
            {
                "event": "frame",
                "frame": frame["id"],
                "parent": parent or None,
                "task": frame["task"],
                "depth": frame["depth"],
            }
        )

    def begin(self) -> None:
        """Tell whoever watches that the step has begun."""
        if self.fresh:
            self._announce(self.frame)
        self.emit({"event": "step", "frame": self.frame["id"], "role": self.role, "attempt": self.attempt})

    def remaining(self) -> float | None:
        """Return the seconds until the run's deadline; ``None`` without one."""
        deadline = self.context.deadline
        return None if deadline is None else self.started + deadline - self.context.now()

    def _admit(self) -> None:
        most, tokens = self.context.max_calls, self.context.max_tokens
        if most is None and tokens is None:
            return
        made = [*([] if self.fresh else self._state["calls"]), *self._calls]
        if most is not None and len(made) >= most:
            raise LimitError("max_calls", f"max_calls = {most} reached")
        if tokens is not None and sum(c["input_tokens"] + c["output_tokens"] for c in made) >= tokens:
            raise LimitError("max_tokens", f"max_tokens = {tokens} reached")

    def _policy(self) -> CallPolicy:
        return CallPolicy(self.context.call_timeout, self.context.call_attempts, self._on_wait)

    def _on_wait(self, seconds: float, reason: str) -> None:
        self.emit(
            {
                "event": "wait",
                "frame": self.frame["id"],
                "role": self.role,
                "seconds": seconds,
                "reason": reason,
            }
        )

    def _account(self, reply: Reply, model: str, seconds: float) -> None:
        made = Call(
            frame=self.frame["id"],
            role=self.role,
            attempt=self.attempt,
            model=model,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            estimated=reply.estimated,
        )
        self._calls.append(made)
        self.emit({"event": "call", **made, "seconds": seconds})

    def explain(self, error: Exception) -> str:
        """Return what went wrong, and where, on one line."""
        where = f"{self.frame['id']}: {self.role}"
        if isinstance(error, CactusError):
            return f"{where}: {error}"
        if self._asking:
            return f"{where}: {explained(error, self._asking, self._policy())}"
        return f"{where} raised {type(error).__name__}: {one_line(say(error), 300)}"

    def stop_at_limit(self, limit: LimitError) -> Update:
        """Return the update that ends the run at a limit, with what was found so far."""
        found = found_so_far(self.path)
        partial = "\n\n".join(f"{result['frame']} {result['task']}\n{result['answer']}" for result in found)
        return self.halt("limited", f"{self.frame['id']}: {limit}", partial=partial or None)


def node(role: str) -> Callable[[Callable[[Step], Awaitable[Update]]], NodeFunction]:
    """Turn ``async (step) -> update`` into the LangGraph node named ``role``."""

    def decorate(work: Callable[[Step], Awaitable[Update]]) -> NodeFunction:
        async def run(state: State, runtime: Runtime[Context]) -> Update:
            step = Step(role, state, runtime)
            step.begin()
            current_request.set(step.request)
            return await _within_boundary(step, work)

        run.__name__ = run.__qualname__ = role
        run.__doc__ = work.__doc__
        return run

    return decorate


async def _within_boundary(step: Step, work: Callable[[Step], Awaitable[Update]]) -> Update:
    try:
        return await _within_deadline(step, work)
    except GraphBubbleUp:
        raise
    except LimitError as limit:
        return step.stop_at_limit(limit)
    except CallError as error:
        return step.fail(step.explain(error))
    except Exception as error:  # noqa: BLE001  # the frame's boundary: any fault of a component or client becomes its status
        _log.debug("frame %s: %s failed", step.frame["id"], step.role, exc_info=error)
        return step.fail(step.explain(error))


async def _within_deadline(step: Step, work: Callable[[Step], Awaitable[Update]]) -> Update:
    remaining = step.remaining()
    if remaining is None:
        return await work(step)
    reached = LimitError("deadline", f"deadline = {step.context.deadline} s reached")
    if remaining <= 0:
        raise reached
    scope = asyncio.timeout(remaining)
    try:
        async with scope:
            return await work(step)
    except TimeoutError:
        if scope.expired():
            raise reached from None
        raise
