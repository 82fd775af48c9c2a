"""The runs of a database: started, gone on with, replayed and forked, each by one process at a time."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from langgraph.runtime import RunControl

from frames.errors import CactusError, UsageError
from frames.journal import Entry, difference
from frames.text import clean
from graph.bound import bound_of
from graph.build import make_graph
from graph.history import with_answers
from graph.result import SolveResult, from_dict
from graph.run import ended, replayed, result_of, run
from graph.store import LEASE_SECONDS, Run, Store
from nodes.artifacts import Artifacts, take_over
from nodes.change import Change
from nodes.context import Context
from nodes.event_log import EventLog, Kept
from nodes.journal import Journal, MissedError, Mode, ReplayError

_HOLD_EVERY = LEASE_SECONDS / 6


class _Book:
    """The journal and the events of one run in the database."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    async def write(self, entry: Entry) -> None:
        await self._store.write(self._run_id, entry)

    async def find(self, memo: str) -> Entry | None:
        return await self._store.find_answer(memo)

    async def append(self, events: Sequence[Kept]) -> None:
        await self._store.append(self._run_id, events)


class Runs:
    """The runs of one database. Each method yields a run's events; the last is ``end``, with the result's document."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._graph = make_graph(store.saver, store=store.artifacts)

    async def start(
        self, context: Context, task: str, run_id: str, control: RunControl | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Solve ``task`` as a new run.

        Raises:
            RunExistsError: the name is taken.
        """
        await self.store.add(run_id, clean(task), settings_of(context), bound_of(context))
        async with self._held(run_id) as spent:
            async for event in self._run(context, task, run_id, "continue", spent, control):
                yield event

    async def resume(
        self,
        context: Context,
        run_id: str,
        control: RunControl | None = None,
        decisions: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Go on with a run: where it was stopped, or, where it ended without an answer, from its journal.

        Nothing that was answered is asked again. A run that succeeded gives its result as it is. ``decisions`` are a
        person's replies to what the run waits for, by the ``id`` of its result's ``pending``.

        Raises:
            RunBusyError: another process works on it.
        """
        await self.find(run_id)
        async with self._held(run_id) as spent:
            row = await self.find(run_id)
            snapshot = await self._graph.aget_state({"configurable": {"thread_id": run_id}})
            status = snapshot.values.get("status")
            if status == "succeeded":
                await self.store.set_status(run_id, status)
                yield {"event": "end", "result": (await self.result(context, run_id)).to_dict()}
                return
            await self.store.set_settings(run_id, settings_of(context) | _kept_change(row), bound_of(context))
            if status:
                await self._close(context, snapshot.config)
            mode: Mode = "anew" if status else "continue"
            goes_on = status is None and bool(snapshot.values)
            how = {"goes_on": goes_on, "decisions": decisions}
            async for event in self._run(context, row["task"], run_id, mode, spent, control, change_of(row), **how):
                yield event

    async def fork(
        self, context: Context, run_id: str, new_id: str, change: Change, control: RunControl | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Work on a run once more, as a new one, with one frame changed: only what depends on it is asked anew.

        Raises:
            UsageError: there is no such frame.
        """
        row = await self.find(run_id)
        snapshot = await self._graph.aget_state({"configurable": {"thread_id": run_id}})
        known = {trace["frame"] for trace in snapshot.values.get("traces", [])}
        known |= {entry["key"].frame for entry in await self.store.entries(run_id)}
        if change.frame not in known:
            raise UsageError(f"run {run_id} has no frame {change.frame}: `cactus show {run_id}` lists them")
        if change.frame == "0" and change.answer is not None:
            raise UsageError("--answer for frame 0 would be the answer of the whole run: name a frame below it")
        task = change.task if change.frame == "0" and change.task else row["task"]
        settings = settings_of(context) | {"change": asdict(change)}
        await self.store.add(new_id, clean(task), settings, bound_of(context))
        await self.store.copy_journal(run_id, new_id)
        await take_over(Artifacts(self.store.artifacts, new_id), Artifacts(self.store.artifacts, run_id))
        async with self._held(new_id) as spent:
            async for event in self._run(context, task, new_id, "anew", spent, control, change):
                yield event

    async def replay(self, context: Context, run_id: str) -> SolveResult:
        """Work a run through from its journal alone, in memory, and return its result, which is the recorded one.

        Raises:
            ReplayError: the machine asks, or answers, something else than was recorded.
        """
        recorded = await self.result(context, run_id)
        came_to_end = await self._came_to_end(run_id)
        journal = Journal(await self.store.entries(run_id), mode="replay", ended=came_to_end)
        log = EventLog(await self.store.events(run_id), replays=True)
        row = await self.find(run_id)
        try:
            result = await replayed(context, row["task"], run_id, journal, change_of(row), log)
        except MissedError as missed:
            if missed.beyond:
                return recorded
            raise ReplayError(str(missed)) from None
        compared = ("status", "output", "partial", "gaps", "notes", "traces", "frames")
        was, now = recorded.to_dict(), result.to_dict()
        for name in compared if came_to_end else ():
            if was[name] != now[name]:
                raise ReplayError(f"the replay gives other {name}:\n{difference(was[name], now[name])}")
        _compare(log, ended=came_to_end)
        return recorded

    async def _close(self, context: Context, config: Any) -> None:
        """Save the checkpoint of a run's last step, where it was killed after the step's writes and before that."""
        saved = await self._graph.aget_state(config)  # by its id: without the writes that wait
        if saved.values.get("status") is None:
            thread: Any = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}
            await self._graph.ainvoke(None, thread, context=context, durability="sync")

    async def _came_to_end(self, run_id: str) -> bool:
        """Whether a run did all that its limits allowed, so that a replay does the same: no limit cut it off."""
        values = (await self._graph.aget_state({"configurable": {"thread_id": run_id}})).values
        status = values.get("status")
        return status in ("succeeded", "failed") or (status == "limited" and not values.get("halted", True))

    async def told(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run, the first first; none where it has not begun, or no release kept any."""
        kept = await self.store.events(run_id)
        return with_answers((event for _, _, event in kept), await self.store.entries(run_id))

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run, the first first, each call with what was asked and said.

        Raises:
            UsageError: there is no such run, or it is of a release that kept no events.
        """
        await self.find(run_id)
        told = await self.told(run_id)
        if not told:
            raise UsageError(f"run {run_id} has no events: it was saved by a release that kept none, or has not begun")
        return told

    async def stack_at(self, run_id: str, step: int) -> dict[str, Any]:
        """Return where a run stood after a step: the ``step``, its ``stack`` of frames, and how many ``steps`` it has.

        Raises:
            UsageError: it has no such step.
        """
        await self.find(run_id)
        config: Any = {"configurable": {"thread_id": run_id}}
        last = 0
        async for snapshot in self._graph.aget_state_history(config):
            at: int = (snapshot.metadata or {}).get("step", 0)
            last = max(last, at)
            if at == step:
                return {"run_id": run_id, "step": step, "steps": last, "stack": snapshot.values.get("stack", [])}
        raise UsageError(f"run {run_id} has no step {step}: its steps are 0 to {last}")

    @staticmethod
    async def outcome(events: AsyncIterator[dict[str, Any]]) -> SolveResult:
        """Return the result that a run's events end with."""
        document: dict[str, Any] = {}
        async for event in events:
            document = event.get("result", document)
        return from_dict(document)

    async def find(self, run_id: str) -> Run:
        """Return the run of that name.

        Raises:
            UsageError: there is none.
        """
        row = await self.store.find(run_id)
        if row is None:
            raise UsageError(f"no run {run_id[:60]!r}: `cactus runs` lists them")
        return row

    async def result(self, context: Context, run_id: str) -> SolveResult:
        """Return what a run has given so far."""
        row = await self.find(run_id)
        journal = Journal(await self.store.entries(run_id))
        unfinished: Any = row["status"] if row["status"] == "cancelled" else "interrupted"
        return await result_of(self._graph, context, run_id, unfinished, journal)

    async def _run(
        self,
        context: Context,
        task: str,
        run_id: str,
        mode: Mode,
        spent: float,
        control: RunControl | None,
        change: Change | None = None,
        **how: Any,
    ) -> AsyncIterator[dict[str, Any]]:
        book = _Book(self.store, run_id)
        journal = Journal(await self.store.entries(run_id), book, mode)
        log = EventLog(await self.store.events(run_id), book, context.now)
        more: dict[str, Any] = {"journal": journal, "change": change, "spent": spent, "log": log, **how}
        try:
            async for event in run(self._graph, context, task, run_id, control, **more):
                if event["event"] == "end":
                    await self.store.set_status(run_id, event["result"]["status"])
                yield event
        except asyncio.CancelledError:
            result = await result_of(self._graph, context, run_id, "cancelled", journal)
            await self.store.set_status(run_id, result.status)
            yield await ended(result, log)

    @asynccontextmanager
    async def _held(self, run_id: str) -> AsyncGenerator[float]:
        """Hold the lease of a run, and give the seconds that it has taken so far."""
        token, began = secrets.token_hex(8), time.monotonic()
        spent = await self.store.take(run_id, token)
        holding = asyncio.ensure_future(self._hold(run_id, token, spent, began, asyncio.current_task()))
        try:
            yield spent
        finally:
            holding.cancel()
            with suppress(asyncio.CancelledError):
                await holding
            await self.store.give_back(run_id, token, spent + time.monotonic() - began)

    async def _hold(
        self, run_id: str, token: str, spent: float, began: float, holder: "asyncio.Task[Any] | None"
    ) -> None:
        while True:
            await asyncio.sleep(_HOLD_EVERY)
            if not await self.store.hold(run_id, token, spent + time.monotonic() - began) and holder:
                holder.cancel("another process took the run over")
                return


def settings_of(context: Context) -> dict[str, Any]:
    """Return the settings of a run as they are kept with it."""
    return context.model_dump(mode="json", exclude_none=True)


def change_of(row: Run) -> Change | None:
    """Return what a run that is a fork of another changes."""
    change = row["settings"].get("change")
    return Change(**change) if change else None


def _compare(log: EventLog, *, ended: bool) -> None:
    """Check that a replay has told what the run did, and, where that came to its end in one session, all of it.

    Raises:
        ReplayError: it has not.
    """
    if log.strange and not log.empty:
        raise ReplayError(f"the replay tells what the run did not: {json.dumps(log.strange[0], ensure_ascii=False)}")
    untold = log.untold() if ended and log.sessions == 1 else []
    if untold:
        raise ReplayError(f"the replay does not tell what the run did: {json.dumps(untold[0], ensure_ascii=False)}")


def _kept_change(row: Run) -> dict[str, Any]:
    return {"change": row["settings"]["change"]} if "change" in row["settings"] else {}


def with_settings(row: Run, changed: Mapping[str, Any]) -> Context:
    """Return the settings of a kept run, some of them changed.

    Raises:
        UsageError: a setting is out of its range.
    """
    try:
        settings = {name: value for name, value in row["settings"].items() if name != "change"}
        return Context.checked(**{**settings, **changed})
    except CactusError as error:
        raise UsageError(f"run {row['run_id']}: {error}") from error
