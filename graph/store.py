"""Where runs live: LangGraph's checkpoints of every step, and a table of the runs, in one database.

A file is SQLite in WAL mode with ``synchronous=NORMAL``: a killed process loses nothing, a power cut at most
the last steps. A ``postgresql://`` address is PostgreSQL. Both are safe under several processes.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Iterable
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
from frames.text import clean, one_line
from graph.compressed import serializer
from graph.grouped import GroupedSaver, Statement, Writer

BUSY_SECONDS = 60
"""How long a process waits for another's write to the same file."""

_TABLE = """CREATE TABLE IF NOT EXISTS cactus_runs (
    run_id TEXT PRIMARY KEY, started TEXT NOT NULL, task TEXT NOT NULL, status TEXT NOT NULL,
    settings TEXT NOT NULL, bound TEXT NOT NULL)"""
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


class RunExistsError(UsageError):
    """A run of that name is already there."""


class Store:
    """The runs of one database. ``saver`` keeps the checkpoints, ``artifacts`` files and large results."""

    def __init__(self, saver: BaseCheckpointSaver[Any], artifacts: BaseStore, connection: _Connection) -> None:
        self.saver = saver
        self.artifacts = artifacts
        self._connection = connection

    async def set_up(self) -> None:
        """Make the table of runs where it is missing."""
        await self._connection.execute(_TABLE)

    async def add(self, run_id: str, task: str, settings: dict[str, Any], bound: dict[str, int]) -> None:
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

    async def find(self, run_id: str) -> Run | None:
        """Return the run of that name; ``None`` where there is none."""
        rows = await self._connection.execute(f"{_SELECT} WHERE run_id = ?", run_id)
        return _run(rows[0]) if rows else None

    async def runs(self, limit: int = 50) -> list[Run]:
        """Return the latest runs, the newest first."""
        rows = await self._connection.execute(f"{_SELECT} ORDER BY started DESC, run_id DESC LIMIT ?", limit)
        return [_run(row) for row in rows]


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
