"""``cactus resume``: go on with a run that was stopped, or that ended without an answer."""

import asyncio
from pathlib import Path
from typing import Any

import click

from studio.commands.options import db_option, json_option, quiet_option, role_models, run_options
from studio.commands.solve import finish

EPILOG = """\b
Examples:
  cactus resume 20261130-101500-1a2b
  cactus resume RUN --max-calls 200                 after a limit was reached
  cactus resume RUN --model openai:gpt-5            with another model for what is left

\b
Nothing that was answered is asked again; a run that succeeded is printed as it is.
Exit status: as `cactus solve`."""


@click.command("resume", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@run_options
@db_option
@json_option
@quiet_option
def command(
    run_id: str,
    db: str | None,
    role_model: tuple[str, ...],
    config: Path | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Go on with RUN: after a kill, Ctrl-C, a limit or a failure."""
    from studio.options import changed, database

    values = changed({**given, "role_models": role_models(role_model)}, pairs, config)
    where = database(db, existing=True)
    finish(asyncio.run(_resumed(run_id, where, values, quiet=quiet)), as_json=as_json, db=db)


async def _resumed(run_id: str, where: str | None, values: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    from graph.runs import Runs, with_settings
    from graph.store import open_store
    from studio.session import Session

    async with open_store(where) as store:
        row = await Runs(store).find(run_id)
        context = with_settings(row, values)
        done = row["status"] == "succeeded"
    if done and not quiet:
        click.echo(f"run {run_id} is finished: there is nothing to go on with", err=True)
    return await Session(context, where, run_id, quiet=quiet or done).resume()
