"""The databases that runs live in: SQLite in a file, PostgreSQL at an address. Each is opened with its tables made.

A file is in WAL mode with ``synchronous=NORMAL``: a killed process loses nothing, a power cut at most the last steps.
Both are safe under several processes.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore
from langgraph.store.base import Op as StoreOp
from langgraph.store.sqlite.aio import AsyncSqliteStore

from frames.errors import StoreError, UsageError
from frames.text import one_line
from graph.compressed import serializer
from graph.grouped import GroupedSaver, Statement, Writer

BUSY_SECONDS = 60
"""How long a process waits for another's write to the same file."""


class Connection(Protocol):
    """The one thing that differs between the databases: how a statement is run."""

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` places, commit it, and return its rows."""
        ...

    async def submit(self, *statements: Statement) -> None:
        """Run statements with ``?`` places in one transaction: all are committed when it returns, or none."""
        ...

    async def post(self, statement: str, *values: object) -> None:
        """Run a statement that is committed no later than what is asked for after this."""
        ...


@dataclass(frozen=True)
class Database:
    """An open database: ``saver`` keeps checkpoints, ``artifacts`` files, ``connection`` runs statements of ours."""

    saver: BaseCheckpointSaver[Any]
    artifacts: BaseStore
    connection: Connection


@asynccontextmanager
async def open_database(where: str, tables: Sequence[str]) -> AsyncGenerator[Database]:
    """Open the database at ``where``, a file or a ``postgresql://`` address, made where it is missing.

    Args:
        where: the file or address.
        tables: statements that make further tables where they are missing.

    Raises:
        UsageError: it cannot be opened; the message names it and the remedy.
        StoreError: it failed while it was open.
    """
    postgres = where.startswith(("postgresql://", "postgres://"))
    async with _postgres(where, tables) if postgres else _sqlite(Path(where), tables) as database:
        yield database


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


class _Sqlite:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        writes = statement.split(maxsplit=1)[0].upper() in ("INSERT", "UPDATE", "DELETE", "REPLACE")
        return await (self._writer.execute if writes else self._writer.fetch)(statement, *values)

    async def submit(self, *statements: Statement) -> None:
        await self._writer.submit(*statements)

    async def post(self, statement: str, *values: object) -> None:
        self._writer.post((statement, values))


@asynccontextmanager
async def _sqlite(path: Path, tables: Sequence[str]) -> AsyncGenerator[Database]:
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
            try:
                saver = await _set_up_sqlite(connection, writer, artifacts, tables)
            except sqlite3.Error as error:
                raise UsageError(
                    f"cannot use {path} as a database of runs: {error}; name another file with --db"
                ) from error
            try:
                yield Database(saver, _OneAtATime(artifacts), _Sqlite(writer))
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


async def _set_up_sqlite(
    connection: aiosqlite.Connection, writer: Writer, artifacts: AsyncSqliteStore, tables: Sequence[str]
) -> GroupedSaver:
    saver = GroupedSaver(connection, writer, serde=serializer())
    await _turn_on_wal(connection)
    await connection.execute("PRAGMA synchronous=NORMAL")
    await saver.setup()
    for statement in tables:
        await writer.fetch(statement)
    await _set_up_beside(artifacts)
    return saver


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

    async def post(self, statement: str, *values: object) -> None:
        await self.execute(statement, *values)


@asynccontextmanager
async def _postgres(address: str, tables: Sequence[str]) -> AsyncGenerator[Database]:
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
            await _set_up_postgres(saver, artifacts, tables)
            try:
                yield Database(saver, artifacts, _Postgres(saver.conn, saver.lock))
            except psycopg.Error as error:
                raise StoreError(f"PostgreSQL failed: {one_line(str(error), 300)}; what was saved stays") from error
            finally:
                await _end_batching(artifacts)
    except psycopg.Error as error:
        raise UsageError(f"cannot use PostgreSQL: {one_line(str(error), 300)}; check --db") from error


async def _set_up_postgres(saver: Any, artifacts: Any, tables: Sequence[str]) -> None:
    """Make the tables, ours too; processes that start at once take turns.

    Neither the migrations nor ``CREATE ... IF NOT EXISTS`` are made for two: the second violates a unique index of
    the catalogue.
    """
    # polled, not awaited: a statement that waits would hold up the other's CREATE INDEX CONCURRENTLY
    while not await _locked(saver):  # noqa: ASYNC110  # the event is in another process
        await asyncio.sleep(0.05)
    try:
        await saver.setup()
        await artifacts.setup()
        for statement in tables:
            await saver.conn.execute(statement)
    finally:
        await saver.conn.execute("SELECT pg_advisory_unlock(hashtext('cactus'))")


async def _locked(saver: Any) -> bool:
    cursor = await saver.conn.execute("SELECT pg_try_advisory_lock(hashtext('cactus')) AS locked")
    return bool((await cursor.fetchone())["locked"])
