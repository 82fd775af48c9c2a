"""``cactus replay``: a run once more, from its journal alone."""

import asyncio
from typing import Any

import click

from studio.commands.options import db_option, json_option
from studio.commands.solve import finish

EPILOG = """\b
Examples:
  cactus replay 20261130-101500-1a2b
  cactus replay RUN --json | jq .output

\b
No model, tool or program is asked, and no network is used. Where the code would ask something else than the
run did, the frame, the role and the difference are printed, and the exit status is 1."""


@click.command("replay", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@db_option
@json_option
def command(run_id: str, db: str | None, as_json: bool) -> None:
    """Work RUN through again from its journal, without a model, and print the same result."""
    finish(asyncio.run(_replayed(run_id, db)), as_json=as_json, db=db)


async def _replayed(run_id: str, db: str | None) -> dict[str, Any]:
    from graph.runs import Runs, with_settings
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        runs = Runs(store)
        context = with_settings(await runs.find(run_id), {})
        result = await runs.replay(context, run_id)
    click.echo(f"replayed {run_id} from its journal: the same result, and nothing was asked", err=True)
    return result.to_dict()
