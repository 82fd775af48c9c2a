"""A run at the terminal: the store opened, models found, progress shown, Ctrl-C heeded, the outcome kept."""

import asyncio
import contextlib
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl
from langgraph.store.memory import InMemoryStore

from frames.errors import UsageError
from frames.limits import Bound
from graph.bound import bound_of
from graph.build import make_graph
from graph.run import result_of, run
from graph.runs import Runs
from graph.store import open_store
from nodes.change import Change
from nodes.context import Context
from nodes.models.local import LocalServer
from nodes.models.resolve import Models
from studio.approving import Pending, decide
from studio.fetching import Fetching
from studio.live import LiveView

LOCAL_HINT = (
    "local is a small offline demonstration model; for better answers: export OPENAI_API_KEY=… "
    "and --model openai:gpt-5-mini, or any --model PROVIDER:NAME"
)


class Session:
    """One run at the terminal. ``db`` is where it lives, ``None`` the default; ``keep`` is off for demos."""

    def __init__(
        self, context: Context, db: str | None, run_id: str | None, *, quiet: bool = False, keep: bool = True
    ) -> None:
        models = Models(context.call_timeout, None if quiet else Fetching())
        self.context = context.with_components(context.components, models)
        self.run_id = checked_run_id(run_id) if run_id is not None else new_run_id()
        self._db = db
        self._quiet = quiet
        self._keep = keep

    async def solve(self, task: str) -> dict[str, Any]:
        """Return the document of the solved task.

        Raises:
            UsageError: a model, the database or the run's name will not do.
        """
        if self._keep:
            return await self._kept(lambda runs, control: runs.start(self.context, task, self.run_id, control))
        graph = make_graph(InMemorySaver(), store=InMemoryStore())
        with self._stopping() as stopping:
            await asyncio.to_thread(self._find_models)
            try:
                return await self._watched(run(graph, self.context, task, self.run_id, stopping.control), stopping)
            except asyncio.CancelledError:
                stopping.running = False
                return (await result_of(graph, self.context, self.run_id, "cancelled")).to_dict()

    async def resume(self, decisions: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the document of the run, gone on with, given a person's replies to what it waits for.

        Raises:
            UsageError: there is no such run, or another process works on it.
        """
        return await self._kept(
            lambda runs, control: runs.resume(self.context, self.run_id, control, decisions), goes_on=True
        )

    async def fork(self, run_id: str, change: Change) -> dict[str, Any]:
        """Return the document of a new run, a fork of ``run_id`` with one frame changed.

        Raises:
            UsageError: there is no such run or frame.
        """
        for name in (name for names in change.models.values() for name in names):
            await asyncio.to_thread(self.context.models.resolve, name)
        return await self._kept(lambda runs, control: runs.fork(self.context, run_id, self.run_id, change, control))

    async def _kept(
        self, begin: Callable[[Runs, RunControl], AsyncIterator[dict[str, Any]]], *, goes_on: bool = False
    ) -> dict[str, Any]:
        with self._stopping() as stopping:
            await asyncio.to_thread(self._find_models)
            async with open_store(self._db) as store:
                runs = Runs(store)
                told = await runs.told(self.run_id) if goes_on and not self._quiet else []
                return await self._watched(begin(runs, stopping.control), stopping, told)

    def decided(self, document: dict[str, Any], *, asks: bool) -> dict[str, Any]:
        """Return the document of a run that waits for nobody, or that nobody decides on; ``asks``: at the terminal."""
        while asks and document.get("pending"):
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a run that has ended heeds it no more
            replies = decide(pending_of(document))
            if not replies:
                break
            document = asyncio.run(self.resume(replies))
        return document

    @contextlib.contextmanager
    def _stopping(self) -> Iterator["_Stopping"]:
        stopping = _Stopping(self._say)
        with stopping.heeded():
            try:
                yield stopping
            finally:
                self.context.models.close()

    async def _watched(
        self, events: AsyncIterator[dict[str, Any]], stopping: "_Stopping", told: Sequence[Mapping[str, Any]] = ()
    ) -> dict[str, Any]:
        """Show a run as it goes on, what it has ``told`` before included, and return its document."""
        document: dict[str, Any] = {}
        self._say(at_most(bound_of(self.context)))
        with self._view() as view:
            view.know(told)
            stopping.running = True
            async for event in events:
                if event["event"] == "end":
                    stopping.running = False
                view(event)
                document = event.get("result", document)
        return document

    def _find_models(self) -> None:
        for name in dict.fromkeys(self.context.named_models()):
            model = self.context.models.resolve(name)
            if isinstance(model, LocalServer):
                self._say(LOCAL_HINT)
                model.start()

    def _view(self) -> LiveView:
        return LiveView(calls_bound=bound_of(self.context)["calls"], quiet=self._quiet)

    def _say(self, line: str) -> None:
        if not self._quiet:
            with contextlib.suppress(OSError):  # progress is best effort
                print(line, file=sys.stderr, flush=True)  # the terminal is its output


def pending_of(document: Mapping[str, Any]) -> list[Pending]:
    """Return the plans that a run's document says to wait for a person."""
    values = [dict(value) for value in document.get("pending", [])]
    return [Pending(value.pop("id"), value) for value in values]


def at_most(bound: Bound) -> str:
    """Return the bound in words."""
    frames, calls = bound["frames"], bound["calls"]
    return f"at most {frames} frame{'s' * (frames != 1)} and {calls} model call{'s' * (calls != 1)}"


def checked_run_id(run_id: str) -> str:
    """Return the name of a run.

    Raises:
        UsageError: it could not be typed again as it is shown.
    """
    if not run_id or len(run_id) > 200 or not run_id.isprintable() or " " in run_id:
        raise UsageError(f"--run-id {run_id!r}: must be 1 to 200 printable characters without spaces")
    return run_id


def new_run_id() -> str:
    """Return a name for a run: the time in UTC and four random characters."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class _Stopping:
    """What signals do: the first finishes the steps under way, the second stops at once, none after the run's end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.control = RunControl()
        self.running: bool | None = None
        self._say = say
        self._task = asyncio.current_task()

    def _on_signal(self) -> None:
        if self.running is False:
            return
        if (self.control.drain_requested or self.running is None) and self._task:
            self._task.cancel()
        else:
            self.control.request_drain("stopped by the user")
            self._say("stopping after the calls in flight; Ctrl-C again stops at once")

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """Heed Ctrl-C, SIGTERM and SIGHUP while the block runs; once the run has ended no Ctrl-C, until it is told."""
        loop = asyncio.get_running_loop()
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGINT,)
        for number in caught:
            with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
                loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in caught:
                with contextlib.suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
            if self.running is False:
                signal.signal(signal.SIGINT, lambda *_: None)
