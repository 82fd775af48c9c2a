"""Fork: work on a task's subtasks side by side, each as soon as those it depends on are done.

Supersteps are barriers, so each child runs in a LangGraph task of its own: it waits for its predecessors and then
runs the machine as a subgraph, which checkpoints, streams and interrupts through the parent. LangGraph matches saved
results to children by the order in which the tasks are started, which is the plan's own (``frames.plan.order``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NotRequired, cast

from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.func import task
from langgraph.types import Interrupt
from typing_extensions import TypedDict

from frames.errors import LimitError
from frames.frame import ChildResult, Frame, child, child_id, child_result, is_instance, is_limited
from frames.plan import order
from frames.stack import joined, not_begun, with_result
from frames.state import Call, Status
from frames.text import one_line
from frames.trace import Trace
from nodes.artifacts import keep_large
from nodes.context import Context
from nodes.shared import Shared
from nodes.step import Step, Update, node

RunBranch = Callable[[dict[str, Any], dict[str, Any], Context], Awaitable[dict[str, Any]]]
"""Runs the machine on a branch: input, config and context in, the branch's last state out."""


BRANCH = ["stack", "status", "halted", "found", "gaps", "notes", "traces", "calls", "frames"]
"""What is read of a branch's last state."""


class Branch(TypedDict):
    """What a branch gives: its frame's result, how it ended, and its part of the run's account.

    ``found`` are the answers within it where it ended at a limit; ``halted``: that limit cuts off the whole run.
    """

    result: ChildResult
    status: Status
    halted: NotRequired[bool]
    found: list[ChildResult]
    gaps: list[str]
    notes: list[str]
    traces: list[Trace]
    calls: list[Call]
    frames: int


class _Fork:
    """One fork at work: its frame, what its branches have given so far, and whether they are to stop."""

    def __init__(self, step: Step, run_branch: RunBranch) -> None:
        self.step, self.run_branch = step, run_branch
        self.parent = step.frame
        self.context = step.context if step.context.shared else step.context.sharing(_shared(step))
        self.stop = asyncio.Event()
        self.done: dict[str, asyncio.Future[Branch]] = {}
        self.interrupts: list[Interrupt] = []
        self.config = {"recursion_limit": get_config().get("recursion_limit", 10_000)}

    @property
    def shared(self) -> Shared:
        assert self.context.shared  # noqa: S101  # set when it was made
        return self.context.shared

    async def run(self) -> list[Branch]:
        """Return what the branches gave, those that ended in the plan's order."""
        plan = self.parent["plan"]
        known = {result["frame"] for result in self.parent["results"]} if is_instance(self.parent) else set[str]()
        places = [index for index in order(plan) if child_id(self.parent, index) not in known]
        for index in places:
            subtask = plan[index]
            before = [self.done[name] for name in subtask["depends_on"]]
            self.done[subtask["id"]] = self._start(index, before)
        await asyncio.gather(*map(self._heeded, self.done.values()))
        futures = {index: self.done[plan[index]["id"]] for index in sorted(places)}
        self._raise(list(futures.values()))
        return [self._given(index, future) for index, future in futures.items()]

    def _start(self, index: int, before: Sequence["asyncio.Future[Branch]"]) -> "asyncio.Future[Branch]":
        async def branch(_frame: str) -> Branch:  # the argument names the branch in traces
            results = [await asyncio.shield(future) for future in before]
            return await self._work(index, results)

        if self.context.journal and self.context.journal.replays:  # nothing of it is saved
            return asyncio.ensure_future(branch(""))
        frame = child_id(self.parent, index)
        started: Any = task(name=f"branch {frame}")(branch)(frame)
        return started

    async def _heeded(self, future: "asyncio.Future[Branch]") -> None:
        """Wait for a branch and count it; where its failure fails the fork, stop the others."""
        await asyncio.wait([future])
        if future.cancelled() or future.exception():
            return
        branch = future.result()
        self.shared.enter(branch["result"]["frame"], branch["calls"], branch["frames"])
        self.shared.end(branch["result"]["frame"])
        failed = branch["status"] == "failed" or (branch["status"] == "limited" and not _is_halted(branch))
        if failed and self.context.on_failure == "fail":
            self.stop.set()

    async def _work(self, index: int, before: Sequence[Branch]) -> Branch:
        parent = self.parent
        for branch in before:
            parent = with_result(parent, branch["result"])
        frame = child(parent, index)
        if self.shared.reached:
            why = f"not begun: {self.shared.reached}"
            return _ended(child_result(frame, failed=why), "limited", halted=True, gaps=[f"{frame['id']}: {why}"])
        if self.stop.is_set():
            return _ended(child_result(frame, failed="not begun"), "cancelled")
        doomed = next((result for result in parent["results"] if result["frame"] == frame["id"]), None)
        if doomed and not doomed["failed"]:  # its answer was given
            return _ended(doomed, "succeeded")
        if doomed:
            return _ended(doomed, "failed", gaps=[f"{frame['id']}: {doomed['failed']}"])
        self.step.announce(frame)
        run = asyncio.ensure_future(self._within_boundary(frame))
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait([run, stopped], return_when=asyncio.FIRST_COMPLETED)
            if run.done():
                return run.result()
        except GraphInterrupt as interrupt:
            self.interrupts += interrupt.args[0]
            raise GraphInterrupt(()) from None  # the fork raises them all, each once
        finally:
            stopped.cancel()
            run.cancel()
            await asyncio.wait([run])
        return self._cut_off(frame, "cancelled, for a sibling failed", "cancelled")

    def _cut_off(self, frame: Frame, why: str, status: Status, **account: Any) -> Branch:
        """Return what is kept of a branch that gave nothing itself: its calls and the count of its frames."""
        self.step.end_below(frame["id"])
        calls, frames = self.shared.made_below(frame["id"]), self.shared.planned_below(frame["id"])
        return _ended(child_result(frame, failed=why), status, calls=calls, frames=frames, **account)

    async def _within_boundary(self, frame: Frame) -> Branch:
        try:
            return await self._run(frame)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001  # the frame's boundary: what ends a branch is no end to its siblings
            gap = f"{frame['id']}: raised {type(error).__name__}: {one_line(str(error), 300)}"
            return self._cut_off(frame, gap.partition(": ")[2], "failed", gaps=[gap])

    async def _run(self, frame: Frame) -> Branch:
        step = self.step
        start = {
            "task": frame["task"],
            "stack": [{"op": "push", "frame": frame}],
            "started": step.started,
            "above": step.lineage,
            "frames": 0,
        }
        state = await self.run_branch(start, self.config, self.context)
        ended: Frame = state["stack"][0]
        failed = None if state["status"] == "succeeded" else _why(frame, state["gaps"])
        kept = None if failed else await keep_large(step.artifacts, ended, self.context.inline_chars)
        return _ended(
            child_result(ended, failed=failed, kept=kept, limited=state["status"] == "limited"),
            state["status"],
            halted=state.get("halted", False),
            found=state.get("found", []),
            **{name: state[name] for name in ("gaps", "notes", "traces", "calls", "frames")},
        )

    def _raise(self, futures: Sequence["asyncio.Future[Branch]"]) -> None:
        """Raise what branches ended with instead of a result: a drain or a fault first, else all that they ask."""
        faults = [fault for future in futures if (fault := future.exception())]
        other = next((fault for fault in faults if not isinstance(fault, GraphInterrupt)), None)
        if other:
            raise other
        if faults and not self.stop.is_set():
            raise GraphInterrupt(tuple(self.interrupts))

    def _given(self, index: int, future: "asyncio.Future[Branch]") -> Branch:
        """Return what a branch gave; where a sibling's failure fails the fork, one that asks a person is cut off."""
        if future.exception():
            return self._cut_off(child(self.parent, index), "cancelled, for a sibling failed", "cancelled")
        return future.result()


def forking(run_branch: RunBranch) -> Any:
    """Return the node that works on subtasks side by side, each by ``run_branch``."""

    @node("fork", bounded=False)  # its branches keep to the deadline, and what they found is kept
    async def fork(step: Step) -> Update:
        """Work on the frame's subtasks side by side, and send their results to ``aggregate``."""
        work = _Fork(step, run_branch)
        branches = await work.run()
        return _joined(step, branches, work.shared.reached)

    return fork


def _joined(step: Step, branches: Sequence[Branch], limit: LimitError | None) -> Update:
    """Return the update that takes in what the branches gave; ``limit`` is the one that was reached."""
    results = [branch["result"] for branch in branches]
    account: dict[str, Any] = {
        name: [entry for branch in branches for entry in branch[name]] for name in ("gaps", "traces", "notes", "calls")
    }
    account["frames"] = step.frames + sum(branch["frames"] for branch in branches)
    answered = [result for result in results if not result["failed"]]
    found = [
        result
        for branch in branches
        for result in (branch["found"] if branch["result"]["failed"] else [branch["result"]])
    ]
    if any(map(_is_halted, branches)):
        account["gaps"] += not_begun(step.path, str(limit or "a limit was reached"))  # before a person was asked
        return step.halt("limited", found=found, halted=True, **account)
    limited = any(map(is_limited, results))
    if len(answered) < len(results) and step.context.on_failure == "fail":
        return step.halt("limited" if limited else "failed", found=found, **account)
    if not answered and not is_instance(step.frame):
        why = f"{step.frame['id']}: none of its subtasks has an answer"
        return step.fail(why, found=found, limited=limited, **account)
    return step.update(*joined(step.frame, results), **account)


def _ended(result: ChildResult, status: Status, **account: Any) -> Branch:
    blank = Branch(result=result, status=status, found=[], gaps=[], notes=[], traces=[], calls=[], frames=0)
    return cast("Branch", {**blank, **account})


def _is_halted(branch: Branch) -> bool:
    """Whether a limit that cuts off the whole run ended a branch; before there were others, each limit did."""
    return branch.get("halted", branch["status"] == "limited")


def _why(frame: Frame, gaps: Sequence[str]) -> str:
    """Return why a branch has no answer: what its own frame says, or else its last word."""
    own = [gap.partition(": ")[2] for gap in gaps if gap.startswith(f"{frame['id']}: ")]
    return (own or list(gaps) or ["it gave no answer"])[-1]


def _shared(step: Step) -> Shared:
    shared = Shared(step.context.parallel)
    shared.enter(step.path[0]["id"], step.ask.before, step.frames)
    return shared
