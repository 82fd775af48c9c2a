"""Where runs live: LangGraph's checkpoints of every step, and a table of the runs, in one database.

A file is SQLite in WAL mode with ``synchronous=NORMAL``: a killed process loses nothing, a power cut at most
the last steps. A ``postgresql://`` address is PostgreSQL. Both are safe under several processes.
"""

import asyncio
import json
import sqlite3
import time
import zlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypedDict

import aiosqlite
import platformdirs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from langgraph.store.base import Op as StoreOp
from langgraph.store.sqlite.aio import AsyncSqliteStore

from frames.errors import StoreError, UsageError
from frames.journal import Entry, Key
from frames.text import clean, one_line
from graph.compressed import serializer
from graph.grouped import GroupedSaver, Statement, Writer
from graph.process import is_gone, this_process

LEASE_SECONDS = 30
"""How long a lease lasts that is not held on."""

BUSY_SECONDS = 60
"""How long a process waits for another's write to the same file."""

_TABLE = """CREATE TABLE IF NOT EXISTS cactus_runs (
    run_id TEXT PRIMARY KEY, started TEXT NOT NULL, task TEXT NOT NULL, status TEXT NOT NULL,
    settings TEXT NOT NULL, bound TEXT NOT NULL)"""
_JOURNAL = """CREATE TABLE IF NOT EXISTS cactus_journal (
    run_id TEXT NOT NULL, frame TEXT NOT NULL, role TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL,
    request TEXT NOT NULL, position INTEGER NOT NULL, seq INTEGER NOT NULL, outcome TEXT NOT NULL, origin TEXT NOT NULL,
    memo TEXT, model TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL, content BYTEA NOT NULL,
    PRIMARY KEY (run_id, frame, role, attempt, kind, request, position))"""
_JOURNAL_INDEX = "CREATE INDEX IF NOT EXISTS cactus_journal_memo ON cactus_journal (memo)"
_LEASES = """CREATE TABLE IF NOT EXISTS cactus_leases (
    run_id TEXT PRIMARY KEY, token TEXT, owner TEXT NOT NULL, beat DOUBLE PRECISION NOT NULL,
    spent DOUBLE PRECISION NOT NULL)"""
_FIELDS = (
    "frame, role, attempt, kind, request, position, seq, outcome, origin, memo, model, input_tokens, output_tokens, "
    "estimated, content"
)
_WRITE = f"""INSERT INTO cactus_journal (run_id, {_FIELDS}) VALUES ({", ".join("?" * 16)})
    ON CONFLICT (run_id, frame, role, attempt, kind, request, position) DO UPDATE SET seq = excluded.seq,
    outcome = excluded.outcome, origin = excluded.origin, memo = excluded.memo, model = excluded.model,
    input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, estimated = excluded.estimated,
    content = excluded.content"""
_COPY = f"""INSERT INTO cactus_journal (run_id, {_FIELDS})
    SELECT ?, {_FIELDS.replace("origin", "'fork'")} FROM cactus_journal WHERE run_id = ? AND position >= 0"""
_TAKE = """INSERT INTO cactus_leases (run_id, token, owner, beat, spent) VALUES (?, ?, ?, ?, 0)
    ON CONFLICT (run_id) DO UPDATE SET token = excluded.token, owner = excluded.owner, beat = excluded.beat
    WHERE cactus_leases.token IS NULL OR cactus_leases.beat < ? OR cactus_leases.owner = ? RETURNING spent"""
_INSERT = """INSERT INTO cactus_runs (run_id, started, task, status, settings, bound)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO NOTHING RETURNING run_id"""
_SELECT = "SELECT run_id, started, task, status, settings, bound FROM cactus_runs"


class Run(TypedDict):
    """One run as the table has it. ``started`` is ISO 8601 in UTC; ``status`` is ``running`` until it ends."""

    run_id: str
    started: str
    task: str
    status: str
    settings: dict[str, Any]
    bound: dict[str, int]


class _Connection(Protocol):
    """The one thing that differs between the databases: how a statement is run."""

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` places, commit it, and return its rows."""
        ...

    async def submit(self, *statements: Statement) -> None:
        """Run statements with ``?`` places in one transaction: all are committed when it returns, or none."""
        ...


class _OneAtATime(BaseStore):
    """LangGraph's store over SQLite, asked one thing at a time.

    It puts what many ask at once into one transaction. One that reads before it writes, while the checkpoints'
    connection writes, is refused by SQLite at once, whatever the time-out.
    """

    def __init__(self, inner: AsyncSqliteStore) -> None:
        self._inner = inner
        self._turn = asyncio.Lock()

    async def abatch(self, ops: Iterable[StoreOp]) -> list[Any]:
        async with self._turn:
            return [(await self._inner.abatch([op]))[0] for op in ops]

    def batch(self, ops: Iterable[StoreOp]) -> list[Any]:
        raise NotImplementedError("the store is asynchronous")


class RunBusyError(UsageError):
    """Another process works on the run."""


class RunExistsError(UsageError):
    """A run of that name is already there."""


class Store:
    """The runs of one database. ``saver`` keeps the checkpoints, ``artifacts`` files and large results."""

    def __init__(self, saver: BaseCheckpointSaver[Any], artifacts: BaseStore, connection: _Connection) -> None:
        self.saver = saver
        self.artifacts = artifacts
        self._connection = connection

    async def set_up(self) -> None:
        """Make the tables of runs, of the journal and of leases where they are missing."""
        for statement in (_TABLE, _JOURNAL, _JOURNAL_INDEX, _LEASES):
            await self._connection.execute(statement)

    async def add(self, run_id: str, task: str, settings: dict[str, Any], bound: Mapping[str, Any]) -> None:
        """Enter a run that starts now.

        Raises:
            RunExistsError: the name is taken.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        values = (run_id, now, clean(task), "running", json.dumps(settings), json.dumps(bound))
        if not await self._connection.execute(_INSERT, *values):
            raise RunExistsError(f"run {run_id} exists already: see `cactus show {run_id}`, or take another --run-id")

    async def set_status(self, run_id: str, status: str) -> None:
        """Note how a run ended."""
        await self._connection.execute("UPDATE cactus_runs SET status = ? WHERE run_id = ?", status, run_id)

    async def set_settings(self, run_id: str, settings: dict[str, Any], bound: Mapping[str, Any]) -> None:
        """Note with which settings a run goes on."""
        statement = "UPDATE cactus_runs SET settings = ?, bound = ?, status = 'running' WHERE run_id = ?"
        await self._connection.execute(statement, json.dumps(settings), json.dumps(bound), run_id)

    async def find(self, run_id: str) -> Run | None:
        """Return the run of that name; ``None`` where there is none."""
        rows = await self._connection.execute(f"{_SELECT} WHERE run_id = ?", run_id)
        return _run(rows[0]) if rows else None

    async def runs(self, limit: int = 50) -> list[Run]:
        """Return the latest runs, the newest first."""
        rows = await self._connection.execute(f"{_SELECT} ORDER BY started DESC, run_id DESC LIMIT ?", limit)
        return [_run(row) for row in rows]

    # --- the journal ------------------------------------------------------------------------------------

    async def entries(self, run_id: str) -> list[Entry]:
        """Return the entries of a run's journal, in the order they were written."""
        rows = await self._connection.execute(
            f"SELECT {_FIELDS} FROM cactus_journal WHERE run_id = ? ORDER BY seq", run_id
        )
        return [_entry(row) for row in rows]

    async def write(self, run_id: str, entry: Entry) -> None:
        """Write an entry of a run's journal, in place of one with its key."""
        text = clean(json.dumps([entry["asked"], entry["answer"]], ensure_ascii=False))
        content = zlib.compress(text.encode(), 1)
        values = (*entry["key"], *(entry[name] for name in _COLUMNS), int(entry["estimated"]))
        await self._connection.execute(_WRITE, run_id, *values, content)

    async def find_answer(self, memo: str) -> Entry | None:
        """Return an answer that any run was given to an equal request."""
        where = "WHERE memo = ? AND outcome = 'answer' AND origin = 'run' LIMIT 1"
        rows = await self._connection.execute(f"SELECT {_FIELDS} FROM cactus_journal {where}", memo)
        return _entry(rows[0]) if rows else None

    async def copy_journal(self, from_run: str, to_run: str) -> None:
        """Give a run, a fork of another, all that the other was answered."""
        await self._connection.execute(_COPY, to_run, from_run)

    # --- leases -----------------------------------------------------------------------------------------

    async def take(self, run_id: str, token: str) -> float:
        """Take the lease of a run and return the seconds that it has taken so far.

        A lease falls to who asks once its holder, on this machine, is no more, or has not held it for
        ``LEASE_SECONDS``.

        Raises:
            RunBusyError: another process holds it.
        """
        found = await self._connection.execute("SELECT owner, beat FROM cactus_leases WHERE run_id = ?", run_id)
        owner, now = found[0][0] if found else "", time.time()
        gone = owner if owner and is_gone(owner) else "(none)"
        rows = await self._connection.execute(_TAKE, run_id, token, this_process(), now, now - LEASE_SECONDS, gone)
        if not rows:
            left = max(0, LEASE_SECONDS - (now - found[0][1])) if found else LEASE_SECONDS
            raise RunBusyError(
                f"run {run_id} is being worked on by {owner}: wait for it, or stop it; "
                f"if it is no more, try again in {left:.0f} s"
            )
        return float(rows[0][0])

    async def hold(self, run_id: str, token: str, spent: float) -> bool:
        """Hold a lease on; whether it is still ours. ``spent`` are the seconds that the run has taken."""
        statement = "UPDATE cactus_leases SET beat = ?, spent = ? WHERE run_id = ? AND token = ? RETURNING run_id"
        return bool(await self._connection.execute(statement, time.time(), spent, run_id, token))

    async def give_back(self, run_id: str, token: str, spent: float) -> None:
        """End a lease."""
        statement = "UPDATE cactus_leases SET token = NULL, spent = ? WHERE run_id = ? AND token = ?"
        await self._connection.execute(statement, spent, run_id, token)

    async def abandoned(self) -> set[str]:
        """Return the runs whose process ended without giving its lease back."""
        rows = await self._connection.execute("SELECT run_id, owner, beat FROM cactus_leases WHERE token IS NOT NULL")
        late = time.time() - LEASE_SECONDS
        return {run_id for run_id, owner, beat in rows if beat < late or is_gone(owner)}


def default_path() -> Path:
    """Return the file in the user's data folder where runs live unless told otherwise."""
    return platformdirs.user_data_path("cactus", appauthor=False) / "runs.db"


@asynccontextmanager
async def open_store(where: str | Path | None = None) -> AsyncGenerator[Store]:
    """Open the database of runs, made where it is missing.

    Args:
        where: a file, or an address that starts with ``postgresql://``; by default ``default_path()``.

    Raises:
        UsageError: it cannot be opened; the message names it and the remedy.
    """
    address = str(where or default_path())
    opened = _postgres(address) if address.startswith(("postgresql://", "postgres://")) else _sqlite(Path(address))
    async with opened as store:
        yield store


class _Sqlite:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        writes = statement.split(maxsplit=1)[0].upper() in ("INSERT", "UPDATE", "DELETE", "REPLACE")
        return await (self._writer.execute if writes else self._writer.fetch)(statement, *values)

    async def submit(self, *statements: Statement) -> None:
        await self._writer.submit(*statements)


@asynccontextmanager
async def _sqlite(path: Path) -> AsyncGenerator[Store]:
    async with AsyncExitStack() as opened:
        try:
            await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
            connection = await opened.enter_async_context(aiosqlite.connect(path, timeout=BUSY_SECONDS))
            beside = await opened.enter_async_context(  # as LangGraph's store wants
                aiosqlite.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            )
            writer = await opened.enter_async_context(Writer.open(path, BUSY_SECONDS))
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"cannot open {path}: {error}; name another file with --db") from error
        async with AsyncSqliteStore(beside) as artifacts:
            store = await _ready(connection, writer, artifacts, path)
            try:
                yield store
            except sqlite3.Error as error:
                raise StoreError(f"{path} failed: {error}; what was saved before stays, see `cactus runs`") from error
            finally:
                await _end_batching(artifacts)


async def _end_batching(artifacts: BaseStore) -> None:
    """End the task that LangGraph's store leaves behind, which would complain when it is collected."""
    task: asyncio.Task[None] | None = getattr(artifacts, "_task", None)
    if task:
        task.cancel()
        await asyncio.wait([task])


async def _ready(connection: aiosqlite.Connection, writer: Writer, artifacts: AsyncSqliteStore, path: Path) -> Store:
    saver = GroupedSaver(connection, writer, serde=serializer())
    store = Store(saver, _OneAtATime(artifacts), _Sqlite(writer))
    try:
        await _turn_on_wal(connection)
        await connection.execute("PRAGMA synchronous=NORMAL")
        await saver.setup()
        await store.set_up()
        await _set_up_beside(artifacts)
    except sqlite3.Error as error:
        raise UsageError(f"cannot use {path} as a database of runs: {error}; name another file with --db") from error
    return store


async def _set_up_beside(artifacts: AsyncSqliteStore) -> None:
    """Make the store's tables; two processes that do so at once may stumble over each other's."""
    for _ in range(50):
        try:
            await artifacts.setup()
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            await asyncio.sleep(0.1)
        else:
            return
    await artifacts.setup()


async def _turn_on_wal(connection: aiosqlite.Connection) -> None:
    """Switch to WAL; two processes that do so at once may lock each other out in spite of the time-out."""
    for _ in range(50):
        try:
            await connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            await asyncio.sleep(0.1)
        else:
            return
    raise sqlite3.OperationalError("database is locked by another process")


class _Postgres:
    def __init__(self, connection: Any, lock: asyncio.Lock) -> None:
        self._connection, self._lock = connection, lock

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        async with self._lock:
            cursor = await self._connection.execute(statement.replace("?", "%s"), values)
            return [tuple(row.values()) for row in await cursor.fetchall()] if cursor.description else []

    async def submit(self, *statements: Statement) -> None:
        if len(statements) == 1:  # a transaction of its own, in one round trip
            ((statement, values),) = statements
            await self.execute(statement, *values)
            return
        async with self._lock, self._connection.pipeline(), self._connection.transaction():
            for statement, values in statements:
                await self._connection.execute(statement.replace("?", "%s"), values)


@asynccontextmanager
async def _postgres(address: str) -> AsyncGenerator[Store]:
    try:
        import psycopg
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from langgraph.store.postgres.aio import AsyncPostgresStore
    except ImportError as error:
        raise UsageError("PostgreSQL needs a package: pip install 'cactus-solver[postgres]'") from error
    try:
        async with (
            AsyncPostgresSaver.from_conn_string(address, serde=serializer()) as saver,
            AsyncPostgresStore.from_conn_string(address) as artifacts,
        ):
            await _set_up(saver, artifacts)
            store = Store(saver, artifacts, _Postgres(saver.conn, saver.lock))
            await store.set_up()
            try:
                yield store
            except psycopg.Error as error:
                raise StoreError(f"PostgreSQL failed: {one_line(str(error), 300)}; what was saved stays") from error
            finally:
                await _end_batching(artifacts)
    except psycopg.Error as error:
        raise UsageError(f"cannot use PostgreSQL: {one_line(str(error), 300)}; check --db") from error


async def _set_up(saver: Any, artifacts: Any) -> None:
    """Make the tables; processes that start at once take turns, for the migrations are not made for two."""
    # polled, not awaited: a statement that waits would hold up the other's CREATE INDEX CONCURRENTLY
    while not await _locked(saver):  # noqa: ASYNC110  # the event is in another process
        await asyncio.sleep(0.05)
    try:
        await saver.setup()
        await artifacts.setup()
    finally:
        await saver.conn.execute("SELECT pg_advisory_unlock(hashtext('cactus'))")


async def _locked(saver: Any) -> bool:
    cursor = await saver.conn.execute("SELECT pg_try_advisory_lock(hashtext('cactus')) AS locked")
    return bool((await cursor.fetchone())["locked"])


_COLUMNS: tuple[Any, ...] = ("seq", "outcome", "origin", "memo", "model", "input_tokens", "output_tokens")


def _entry(row: tuple[Any, ...]) -> Entry:
    try:
        asked, answer = json.loads(zlib.decompress(row[14]))
    except (zlib.error, ValueError) as error:
        where = f"frame {row[0]}, {row[1]}, attempt {row[2]}"
        raise StoreError(f"an entry of the journal is damaged ({where}): restore the database from a copy") from error
    named: Any = dict(zip(_COLUMNS, row[6:13], strict=True))
    return Entry(key=Key(*row[:6]), estimated=bool(row[13]), asked=asked, answer=answer, **named)


def _run(row: tuple[Any, ...]) -> Run:
    run_id, started, task, status, settings, bound = row
    return Run(
        run_id=run_id,
        started=started,
        task=task,
        status=status,
        settings=json.loads(settings),
        bound=json.loads(bound),
    )
