"""Group commit for SQLite: what many write at once goes into one transaction, and each knows when it is safe.

A run with branches side by side saves hundreds of small things a second. LangGraph's saver commits each on its
own, and takes four turns through its connection's thread to do so. Here one thread owns one connection: it takes
all that was queued while the last transaction was under way and commits it as the next, so that there is no timer
and, where little is written, no delay. Reads of checkpoints stay on LangGraph's connection, which in WAL mode
neither waits for a write nor holds one up.
"""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

Statement = tuple[str, Sequence[object]]
"""SQL with ``?`` places, and the values for them."""

_CHECKPOINT = """INSERT OR REPLACE INTO checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_WRITE = """INSERT OR {} INTO writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_DELETE = ("DELETE FROM checkpoints WHERE thread_id = ?", "DELETE FROM writes WHERE thread_id = ?")
_WRITE_ANEW, _WRITE_ONCE = _WRITE.format("REPLACE"), _WRITE.format("IGNORE")


@dataclass(slots=True, eq=False)
class _Unit:
    """What one caller asked for, and what became of it."""

    statements: Sequence[Statement]
    reads: bool
    done: asyncio.Future[list[tuple[Any, ...]]]
    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    error: BaseException | None = None


class Writer:
    """One connection that writes, in a thread of its own; made by ``open``, usable from any event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._queue: SimpleQueue[_Unit | None] = SimpleQueue()
        self._open = True
        self._thread = Thread(target=self._serve, name="cactus-writer", daemon=True)
        self._thread.start()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: str | Path, timeout: float = 60) -> AsyncGenerator[Self]:  # noqa: ASYNC109  # SQLite's
        """Open a file that is in WAL mode or will be; at the end write what is queued, and close it.

        Args:
            path: the file.
            timeout: the seconds to wait while another process writes to it.

        Raises:
            sqlite3.Error: it cannot be opened.
        """
        writer = await asyncio.to_thread(lambda: cls(_connected(path, timeout)))
        try:
            yield writer
        finally:
            await writer.close()

    async def submit(self, *statements: Statement) -> None:
        """Run statements as one unit: when this returns they are committed, and if it raises none of them is.

        Units are committed in the order in which they were submitted. Who is cancelled while it waits leaves its
        unit in the queue: it is committed all the same.

        Raises:
            sqlite3.Error: a statement failed, or the file cannot be written: full, or locked for too long.
        """
        if statements:
            await self._asked(statements)

    def post(self, *statements: Statement) -> None:
        """Submit statements and do not wait: they are committed no later than what is submitted after them."""
        unit = self._queued(statements)
        unit.done.add_done_callback(lambda done: done.cancelled() or done.exception())  # what comes after fails alike

    async def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement as a unit of its own, and return the rows of its RETURNING clause."""
        return await self._asked([(statement, values)])

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that reads; it sees all that was submitted before.

        A statement that writes is run too, in SQLite's own transaction: one that finds nothing to do, such as
        ``CREATE TABLE IF NOT EXISTS``, then does not wait for other processes.
        """
        return await self._asked([(statement, values)], reads=True)

    async def close(self) -> None:
        """Write what is queued, and close the connection."""
        if self._open:
            self._open = False
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _asked(self, statements: Sequence[Statement], *, reads: bool = False) -> list[tuple[Any, ...]]:
        return await self._queued(statements, reads=reads).done

    def _queued(self, statements: Sequence[Statement], *, reads: bool = False) -> _Unit:
        if not self._open:
            raise sqlite3.ProgrammingError("the database is closed")
        unit = _Unit(statements, reads, asyncio.get_running_loop().create_future())
        self._queue.put(unit)
        return unit

    # --- in the thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        more = True
        while more:
            queued = self._taken()
            more = None not in queued
            units = [unit for unit in queued if unit]
            self._write([unit for unit in units if not unit.reads])
            for unit in units:
                if unit.reads:
                    self._read(unit)
            _tell(units)
        self._connection.close()

    def _taken(self) -> list[_Unit | None]:
        """Wait for a unit, and return it with all that are there by then."""
        taken = [self._queue.get()]
        with contextlib.suppress(Empty):
            while True:
                taken.append(self._queue.get_nowait())
        return taken

    def _write(self, units: Sequence[_Unit]) -> None:
        """Commit units together; where one fails by its own fault, each by itself."""
        if not units:
            return
        try:
            self._commit(units)
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            alone, all_fail = len(units) == 1, _concerns_all(error)
            for unit in units:
                if alone or all_fail:
                    unit.error = error if alone else copy(error)
                else:
                    self._write([unit])

    def _commit(self, units: Sequence[_Unit]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")  # it waits for others; a later upgrade would be refused at once
        try:
            for unit in units:
                self._run(unit)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _read(self, unit: _Unit) -> None:
        try:
            self._run(unit)
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            unit.error = error

    def _run(self, unit: _Unit) -> None:
        for statement, values in unit.statements:
            unit.rows = self._connection.execute(statement, values).fetchall()


def _connected(path: str | Path, timeout: float) -> sqlite3.Connection:
    # isolation_level=None: transactions begin and end where this module says so
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _concerns_all(error: BaseException) -> bool:
    """Whether the file is at fault (full, locked, unreadable), not a statement."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    return isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR


def _tell(units: Iterable[_Unit]) -> None:
    """Let those who wait go on, with one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Unit]] = {}
    for unit in units:
        by_loop.setdefault(unit.done.get_loop(), []).append(unit)
    for loop, told in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, told)


def _settle(units: Iterable[_Unit]) -> None:
    for unit in units:
        if unit.done.done():  # cancelled
            continue
        if unit.error is None:
            unit.done.set_result(unit.rows)
        else:
            unit.done.set_exception(unit.error)


class GroupedSaver(AsyncSqliteSaver):
    """LangGraph's saver, with its writes in groups; the tables are the same, and each reads what the other wrote.

    Values are serialized before they are queued, in the event loop: later the graph may have changed them.
    """

    def __init__(self, conn: aiosqlite.Connection, writer: Writer, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(conn, serde=serde)
        self._writer = writer

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  # the checkpoint has them
    ) -> RunnableConfig:
        """Save a checkpoint, as ``AsyncSqliteSaver`` does."""
        await self._set_up()
        place = config.get("configurable", {})
        kind, value = self.serde.dumps_typed(checkpoint)
        about = json.dumps(get_checkpoint_metadata(config, metadata), ensure_ascii=False).encode("utf-8", "ignore")
        key = (str(place["thread_id"]), place["checkpoint_ns"], checkpoint["id"])
        await self._writer.submit((_CHECKPOINT, (*key, place.get("checkpoint_id"), kind, value, about)))
        names = ("thread_id", "checkpoint_ns")
        return {"configurable": {name: place[name] for name in names} | {"checkpoint_id": checkpoint["id"]}}

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote, as ``AsyncSqliteSaver`` does."""
        await self._set_up()
        statement = _WRITE_ANEW if all(channel in WRITES_IDX_MAP for channel, _ in writes) else _WRITE_ONCE
        place = config.get("configurable", {})
        key = (str(place["thread_id"]), str(place["checkpoint_ns"]), str(place["checkpoint_id"]), task_id, task_path)
        await self._writer.submit(
            *(
                (statement, (*key, WRITES_IDX_MAP.get(channel, index), channel, *self.serde.dumps_typed(value)))
                for index, (channel, value) in enumerate(writes)
            )
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread, as ``AsyncSqliteSaver`` does."""
        await self._set_up()
        await self._writer.submit(*((statement, (str(thread_id),)) for statement in _DELETE))

    async def _set_up(self) -> None:
        if not self.is_setup:
            await self.setup()
