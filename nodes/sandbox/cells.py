"""Cells: code of a session whose variables persist, run by Monty and paused wherever it waits for the host.

Between two stops a session is bytes: a worker process loads them, runs the code until it has ended or all of it waits,
and is given back. So a session that waits holds no worker, and any process that has the bytes goes on with it.
"""

import asyncio
import datetime
import math
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from pydantic_monty import (
    Frame,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontyStdTypeProxy,
    MontySyntaxError,
    NameLookupSnapshot,
    __version__,
)

from frames.text import clean
from nodes.sandbox.run import Output

VERSION: str = __version__
"""The interpreter's version: a session is read by the one that wrote it."""

MOST_CALLS = 1_000
"""Calls of the host that one cell may make."""

MOST_STATE = 4 << 20
"""Bytes that a session may have."""

MOST_VALUE = 1_000_000
"""Characters, and values within values, of what code hands to the host."""

MEMORY_MB = 64
"""Memory of one session's variables."""

_GRACE = 0.5
_DEEPEST = 60
_MOST_ERROR = 2_000
_MOST_LINES = 8
_PRELUDE = "<python-input-0>"
_SPOILT = (
    "TimeoutError: feed time limit",
    "TimeoutError: sleep limit",
    "MemoryError: memory limit",
    "MemoryError: the",
)
_SPOILT_BY_CALLS = "suspension"


class HostCall(NamedTuple):
    """A call of the host that code waits for: the interpreter's number of it, its name, and its arguments."""

    id: int
    name: str
    arguments: list[Any]


class Raised(NamedTuple):
    """What a call raises in the code: the exception's type, by name, and its message."""

    type: str
    message: str


@dataclass(frozen=True)
class Stop:
    """Where a cell stopped: it waits for ``calls``, has ended, or has ``finished`` the whole with ``value``.

    ``state`` is the session then, ``None`` where it is lost and the one before the cell is to be gone on with;
    ``printed`` is what was printed since the last stop, ``error`` what the code raised.
    """

    state: bytes | None
    printed: str = ""
    calls: list[HostCall] = field(default_factory=list[HostCall])
    error: str | None = None
    finished: bool = False
    value: Any = None


@dataclass(frozen=True)
class Start:
    """Code to be run in a session; ``prelude`` is run before it in a new one, and ``inputs`` are variables it sees."""

    code: str
    prelude: str
    inputs: Mapping[str, Any]


@dataclass(frozen=True)
class Answers:
    """What the calls that a paused cell waits for have given, by number."""

    by_call: Mapping[int, Any]


@dataclass(frozen=True)
class Rules:
    """How a cell is run: ``host`` are the names it may call, and ``end`` is the one that finishes.

    A session keeps what it began with: ``seed``, from which chance is drawn, its clock ``now``, and its ``seconds``.
    ``refuse_end`` says what is wrong with the value that the code would finish with.
    """

    host: frozenset[str]
    end: str
    refuse_end: Callable[[Any], str | None]
    seed: str
    now: float
    seconds: float
    output_chars: int


class Cells:
    """Runs cells in ``workers`` processes at most, which start with the first cell. ``close`` ends them."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, "cactus-cell")
        self._lock = threading.Lock()
        self._pool: Monty | None = None

    async def run(self, state: bytes | None, what: Start | Answers, rules: Rules) -> Stop:
        """Return where the code stopped; it raises for nothing that the code may do."""
        running = _Running(state, what, rules)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: running.run(self._opened(rules.seconds)))
        finally:
            running.stop()

    def close(self) -> None:
        """End the worker processes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._pool:
            self._pool.__exit__(None, None, None)
            self._pool = None

    def _opened(self, seconds: float) -> Monty:
        with self._lock:
            if self._pool is None:
                pool = Monty(
                    max_processes=self._workers,
                    request_timeout=seconds + 2 * _GRACE,
                    feed_duration_limit_grace=_GRACE,
                    max_checkouts_per_worker=2_000,
                )
                self._pool = pool.__enter__()
            return self._pool


class _Running:
    """One stretch of a cell in a worker, run in a thread."""

    def __init__(self, state: bytes | None, what: Start | Answers, rules: Rules) -> None:
        self._state, self._what, self._rules = state, what, rules
        self._output = Output(rules.output_chars)
        self._calls: dict[int, HostCall] = {}
        self._worker: int | None = None
        self._ended = False

    def stop(self) -> None:
        """End the worker where it still runs: whoever waited for it has gone."""
        if self._worker and not self._ended:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGTERM)

    def run(self, pool: Monty) -> Stop:
        """Run the code until it stops."""
        rules = self._rules
        limits: Any = {
            "max_feed_duration_secs": rules.seconds,
            "max_memory": MEMORY_MB << 20,
            "max_suspensions": 10 * MOST_CALLS,
        }
        policy: Any = {
            "sleep": "zero",  # nobody waits for a cell that has nothing to do
            "datetime": datetime.datetime.fromtimestamp(rules.now, datetime.UTC),  # a cell done over sees the same
            "random_start": {"seed": rules.seed},
        }
        try:
            with pool.checkout(script_name="cell.py", limits=limits, os_policy=policy) as session:
                self._worker = session.worker_pid
                try:
                    return self._within(session)
                finally:
                    self._ended = True
        except MontyCrashedError as error:
            slow = error.timed_out or "time limit" in str(error)
            return self._lost(self._too_slow() if slow else f"the code crashed its interpreter: {error}"[:500])

    def _within(self, session: MontySession) -> Stop:
        try:
            stop = self._driven(session, self._started(session))
        except MontyCrashedError:
            raise
        except MontyError as error:
            stop = self._failed(error)
            if stop.state is None:
                return stop
        return self._kept(session, stop)

    def _started(self, session: MontySession) -> Any:
        match self._what:
            case Answers(by_call):
                snapshot: Any = session.load_snapshot(cast("bytes", self._state), print_callback=self._print)
                return snapshot.resume({id_: _answer(given) for id_, given in by_call.items()})
            case Start(code, prelude, inputs):
                if self._state is None:
                    session.feed_run(prelude, inputs=dict(inputs))
                else:
                    session.load_session(self._state)
                return session.feed_start(code, inputs=dict(inputs), print_callback=self._print)

    def _driven(self, session: MontySession, snapshot: Any) -> Stop:  # noqa: ARG002
        """Serve the code's calls until it waits for them all, or ends."""
        while True:
            match snapshot:
                case MontyComplete():
                    return Stop(b"", self._output.text())
                case FutureSnapshot():
                    pending = set(snapshot.pending_call_ids)
                    waiting = [call for id_, call in self._calls.items() if id_ in pending]
                    return Stop(b"", self._output.text(), [*waiting, *self._older(pending)])
                case NameLookupSnapshot():
                    snapshot = snapshot.resume()
                case FunctionSnapshot() if snapshot.is_os_function:
                    snapshot = snapshot.resume_not_handled()
                case FunctionSnapshot():
                    name = str(snapshot.function_name)
                    given = self._served(name, snapshot)
                    if isinstance(given, Stop):
                        return given
                    snapshot = snapshot.resume(given)
                case _:
                    return self._lost(f"the interpreter stopped for {type(snapshot).__name__}, which is not served")

    def _older(self, pending: set[int]) -> list[HostCall]:
        """Return calls that were made before this stretch and are waited for still."""
        return [HostCall(id_, "", []) for id_ in sorted(pending - self._calls.keys())]

    def _served(self, name: str, snapshot: FunctionSnapshot) -> Any:
        """Return what a call is answered with at once; ``Stop`` where it finishes the whole."""
        rules = self._rules
        if name != rules.end and name not in rules.host:
            return {"exc_type": "NameError", "message": f"name '{name[:100]}' is not defined"}
        try:
            arguments = [plain(each) for each in (*snapshot.args, *snapshot.kwargs.values())]
        except ValueError as fault:
            return {"exc_type": "TypeError", "message": str(fault)}
        if name == rules.end:
            value = arguments[0] if arguments else None
            if problem := rules.refuse_end(value):
                return {"exc_type": "ValueError", "message": problem}
            return Stop(b"", self._output.text(), finished=True, value=value)
        self._calls[snapshot.call_id] = HostCall(snapshot.call_id, name, arguments)
        return {"future": ...}

    def _kept(self, session: MontySession, stop: Stop) -> Stop:
        """Return ``stop`` with the session, unless it cannot be kept."""
        if stop.finished:
            return stop
        try:
            state = session.dump()
        except MontyError:
            return self._lost("memory limit: the variables are too large to be kept; keep less in them")
        if len(state) > MOST_STATE:
            return self._lost(
                f"the variables take {len(state) >> 20} MB, more than {MOST_STATE >> 20}: keep less in them"
            )
        return Stop(state, stop.printed, stop.calls, stop.error)

    def _failed(self, error: MontyError) -> Stop:
        message = error.display("type-msg") if isinstance(error, MontyRuntimeError | MontySyntaxError) else str(error)
        if message.startswith("TimeoutError: feed time limit"):
            return self._lost(self._too_slow())
        if message.startswith(_SPOILT):
            return self._lost(f"memory limit: the code needed more than {MEMORY_MB} MB; keep less in memory at once")
        if _SPOILT_BY_CALLS in message and message.startswith("RuntimeError"):
            return self._lost(f"the code called the host more than {10 * MOST_CALLS} times; do less in one block")
        if message == "SystemExit":
            return Stop(b"", self._output.text())
        return Stop(b"", self._output.text(), error=_told(error, message))

    def _lost(self, why: str) -> Stop:
        return Stop(None, self._output.text(), error=f"{why}. The variables are as before this block.")

    def _too_slow(self) -> str:
        return f"time limit: the code did not end within {self._rules.seconds:g} s; make it faster or do less"

    def _print(self, _stream: str, text: str) -> None:
        self._output.add(clean(text))


def _answer(given: Any) -> Any:
    if isinstance(given, Raised):
        return {"exc_type": given.type, "message": given.message}
    return {"return_value": given}


def _told(error: MontyError, message: str) -> str:
    """Return an error with the lines of the code that it came by, those of the prelude left out."""
    message = message if len(message) <= _MOST_ERROR else f"{message[:_MOST_ERROR]} [cut]"
    if not isinstance(error, MontyRuntimeError | MontySyntaxError):
        return message
    frames = [frame for frame in error.traceback() if frame.filename != _PRELUDE]
    shown = frames if len(frames) <= _MOST_LINES else [*frames[:4], *frames[4 - _MOST_LINES :]]
    where = [f"  line {frame.line}{_function(frame)}: {(frame.source_line or '').strip()[:200]}" for frame in shown]
    return "\n".join([*where, message])


def _function(frame: Frame) -> str:
    return "" if frame.function_name in (None, "<module>") else f", in {frame.function_name}"


def plain(value: Any) -> Any:
    """Return what code hands over as a JSON value; tuples and sets become lists, a type its name.

    Raises:
        ValueError: it is none, or too large; the message says what.
    """
    return _Plain().of(value, 0)


class _Plain:
    """Turns one value into JSON, counting how much there is of it: a list may hold itself many times over."""

    def __init__(self) -> None:
        self._room = MOST_VALUE

    def of(self, value: Any, depth: int) -> Any:
        self._take(1)
        if depth > _DEEPEST:
            raise ValueError(f"a value may be at most {_DEEPEST} levels deep")
        match value:
            case None | bool():
                return value
            case str():
                self._take(len(value))
                return clean(value)
            case int():
                return self._integer(value)
            case float() if math.isfinite(value):
                return value
            case dict():
                entries = cast("dict[Any, Any]", value).items()
                return {self._name(key): self.of(each, depth + 1) for key, each in entries}
            case list() | tuple() | set() | frozenset():
                return [self.of(each, depth + 1) for each in cast("list[Any]", value)]
            case _:
                return self._type(value)

    def _type(self, value: Any) -> str:
        if isinstance(value, type):
            return value.__name__
        if isinstance(value, MontyStdTypeProxy) and value.kind == "type":
            return value.name
        kind = value if isinstance(value, float) else getattr(value, "name", None) or type(value).__name__
        raise ValueError(f"{str(kind)[:60]} is no JSON value: hand over texts, numbers, lists and dicts")

    def _integer(self, value: int) -> int:
        if value.bit_length() > 4_000:
            raise ValueError(f"an integer of {value.bit_length()} bits is too large; make it a text")
        return value

    def _name(self, key: Any) -> str:
        if not isinstance(key, str | int | float):
            raise ValueError(  # noqa: TRY004  # as all else that is no JSON value
                f"a dict's keys must be texts to be handed over, not {type(key).__name__}"
            )
        self._take(len(key) if isinstance(key, str) else 1)
        return clean(key) if isinstance(key, str) else str(key)

    def _take(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise ValueError(f"the value is larger than {MOST_VALUE:,} characters; hand over less")
