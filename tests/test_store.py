"""The database of runs: fresh, shared by processes, unusable, killed and continued; SQLite and PostgreSQL."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frames.errors import UsageError
from graph.store import RunExistsError, open_store
from tests.worker import PARTS, TASK, go_on, solver, state_of

ROOT = Path(__file__).parents[1]


class Worker:
    """A process that does the jobs of ``tests.worker``; a warning ends it."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, "-W", "error", "-m", "tests.worker"], subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def start(self, *job: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(job) + "\n")
        self.process.stdin.flush()

    def outcome(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def end(self) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Worker]]:
    workers = [Worker(), Worker()]
    yield workers
    assert [worker.end() for worker in workers] == [0, 0]


def race(pair: list[Worker], *jobs: tuple[str, ...]) -> list[Any]:
    for worker, job in zip(pair, jobs, strict=True):
        worker.start(*job)
    return [worker.outcome() for worker in pair]


async def test_a_fresh_file_is_made_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "runs.db"
    async with open_store(path) as store:
        assert await store.runs() == []
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_sqlite_is_in_wal_mode_with_synchronous_normal(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runs.db") as store:
        connection = store.saver.conn  # type: ignore[attr-defined]
        found = [
            await (await connection.execute(f"PRAGMA {name}")).fetchone() for name in ("journal_mode", "synchronous")
        ]
    assert [row[0] for row in found] == ["wal", 1]


@pytest.mark.parametrize("turn", range(3))
def test_two_processes_make_and_use_one_database(pair: list[Worker], where: str, turn: int) -> None:
    documents = race(pair, (where, "left", "solve"), (where, "right", "solve"))
    assert [(document["success"], document["frames"]) for document in documents] == [(True, PARTS + 1)] * 2


async def test_a_name_is_taken_once(where: str) -> None:
    async with open_store(where) as store:
        await store.add("x", "t", {"max_depth": 1}, {"calls": 3})
        with pytest.raises(RunExistsError, match="run x exists already"):
            await store.add("x", "t", {}, {})
        await store.set_status("x", "failed")
        found = await store.find("x")
        assert found
        assert (found["status"], found["settings"], found["bound"]) == ("failed", {"max_depth": 1}, {"calls": 3})
        assert await store.find("y") is None


def test_of_two_processes_with_one_name_one_wins(pair: list[Worker], where: str) -> None:
    outcomes = race(pair, (where, "x", "solve"), (where, "x", "solve"))
    assert sorted(each if isinstance(each, str) else each["status"] for each in outcomes) == [
        "RunExistsError",
        "succeeded",
    ]


async def test_runs_are_listed_the_newest_first(where: str) -> None:
    async with open_store(where) as store:
        for name in ("a", "b", "c"):
            await store.add(name, "t", {}, {})
        assert [run["run_id"] for run in await store.runs()] == ["c", "b", "a"]
        assert [run["run_id"] for run in await store.runs(limit=2)] == ["c", "b"]


async def refusal(where: str | Path) -> str:
    with pytest.raises(UsageError) as refused:
        async with open_store(where):
            pass
    message = str(refused.value)
    assert message.count("\n") < 2
    assert "--db" in message
    return message


async def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("no database " * 100, encoding="utf-8")
    assert "not a database" in await refusal(text)
    assert text.read_text(encoding="utf-8").startswith("no database")
    assert str(tmp_path) in await refusal(tmp_path)
    assert "cannot open" in await refusal(text / "runs.db")
    assert "cannot open" in await refusal("/proc/none/runs.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot open" in asyncio.run(refusal(tmp_path / "runs.db"))


@pytest.mark.parametrize("address", ["postgresql://u@127.0.0.1:1/none", "postgresql://u@:x/"])
async def test_an_unreachable_postgres_is_refused(address: str) -> None:
    assert "PostgreSQL" in await refusal(address)


async def test_a_killed_run_is_readable_and_goes_on(where: str) -> None:
    worker = Worker()
    worker.start(where, "killed", "slow")
    async with open_store(where) as store:
        await until_traces(store.saver, 5)
        worker.process.kill()
        assert worker.end() == -signal.SIGKILL
        state = await state_of(store.saver, "killed")
        found = await store.find("killed")
        assert found
        assert (state["status"], found["status"]) == (None, "running")
        assert 5 <= len(state["traces"]) < 2 * PARTS
        ended = await go_on(store.saver, "killed")
        whole = (await solver(store.saver).asolve(TASK, run_id="whole")).to_dict()
    assert ended["traces"] == whole["traces"]
    assert (ended["output"], ended["status"], ended["frames"]) == (whole["output"], "succeeded", PARTS + 1)
    assert len(ended["calls"]) == whole["usage"]["calls"]


async def until_traces(saver: Any, number: int) -> None:
    async with asyncio.timeout(60):
        while len((await state_of(saver, "killed")).get("traces", [])) < number:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.05)


async def test_a_task_with_nul_and_a_lone_surrogate_is_kept(where: str) -> None:
    task = "a\x00b\udc81c \u202eright\u202c \N{GRINNING FACE}"
    safe = "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c \u202eright\u202c \N{GRINNING FACE}"
    async with open_store(where) as store:
        await store.add("x", task, {"model": task}, {})
        result = await solver(store.saver).asolve(task, run_id="x")
        state = await state_of(store.saver, "x")
        listed = await store.runs()
    assert (listed[0]["task"], state["task"]) == (safe, safe)
    assert result.success
    assert state["output"] == result.output
