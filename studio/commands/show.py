"""``cactus show``: how an answer came about."""

import asyncio
import json
from typing import Any

import click

from frames.errors import UsageError
from frames.text import one_line
from studio.commands.options import db_option, json_option


@click.command("show", epilog="\b\nExamples:\n  cactus show 20261130-101500-1a2b\n  cactus show RUN --json | jq .gaps")
@click.argument("run_id", metavar="RUN")
@db_option
@json_option
def command(run_id: str, db: str | None, as_json: bool) -> None:
    """Show a run: its task, its tree of frames, its answer and what it cost."""
    document, task = asyncio.run(_document(run_id, db))
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    from rich.console import Console

    from studio.render import print_result

    print_result({**document, "task": task}, Console())


async def _document(run_id: str, db: str | None) -> tuple[dict[str, Any], str]:
    from frames.state import SCHEMA
    from graph.build import make_graph
    from graph.result import from_state
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        row = await store.find(run_id)
        if row is None:
            raise UsageError(f"no run {one_line(run_id, 60)!r}: `cactus runs` lists them")
        snapshot = await make_graph(store.saver).aget_state({"configurable": {"thread_id": run_id}})
    if snapshot.values.get("schema", SCHEMA) > SCHEMA:
        raise UsageError(f"run {run_id} was saved by a later release: update Cactus to read it")
    unfinished: Any = row["status"] if row["status"] == "cancelled" else "interrupted"
    bound: Any = row["bound"]
    return from_state(snapshot.values, run_id, bound, unfinished, snapshot.created_at).to_dict(), row["task"]
