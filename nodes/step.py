"""A step: what a node sees of the run, and the update that it leaves.

A node takes the top frame, asks a component and returns an update. ``node`` turns such a function into
LangGraph's ``async (state, runtime) -> update`` and is the frame's boundary: whatever goes wrong inside
becomes a status with a reason, and the stack stays as it was.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, Literal

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from frames.errors import CactusError, CallError, LimitError
from frames.events import Event
from frames.frame import (
    ChildResult,
    Frame,
    Named,
    Phase,
    checked_task,
    child_result,
    is_instance,
    is_limited,
    is_planned,
    root,
)
from frames.journal import digest
from frames.limits import DIRECTLY
from frames.stack import Op, Stack, fold, found_so_far, found_text, has_answers, new_gaps, not_begun
from frames.state import SCHEMA, Call, State
from frames.text import one_line
from frames.trace import Trace
from nodes.artifacts import Artifacts, keep_large
from nodes.asking import Asking
from nodes.context import Context
from nodes.models.call import explained, say
from nodes.models.request import current_request

Update = dict[str, Any]
NodeFunction = Callable[[State, Runtime[Context]], Awaitable[Update]]

_log = logging.getLogger("cactus")

_ASKS = {"act": "solve"}
"""The role that a node's model plays, where it is not the node's own name."""


class Step:
    """One step of a run: the top frame, the run's context, and what this step adds.

    ``ask`` asks models on its behalf. ``fresh`` is set for the first step of a task: it puts the root on the
    stack and clears what an earlier task on the same thread left.
    """

    def __init__(self, role: str, state: State, runtime: Runtime[Context]) -> None:
        self.role = role
        self.context = runtime.context
        self._state = state
        stack = state.get("stack") or []
        task = checked_task(state.get("task"))
        self.fresh = not stack or state.get("status") is not None or stack[0]["task"] != task
        self.path: Stack = [root(task)] if self.fresh else stack
        self.started: float = self.context.now() if self.fresh else state["started"]
        self.frames: int = 1 if self.fresh else state["frames"]
        info = runtime.execution_info
        self.artifacts = Artifacts(runtime.store, (info.thread_id if info else None) or "")
        self._stream, self._counts = runtime.stream_writer, dict[str, int]()
        self.ask = Asking(_ASKS.get(role, role), self.path[-1], self.context, self.artifacts, self.emit)
        self.ask.control = runtime.control
        self.ask.before = [] if self.fresh else state["calls"]
        if self.context.shared:
            self.context.shared.enter(self.path[0]["id"], self.ask.before, self.frames)
            if budget := self.context.shared.budget:
                budget.enter(self.path)

    @property
    def frame(self) -> Frame:
        """The frame being worked on."""
        return self.path[-1]

    @property
    def is_branch(self) -> bool:
        """Whether this is a branch of a fork, and not the whole run."""
        return self.path[0]["id"] != "0"

    @property
    def lineage(self) -> list[Named]:
        """The frames from the run's root to this one, beyond the branch's own stack too."""
        above = [] if self.fresh else self._state.get("above") or []
        return [*above, *(Named(id=frame["id"], task=frame["task"]) for frame in self.path)]

    @property
    def made_so_far(self) -> int:
        """The frames that the whole run has made."""
        return self.context.shared.frames if self.context.shared else self.frames

    @property
    def has_attempts(self) -> bool:
        """Whether the frame has a further attempt; a child that is done anew has one only."""
        done_anew = not is_planned(self.frame) and self.frame["stale"] is not None
        return self.frame["attempt"] < self.context.max_retries and not done_anew

    @property
    def may_retry(self) -> bool:
        """Whether a further attempt is left that is told what was wrong: the same request is not made again."""
        return self.context.feedback_on_retry and self.has_attempts

    # --- what a node does -------------------------------------------------------------------------------

    def emit(self, event: Event | dict[str, Any]) -> None:
        """Tell whoever watches, and the run's log, of an event."""
        log = self.context.events
        told = log.tell(self._turn, event, self._counts) if log else event
        if told is not None:
            self._stream(told)

    @cached_property
    def _turn(self) -> str:
        """What tells this step from all others of the run, in whichever process it is done."""
        frame = self.frame
        done = [[result["frame"], result["failed"]] for result in [*frame["results"], *(frame["stale"] or [])]]
        replies = frame["approval"]["replies"] if "approval" in frame else 0
        about = [frame["id"], frame["phase"], frame["attempt"], frame["feedback"], len(frame["plan"]), replies, done]
        if instance := frame.get("instance"):
            about += [len(frame.get("turns", ())), instance["ended"]]
        return digest([self.role, frame["stale"] is None, *about])

    def emit_answer(self, text: str) -> None:
        """Tell whoever watches that the frame has an answer."""
        self.emit(
            {
                "event": "answer",
                "frame": self.frame["id"],
                "role": self.role,
                "attempt": self.frame["attempt"],
                "answer": text,
            }
        )

    # --- what a node returns ----------------------------------------------------------------------------

    def go(self, phase: Phase, *, traces: Sequence[Trace] = (), notes: Sequence[str] = (), **fields: Any) -> Update:
        """Return the update that sets ``fields`` of the frame and sends it to ``phase``."""
        op: Op = {"op": "revise", "fields": {"phase": phase, **fields}}
        return self.update(op, traces=traces, notes=notes)

    async def settle(self, *, traces: Sequence[Trace]) -> Update:
        """Return the update that pops the accepted frame; the root's, or a branch's, ends the run.

        Where a limit had an effect on the root's answer, that is a partial one.
        """
        self._end_frame(self.frame["id"], success=True)
        if len(self.path) == 1 and not self.is_branch:
            answer = self.frame["answer"]
            if is_limited(self.frame):
                return self.update({"op": "settle"}, traces=traces, **self._end("limited", partial=answer))
            return self.update({"op": "settle"}, traces=traces, **self._end("succeeded", output=answer))
        if len(self.path) == 1:  # the fork takes the answer off the stack: it is not saved once more
            return self.update(traces=traces, **self._end("succeeded"))
        kept = await keep_large(self.artifacts, self.frame, self.context.inline_chars)
        op: Op = {"op": "settle", "kept": kept} if kept else {"op": "settle"}
        self.announce(fold(self.path, [[op]])[-1])
        return self.update(op, traces=traces)

    async def take(self, answer: str, *, traces: Sequence[Trace]) -> Update:
        """Return the update that settles the frame with an answer that was accepted below it already."""
        fields: Op = {"op": "revise", "fields": {"answer": answer}}
        self.path = fold(self.path, [[fields]])
        update = await self.settle(traces=traces)
        return {**update, "stack": [fields, *update.get("stack", [])]}

    def fail(
        self,
        gap: str,
        *,
        gaps: Sequence[str] = (),
        found: Sequence[ChildResult] = (),
        limited: bool = False,
        unjudged: bool = False,
        **account: Any,
    ) -> Update:
        """Return the update for a frame without an answer: it fails its branch, or leaves a gap in its parent's plan.

        ``gap`` says which frame and why. Under the policy ``partial`` the frames above it fail in turn while
        they have no other child's answer. ``found`` are answers beyond those on the stack. ``limited``: a limit is
        why, so that the run ends at a limit and not in a failure. ``unjudged``: as in ``halt``.
        """
        limited = limited or is_limited(self.frame)
        if self.context.on_failure == "fail":
            return self.halt("limited" if limited else "failed", gaps=[*gaps, gap], found=found, **account)
        self._end_frame(self.frame["id"], success=False)
        path, ops, gaps = self.path, list[Op](), list(gaps)
        while len(path) > 1:
            op: Op = {"op": "settle", "failed": gap.partition(": ")[2]}
            if limited:
                op["limited"] = True
            below, before = len(path) - 2, path[-2]
            path = fold(path, [[op]])
            ops.append(op)
            gaps += new_gaps(before, path[below])
            if len(path) > below + 1 or has_answers(path[-1]):
                self.announce(path[-1])
                return self.update(*ops, gaps=gaps, **account)
            gap, limited = f"{path[-1]['id']}: none of its subtasks has an answer", is_limited(path[-1])
            if len(path) > 1:
                self._end_frame(path[-1]["id"], success=False)
        account["unjudged"] = unjudged and len(self.path) == 1
        return self.halt("limited" if limited else "failed", gaps=[*gaps, gap], found=found, **account)

    def at_limit(self, limit: LimitError) -> Update:
        """Return the update for a step that a limit stops: the frame goes on without it, or fails, or the run ends.

        A combination fails its frame while something is kept back for those above it; where nothing is left, the run
        ends with what was found.
        """
        shared, frame = self.context.shared, self.frame
        reached = limit.name == "deadline" or (shared is not None and shared.reached is not None)
        if not self.context.soft_limits or reached:
            return self.limited(limit)
        if self.role in ("atomize", "investigate", "decompose"):
            return self.directly(limit)
        combines = is_planned(frame) and not is_instance(frame)
        ends = combines and not (limit.kept and frame["id"] != "0")
        if self.context.on_failure == "fail" or self.role not in ("solve", "verify", "aggregate") or ends:
            return self.limited(limit)
        self.tell_limit(limit)
        return self.fail(f"{frame['id']}: {limit}", limited=True, unjudged=self.role == "verify")

    def directly(self, limit: LimitError) -> Update:
        """Return the update that has the frame solved directly, for a limit leaves no room to split it."""
        self.tell_limit(limit)
        op: Op = {"op": "revise", "fields": {"phase": "solve", "plan": [], "limited": True}}
        return self.update(op, gaps=[f"{self.frame['id']}: {limit}{DIRECTLY}"])

    def limited(self, limit: LimitError) -> Update:
        """Return the update that ends the run at a limit, with what was found so far."""
        self.tell_limit(limit)
        if self.context.shared:
            self.context.shared.reached = limit
        gaps = [f"{self.frame['id']}: {limit}", *not_begun(self.path, str(limit))]
        unjudged = self.role == "verify" and self.context.profile != "classic"
        return self.halt("limited", gaps=gaps, halted=True, unjudged=unjudged)

    def halt(
        self,
        status: Literal["failed", "limited"],
        *,
        found: Sequence[ChildResult] = (),
        halted: bool = False,
        unjudged: bool = False,
        **account: Any,
    ) -> Update:
        """Return the update that ends the run, or the branch, here, the stack left as it is.

        ``found`` are answers beyond those on the stack; a limit, and in all but ``classic`` a failure, gives them.
        ``halted``: a limit cuts off the whole run. ``unjudged``: the frame has an answer that could not be verified,
        which the root gives as it is, and a combination in place of what it combines.
        """
        self.end_below(self.path[0]["id"])
        found = [*found_so_far(self.path), *found] if self.context.profile != "classic" or status == "limited" else []
        whole = len(self.path) == 1 and not self.is_branch
        if unjudged and (whole or is_planned(self.frame)):
            found = [*found_so_far(self.path[:-1]), child_result(self.frame)]
        partial = self.frame["answer"] if unjudged and whole else found_text(found)
        if whole and (instance := self.frame.get("instance")):
            partial = self.frame["answer"] or instance["partial"] or partial
        return self.update(**self._end(status, partial=partial, halted=halted), found=found, **account)

    def update(
        self,
        *ops: Op,
        traces: Sequence[Trace] = (),
        notes: Sequence[str] = (),
        gaps: Sequence[str] = (),
        calls: Sequence[Call] = (),
        **channels: Any,
    ) -> Update:
        """Return the update of ``ops`` on the stack and of further channels."""
        appended = {
            "traces": list(traces),
            "calls": [*self.ask.calls, *calls],
            "notes": [*self.ask.notes, *notes],
            "gaps": list(gaps),
        }
        if self.fresh:
            begin: list[Op] = [{"op": "reset"}, {"op": "push", "frame": self.frame}]
            reset = {name: Overwrite(entries) for name, entries in appended.items()}
            return self._blank() | {"stack": [*begin, *ops]} | reset | channels
        if any(op["op"] == "descend" for op in ops):
            self.announce(fold(self.path, [ops])[-1])
        update: Update = {name: entries for name, entries in appended.items() if entries}
        return update | ({"stack": list(ops)} if ops else {}) | channels

    # --- inside -----------------------------------------------------------------------------------------

    @property
    def _began(self) -> float:
        """When the run began, the time that it did not run left out."""
        began = self.context.shared.began if self.context.shared else None
        return self.started if began is None else began

    def _blank(self) -> Update:
        return {
            "task": self.path[0]["task"],
            "schema": SCHEMA,
            "started": self.started,
            "above": [],
            "frames": 1,
            "status": None,
            "success": False,
            "output": None,
            "partial": None,
            "found": [],
            "halted": False,
            "duration_ms": 0,
        }

    def _end(
        self, status: str, *, output: str | None = None, partial: str | None = None, halted: bool = False
    ) -> Update:
        if self.is_branch:
            return {"status": status, "halted": halted}
        return {
            "status": status,
            "halted": halted,
            "success": status == "succeeded",
            "output": output,
            "partial": partial,
            "duration_ms": round((self.context.now() - self._began) * 1000),
        }

    def end_below(self, frame: str) -> None:
        """Tell whoever watches that a frame and all that were begun below it end without an answer."""
        shared = self.context.shared
        begun = shared.open if shared else {entry["id"] for entry in self.path}
        ending = [id_ for id_ in begun if id_ == frame or id_.startswith(f"{frame}.")]
        for id_ in sorted(ending, key=lambda id_: (-id_.count("."), id_)):
            self._end_frame(id_, success=False)

    def tell_limit(self, limit: LimitError) -> None:
        """Tell whoever watches that a limit had an effect on the frame."""
        self.emit({"event": "limit", "frame": self.frame["id"], "limit": limit.name, "reason": str(limit)})

    def _end_frame(self, frame: str, *, success: bool) -> None:
        if self.context.shared:
            self.context.shared.open.discard(frame)
            self.context.shared.end(frame)
        self.emit({"event": "done", "frame": frame, "success": success})

    def announce(self, frame: Frame) -> None:
        """Tell whoever watches that a frame was made."""
        if self.context.shared:
            self.context.shared.open.add(frame["id"])
        if frame["phase"] != "atomize" and (frame["phase"] != "act" or is_instance(frame)):
            return
        self.emit(
            {
                "event": "frame",
                "frame": frame["id"],
                "task": frame["task"],
                "depth": frame["depth"],
                "kind": frame["kind"],
            }
        )

    def begin(self) -> None:
        """Tell whoever watches that the step has begun."""
        if self.fresh:
            self.announce(self.frame)
        self.emit({"event": "step", "frame": self.frame["id"], "role": self.role, "attempt": self.frame["attempt"]})

    def remaining(self) -> float | None:
        """Return the seconds until the run's deadline; ``None`` without one."""
        deadline = self.context.deadline
        journal = self.context.journal
        if deadline is None or (journal and journal.replays):
            return None
        return self._began + deadline - self.context.now()

    def explain(self, error: Exception) -> str:
        """Return what went wrong, and where, on one line."""
        where = f"{self.frame['id']}: {self.role}"
        if isinstance(error, CactusError):
            return f"{where}: {error}"
        if self.ask.asked:
            return f"{where}: {explained(error, self.ask.asked, self.ask.policy())}"
        return f"{where} raised {type(error).__name__}: {one_line(say(error), 300)}"


def node(role: str, *, bounded: bool = True) -> Callable[[Callable[[Step], Awaitable[Update]]], NodeFunction]:
    """Turn ``async (step) -> update`` into the LangGraph node named ``role``; ``bounded`` by the run's deadline."""

    def decorate(work: Callable[[Step], Awaitable[Update]]) -> NodeFunction:
        async def run(state: State, runtime: Runtime[Context]) -> Update:
            step = Step(role, state, runtime)
            step.begin()
            current_request.set(step.ask.request)
            try:
                return await _within_boundary(step, work, bounded=bounded)
            finally:
                if step.context.events:
                    await step.context.events.flush()

        run.__name__ = run.__qualname__ = role
        run.__doc__ = work.__doc__
        return run

    return decorate


async def _within_boundary(step: Step, work: Callable[[Step], Awaitable[Update]], *, bounded: bool) -> Update:
    try:
        return await (_within_deadline(step, work) if bounded else work(step))
    except GraphBubbleUp:
        raise
    except LimitError as limit:
        return step.at_limit(limit)
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
