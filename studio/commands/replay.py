"""``cactus replay``: a run once more, from its journal alone."""

import asyncio
import json
from typing import Any

import click

from studio.commands.options import db_option, json_option
from studio.commands.solve import finish

EPILOG = """\b
Examples:
  cactus replay 20261130-101500-1a2b
  cactus replay RUN --json | jq .output
  cactus replay RUN --to 4                          the stack of frames after step 4

\b
No model, tool or program is asked, and no network is used. Where the code would ask something else than the
run did, the frame, the role and the difference are printed, and the exit status is 1."""


@click.command("replay", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--to", type=click.IntRange(min=0), metavar="STEP", help="Show the stack of frames after a step instead.")
@db_option
@json_option
def command(run_id: str, to: int | None, db: str | None, as_json: bool) -> None:
    """Work RUN through again from its journal, without a model, and print the same result."""
    if to is not None:
        _print_stack(asyncio.run(_stack(run_id, db, to)), as_json=as_json)
        return
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


async def _stack(run_id: str, db: str | None, step: int) -> dict[str, Any]:
    from graph.runs import Runs
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        return await Runs(store).stack_at(run_id, step)


def _print_stack(told: dict[str, Any], *, as_json: bool) -> None:
    from studio.live import printable

    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(f"step {told['step']} of {told['steps']}", err=True)
    for frame in told["stack"] or ():
        done, planned = len(frame["results"]), len(frame["plan"])
        parts = f", {done} of {planned} subtasks done" if planned else ""
        click.echo(
            f"{frame['id']}  {frame['phase']}, attempt {frame['attempt']}{parts}  {printable(frame['task'], 60)}"
        )
