"""Where runs live: LangGraph's checkpoints, and the runs, journals, events and leases, in one database."""

import json
import time
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

import platformdirs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from frames.errors import StoreError, UsageError
from frames.journal import Entry, Key
from frames.text import clean
from graph.databases import Connection, open_database
from graph.process import is_gone, this_process
from nodes.event_log import Kept

LEASE_SECONDS = 30
"""How long a lease lasts that is not held on."""

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
_EVENTS = """CREATE TABLE IF NOT EXISTS cactus_events (
    run_id TEXT NOT NULL, id INTEGER NOT NULL, key TEXT NOT NULL, content BYTEA NOT NULL, PRIMARY KEY (run_id, id))"""
_APPEND = "INSERT INTO cactus_events (run_id, id, key, content) VALUES {} ON CONFLICT (run_id, id) DO NOTHING"
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


class RunBusyError(UsageError):
    """Another process works on the run."""


class RunExistsError(UsageError):
    """A run of that name is already there."""


class Store:
    """The runs of one database. ``saver`` keeps the checkpoints, ``artifacts`` files and large results."""

    def __init__(self, saver: BaseCheckpointSaver[Any], artifacts: BaseStore, connection: Connection) -> None:
        self.saver = saver
        self.artifacts = artifacts
        self._connection = connection

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
        content = _packed([entry["asked"], entry["answer"]])
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

    # --- events -----------------------------------------------------------------------------------------

    async def append(self, run_id: str, events: Sequence[Kept]) -> None:
        """Write events of a run, no later than what is written after this."""
        values = [(run_id, id_, key, _packed(event)) for id_, key, event in events]
        places = ", ".join(["(?, ?, ?, ?)"] * len(values))
        await self._connection.post(_APPEND.format(places), *(value for row in values for value in row))

    async def events(self, run_id: str) -> list[Kept]:
        """Return the events of a run with their ids and keys, the first first."""
        rows = await self._connection.execute(
            "SELECT id, key, content FROM cactus_events WHERE run_id = ? ORDER BY id", run_id
        )
        return [(id_, key, _unpacked(content, f"event {id_}")) for id_, key, content in rows]

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
    tables = (_TABLE, _JOURNAL, _JOURNAL_INDEX, _EVENTS, _LEASES)
    async with open_database(str(where or default_path()), tables) as database:
        yield Store(database.saver, database.artifacts, database.connection)


_COLUMNS: tuple[Any, ...] = ("seq", "outcome", "origin", "memo", "model", "input_tokens", "output_tokens")


def _entry(row: tuple[Any, ...]) -> Entry:
    asked, answer = _unpacked(row[14], f"an entry of the journal (frame {row[0]}, {row[1]}, attempt {row[2]})")
    named: Any = dict(zip(_COLUMNS, row[6:13], strict=True))
    return Entry(key=Key(*row[:6]), estimated=bool(row[13]), asked=asked, answer=answer, **named)


def _packed(value: Any) -> bytes:
    return zlib.compress(clean(json.dumps(value, ensure_ascii=False)).encode(), 1)


def _unpacked(content: bytes, what: str) -> Any:
    try:
        return json.loads(zlib.decompress(content))
    except (zlib.error, ValueError) as error:
        raise StoreError(f"{what} is damaged: restore the database from a copy") from error


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
