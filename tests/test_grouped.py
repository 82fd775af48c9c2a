"""Group commit: durable once told, in few transactions, each unit by itself; the saver's files are LangGraph's."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import aiosqlite
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from graph.compressed import serializer
from graph.grouped import GroupedSaver, Writer
from graph.store import open_store
from tests.worker import TASK, go_on, state_of

ROOT = Path(__file__).parents[1]
INSERT = "INSERT INTO t VALUES (?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "t.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    connection.close()
    return file


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[Writer]:
    async with Writer.open(path, timeout=5) as opened:
        yield opened


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()
    finally:
        connection.close()


class Held:
    """Another connection that writes, and keeps others from it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


def transactions(writer: Writer) -> list[str]:
    """Return a list that each transaction of the writer is added to."""
    seen: list[str] = []
    writer._connection.set_trace_callback(lambda text: seen.append(text) if text.startswith("BEGIN") else None)
    return seen


# --- the writer ---------------------------------------------------------------------------------------------


async def test_what_is_submitted_is_there(writer: Writer, path: Path) -> None:
    await writer.submit((INSERT, (1, "one")), (INSERT, (2, "two")))
    await writer.submit()
    assert rows_of(path) == [(1, "one"), (2, "two")]
    assert await writer.fetch("SELECT b FROM t WHERE a = ?", 2) == [("two",)]


async def test_execute_returns_the_rows_of_returning(writer: Writer) -> None:
    assert await writer.execute(f"{INSERT} ON CONFLICT DO NOTHING RETURNING a", 1, "one") == [(1,)]
    assert await writer.execute(f"{INSERT} ON CONFLICT DO NOTHING RETURNING a", 1, "one") == []
    assert await writer.execute("DELETE FROM t") == []


async def test_many_at_once_take_few_transactions(writer: Writer, path: Path) -> None:
    seen = transactions(writer)
    await asyncio.gather(*(writer.submit((INSERT, (number, "x"))) for number in range(500)))
    assert len(rows_of(path)) == 500
    assert len(seen) < 50


async def test_what_is_queued_during_a_commit_is_the_next(writer: Writer, path: Path) -> None:
    held = Held(path)
    seen = transactions(writer)
    first = asyncio.create_task(writer.submit((INSERT, (0, "x"))))
    await until(seen)
    rest = asyncio.gather(*(writer.submit((INSERT, (number, "x"))) for number in range(1, 50)))
    await asyncio.sleep(0)
    held.release()
    await first
    await rest
    assert len(seen) == 2


async def until(seen: list[str]) -> None:
    async with asyncio.timeout(5):
        while not seen:  # noqa: ASYNC110  # of a thread
            await asyncio.sleep(0.01)


async def test_units_keep_their_order(writer: Writer, path: Path) -> None:
    change = "INSERT INTO t VALUES (1, ?) ON CONFLICT DO UPDATE SET b = b || excluded.b"
    await asyncio.gather(*(writer.submit((change, (letter,))) for letter in "abcdefghij"))
    assert rows_of(path) == [(1, "abcdefghij")]


FAULTS: dict[str, tuple[str, tuple[Any, ...], type[Exception]]] = {
    "taken": (INSERT, (1, "again"), sqlite3.IntegrityError),
    "no such table": ("INSERT INTO none VALUES (1)", (), sqlite3.OperationalError),
    "too few values": (INSERT, (7,), sqlite3.ProgrammingError),
    "not a value": (INSERT, (7, object()), sqlite3.ProgrammingError),
    "too large": (INSERT, (2**70, "x"), OverflowError),
    "lone surrogate": (INSERT, (7, "\udc81"), UnicodeEncodeError),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_fails_fails_alone_and_whole(writer: Writer, path: Path, fault: str) -> None:
    statement, values, error = FAULTS[fault]
    await writer.submit((INSERT, (1, "one")))
    outcomes = await asyncio.gather(
        writer.submit((INSERT, (2, "two"))),
        writer.submit((INSERT, (6, "before it")), (statement, values)),
        writer.submit((INSERT, (3, "three"))),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), error, type(None)]
    assert rows_of(path) == [(1, "one"), (2, "two"), (3, "three")]


async def test_a_full_disk_fails_all_and_the_connection_goes_on(writer: Writer, path: Path) -> None:
    ((pages,),) = await writer.fetch("PRAGMA page_count")
    await writer.fetch(f"PRAGMA max_page_count = {pages + 2}")
    outcomes = await asyncio.gather(
        *(writer.submit((INSERT, (number, "x" * 100_000))) for number in range(3)), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == ["database or disk is full"] * 3
    await writer.submit((INSERT, (7, "small")))
    assert rows_of(path) == [(7, "small")]


async def test_a_busy_file_is_waited_for_and_then_refused(path: Path) -> None:
    async with Writer.open(path, timeout=0.2) as writer:
        held = Held(path)
        outcomes = await asyncio.gather(
            *(writer.submit((INSERT, (number, "x"))) for number in range(3)), return_exceptions=True
        )
        assert [str(outcome) for outcome in outcomes] == ["database is locked"] * 3
        assert await writer.fetch("CREATE TABLE IF NOT EXISTS t (a)") == []
        held.release()
        await writer.submit((INSERT, (7, "later")))
    assert rows_of(path) == [(7, "later")]


async def test_who_is_cancelled_loses_nothing(writer: Writer, path: Path) -> None:
    held = Held(path)
    waiting = [asyncio.create_task(writer.submit((INSERT, (n, "x")), (INSERT, (n + 10, "y")))) for n in range(3)]
    await asyncio.sleep(0.05)
    waiting[1].cancel()
    held.release()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), asyncio.CancelledError, type(None)]
    await writer.submit((INSERT, (20, "z")))
    assert [row[0] for row in rows_of(path)] == [0, 1, 2, 10, 11, 12, 20]


async def test_closing_writes_what_is_queued_and_refuses_more(path: Path) -> None:
    async with Writer.open(path) as writer:
        waiting = [asyncio.create_task(writer.submit((INSERT, (number, "x")))) for number in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert len(rows_of(path)) == 20
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await writer.submit((INSERT, (30, "x")))


async def test_another_event_loop_may_write(writer: Writer, path: Path) -> None:
    other = asyncio.to_thread(lambda: asyncio.run(writer.submit((INSERT, (1, "other")))))
    await asyncio.gather(other, *(writer.submit((INSERT, (number, "this"))) for number in range(2, 20)))
    assert len(rows_of(path)) == 19


# --- processes ----------------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, sys
from graph.grouped import Writer
path, first, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

async def one(writer, key):
    await writer.submit(("INSERT INTO t VALUES (?, ?)", (key, "x")), ("INSERT INTO t VALUES (?, ?)", (-key, "y")))
    print(key, flush=True)

async def main():
    async with Writer.open(path) as writer:
        for start in range(first, first + number, 10):
            await asyncio.gather(*(one(writer, key) for key in range(start, start + 10)))

asyncio.run(main())
"""


def process(path: Path, first: int, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(path), str(first), str(number)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_what_was_told_outlives_a_kill(path: Path) -> None:
    with process(path, 1, 1_000_000) as writing:
        assert writing.stdout
        told = [int(writing.stdout.readline()) for _ in range(200)]
        writing.kill()
        told += [int(line) for line in writing.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert writing.returncode == -signal.SIGKILL
    there = {row[0] for row in rows_of(path)}
    assert len(told) >= 200
    assert set(told) <= there
    assert {-key for key in there} == there, "a unit was half written"


def test_two_processes_write_one_file(path: Path) -> None:
    with process(path, 1, 1000) as one, process(path, 5001, 1000) as other:
        assert [len(each.communicate(timeout=60)[0].split()) for each in (one, other)] == [1000, 1000]
    assert len(rows_of(path)) == 4000


# --- the saver ----------------------------------------------------------------------------------------------


async def state_of_plain(path: Path, run_id: str) -> dict[str, Any]:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as plain:
        plain.serde = serializer()
        return await state_of(plain, run_id)


async def test_a_file_of_langgraphs_saver_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with AsyncSqliteSaver.from_conn_string(str(path)) as plain:
        stopped = await go_on(plain, "x", {"task": TASK}, interrupt_after=["verify"])
        whole = await go_on(plain, "whole", {"task": TASK})
    async with open_store(path) as store:
        assert await state_of(store.saver, "x") == stopped
        ended = await go_on(store.saver, "x")
    assert ended["traces"] == whole["traces"]
    assert ended["output"] == whole["output"]


async def test_langgraphs_saver_reads_and_continues_ours(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with open_store(path) as store:
        stopped = await go_on(store.saver, "x", {"task": TASK}, interrupt_after=["verify"])
        whole = await go_on(store.saver, "whole", {"task": TASK})
    assert await state_of_plain(path, "x") == stopped
    async with AsyncSqliteSaver.from_conn_string(str(path)) as plain:
        plain.serde = serializer()
        ended = await go_on(plain, "x")
    assert ended["traces"] == whole["traces"]
    assert ended["output"] == whole["output"]


async def saved(saver: AsyncSqliteSaver) -> dict[str, list[tuple[Any, ...]]]:
    """Save some of everything, and return what the tables have."""
    config: Any = {"configurable": {"thread_id": 7, "checkpoint_ns": ""}, "metadata": {"tag": "ä"}}
    checkpoint: Any = {"v": 4, "id": "0002", "ts": "", "channel_values": {"a": "b" * 5000}, "channel_versions": {}}
    put = await saver.aput(config, checkpoint, {"step": 1}, {})
    await saver.aput_writes(put, [("a", "b"), ("c", None), ("d", b"e" * 2000)], "task", "~path")
    await saver.aput_writes(put, [("a", "ignored")], "task", "~path")
    await saver.aput_writes(put, [("__error__", "f")], "task")
    await saver.aput_writes(put, [("__error__", "g")], "task")
    await saver.aput_writes(put, [], "task")
    await saver.aput({"configurable": {"thread_id": "gone", "checkpoint_ns": ""}}, checkpoint, {}, {})
    await saver.adelete_thread("gone")
    assert put == {"configurable": {"thread_id": 7, "checkpoint_ns": "", "checkpoint_id": "0002"}}
    tables = ("checkpoints", "writes")
    return {
        table: [tuple(row) for row in await saver.conn.execute_fetchall(f"SELECT * FROM {table}")] for table in tables
    }


async def test_the_tables_are_those_of_langgraphs_saver(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "plain.db") as connection:
        plain = await saved(AsyncSqliteSaver(connection, serde=serializer()))
    path = tmp_path / "grouped.db"
    async with aiosqlite.connect(path) as connection, Writer.open(path) as writer:
        grouped = await saved(GroupedSaver(connection, writer, serde=serializer()))
    assert grouped == plain
    assert [len(rows) for rows in grouped.values()] == [1, 4]


# --- compression --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "short", "long " * 1000, b"long " * 1000, {"a": ["long " * 1000, 1, None]}])
def test_values_are_read_with_and_without_compression(value: Any) -> None:
    plain, ours = JsonPlusSerializer(allowed_msgpack_modules=None), serializer()
    kind, data = ours.dumps_typed(value)
    assert ours.loads_typed((kind, data)) == ours.loads_typed(plain.dumps_typed(value)) == value
    assert kind.endswith("+zlib") == ("long" in str(value))
    assert len(data) < 1024


def test_what_does_not_shrink_is_left_alone() -> None:
    noise = Random(0).randbytes(5000)
    assert serializer().dumps_typed(noise) == ("bytes", noise)


async def test_checkpoints_of_both_kinds_are_read(where: str) -> None:
    long = f"{TASK} " * 400
    async with open_store(where) as store:
        store.saver.serde = JsonPlusSerializer(allowed_msgpack_modules=None)
        stopped = await go_on(store.saver, "x", {"task": long}, interrupt_after=["verify"])
    async with open_store(where) as store:
        assert await state_of(store.saver, "x") == stopped
        ended = await go_on(store.saver, "x")
        whole = await go_on(store.saver, "whole", {"task": long})
        assert (ended["output"], ended["traces"]) == (whole["output"], whole["traces"])


# --- the store ----------------------------------------------------------------------------------------------


async def test_a_submit_of_the_store_is_one_transaction(where: str) -> None:
    insert = "INSERT INTO cactus_test VALUES (?)"
    async with open_store(where) as store:
        connection = store._connection
        await connection.execute("CREATE TABLE cactus_test (a INTEGER PRIMARY KEY)")
        units = [((insert, (number,)), (insert, (number + 100,))) for number in range(30)]
        await asyncio.gather(*(connection.submit(*unit) for unit in units))
        with pytest.raises(Exception, match=r"UNIQUE|unique"):
            await connection.submit((insert, (50,)), (insert, (100,)))
        await connection.submit()
        await connection.submit((insert, (51,)))
        found = {row[0] for row in await connection.execute("SELECT a FROM cactus_test")}
    assert found == {*range(30), *range(100, 130), 51}


async def test_a_file_that_another_writes_to_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with open_store(path) as store:
        await store.add("x", "t", {}, {})
    held = Held(path)
    async with asyncio.timeout(5), open_store(path) as store:
        assert [run["run_id"] for run in await store.runs()] == ["x"]
    held.release()
