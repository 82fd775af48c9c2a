"""The runs of a database: started, gone on with, replayed and forked, each by one process at a time."""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import Any

from langgraph.runtime import RunControl

from frames.errors import CactusError, UsageError
from frames.journal import Entry, difference
from frames.text import clean
from graph.bound import bound_of
from graph.build import make_graph
from graph.result import SolveResult, from_dict
from graph.run import replayed, result_of, run
from graph.store import LEASE_SECONDS, Run, Store
from nodes.change import Change
from nodes.context import Context
from nodes.journal import Journal, MissedError, Mode, ReplayError

_HOLD_EVERY = LEASE_SECONDS / 6


class _Book:
    """The journal of one run in the database."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    async def write(self, entry: Entry) -> None:
        await self._store.write(self._run_id, entry)

    async def find(self, memo: str) -> Entry | None:
        return await self._store.find_answer(memo)


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
        async with self._held(new_id) as spent:
            async for event in self._run(context, task, new_id, "anew", spent, control, change):
                yield event

    async def replay(self, context: Context, run_id: str) -> SolveResult:
        """Work a run through from its journal alone, in memory, and return its result, which is the recorded one.

        Raises:
            ReplayError: the machine asks, or answers, something else than was recorded.
        """
        recorded = await self.result(context, run_id)
        journal = Journal(
            await self.store.entries(run_id), mode="replay", ended=recorded.status in ("succeeded", "failed")
        )
        row = await self.find(run_id)
        try:
            result = await replayed(context, row["task"], run_id, journal, change_of(row))
        except MissedError as missed:
            if missed.beyond:
                return recorded
            raise ReplayError(str(missed)) from None
        compared = ("status", "output", "partial", "gaps", "notes", "traces", "frames")
        was, now = recorded.to_dict(), result.to_dict()
        for name in compared if recorded.status in ("succeeded", "failed") else ():
            if was[name] != now[name]:
                raise ReplayError(f"the replay gives other {name}:\n{difference(was[name], now[name])}")
        return recorded

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
        journal = Journal(await self.store.entries(run_id), _Book(self.store, run_id), mode)
        more: dict[str, Any] = {"journal": journal, "change": change, "spent": spent, **how}
        try:
            async for event in run(self._graph, context, task, run_id, control, **more):
                if event["event"] == "end":
                    await self.store.set_status(run_id, event["result"]["status"])
                yield event
        except asyncio.CancelledError:
            result = await result_of(self._graph, context, run_id, "cancelled", journal)
            await self.store.set_status(run_id, result.status)
            yield {"event": "end", "result": result.to_dict()}

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
