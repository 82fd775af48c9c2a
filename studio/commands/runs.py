"""``cactus runs``: the runs of a database."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from graph.store import Run

from studio.commands.options import db_option, json_option


@click.command("runs", epilog="\b\nExamples:\n  cactus runs\n  cactus runs --limit 5 --json")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The latest N runs.")
@db_option
@json_option
def command(limit: int, db: str | None, as_json: bool) -> None:
    """List the latest runs, the newest first."""
    rows = asyncio.run(_rows(db, limit))
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    from rich.console import Console

    from studio.render import print_runs

    print_runs(rows, Console())


async def _rows(db: str | None, limit: int) -> list[dict[str, Any]]:
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        gone = await store.abandoned()
        return [
            {**row, "profile": row["settings"].get("profile", "classic"), "status": _status(row, gone)}
            for row in await store.runs(limit)
        ]


def _status(row: "Run", gone: set[str]) -> str:
    return "interrupted" if row["status"] == "running" and row["run_id"] in gone else row["status"]
