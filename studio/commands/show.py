"""``cactus show``: how an answer came about."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from frames.errors import UsageError
from frames.text import one_line
from studio.commands.options import db_option, json_option

if TYPE_CHECKING:
    from graph.store import Run, Store
    from nodes.artifacts import Stored


EPILOG = """\b
Examples:
  cactus show 20261130-101500-1a2b
  cactus show RUN --json | jq .gaps
  cactus show RUN --artifact 0123456789abcdef > table.csv"""


@click.command("show", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--artifact", metavar="ID", help="Write one of the run's artifacts to standard output.")
@db_option
@json_option
def command(run_id: str, artifact: str | None, db: str | None, as_json: bool) -> None:
    """Show a run: its task, its tree of frames, its artifacts, its answer and what it cost."""
    if artifact:
        _print_artifact(asyncio.run(_artifact(run_id, artifact, db)), as_json=as_json)
        return
    document, task = asyncio.run(_document(run_id, db))
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    from rich.console import Console

    from studio.render import print_result

    print_result({**document, "task": task}, Console())


async def _document(run_id: str, db: str | None) -> tuple[dict[str, Any], str]:
    from frames.state import SCHEMA
    from graph.branches import with_branches
    from graph.build import make_graph
    from graph.result import from_state
    from graph.runs import with_settings
    from nodes.artifacts import Artifacts
    from nodes.journal import Journal

    async with _opened(run_id, db) as (store, row):
        graph = make_graph(store.saver)
        snapshot = await graph.aget_state({"configurable": {"thread_id": run_id}})
        values = await with_branches(graph, run_id, snapshot.values)
        artifacts = await Artifacts(store.artifacts, run_id).list()
        journal = Journal(await store.entries(run_id))
    cost = with_settings(row, {}).cost
    if snapshot.values.get("schema", SCHEMA) > SCHEMA:
        raise UsageError(f"run {run_id} was saved by a later release: update Cactus to read it")
    unfinished: Any = row["status"] if row["status"] == "cancelled" else "interrupted"
    bound: Any = row["bound"]
    document = from_state(values, run_id, bound, unfinished, snapshot.created_at, journal, cost).to_dict()
    return {**document, "artifacts": artifacts}, row["task"]


async def _artifact(run_id: str, artifact: str, db: str | None) -> "Stored":
    from nodes.artifacts import Artifacts

    async with _opened(run_id, db) as (store, _):
        artifacts = Artifacts(store.artifacts, run_id)
        found = await artifacts.get(artifact.removeprefix("artifact:"))
        if found is None:
            listed = ", ".join(known["id"] for known in await artifacts.list()) or "none"
            raise UsageError(f"run {run_id} has no artifact {one_line(artifact, 60)!r}; it has {listed}")
        return found


@asynccontextmanager
async def _opened(run_id: str, db: str | None) -> "AsyncGenerator[tuple[Store, Run]]":
    """Open the database and find the run.

    Raises:
        UsageError: there is no such database or run.
    """
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        row = await store.find(run_id)
        if row is None:
            raise UsageError(f"no run {one_line(run_id, 60)!r}: `cactus runs` lists them")
        yield store, row


def _print_artifact(stored: "Stored", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(stored.artifact, ensure_ascii=False))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(stored.content)
