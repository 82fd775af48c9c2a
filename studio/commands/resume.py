"""``cactus resume``: go on with a run that was stopped, or that ended without an answer."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from studio.commands.options import db_option, json_option, quiet_option, role_models, run_options
from studio.commands.solve import asks, finish

if TYPE_CHECKING:
    from nodes.context import Context

EPILOG = """\b
Examples:
  cactus resume 20261130-101500-1a2b
  cactus resume RUN --max-calls 200                 after a limit was reached
  cactus resume RUN --model openai:gpt-5            with another model for what is left
  cactus resume RUN --decide 0=approve --decide '0.1=reject: one part is enough'

\b
Nothing that was answered is asked again; a run that succeeded is printed as it is.
Exit status: as `cactus solve`."""


@click.command("resume", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--decide", multiple=True, metavar="FRAME=DECISION", help="approve, reject:TEXT or @plan.yaml.")
@run_options
@db_option
@json_option
@quiet_option
def command(
    run_id: str,
    decide: tuple[str, ...],
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
    context, before = asyncio.run(_found(run_id, where, values))
    done = before["status"] == "succeeded"
    if done and not quiet:
        click.echo(f"run {run_id} is finished: there is nothing to go on with", err=True)
    if done:
        finish(before, as_json=as_json, db=db)
    from studio.session import Session

    session = Session(context, where, run_id, quiet=quiet)
    asked = asks(as_json=as_json, quiet=quiet)
    document = session.decided(before, asks=asked and not decide)
    if document is before:
        document = asyncio.run(session.resume(_decisions(decide, before)))
    finish(session.decided(document, asks=asked), as_json=as_json, db=db)


def _decisions(given: tuple[str, ...], document: dict[str, Any]) -> dict[str, Any] | None:
    if not given:
        return None
    from studio.approving import decisions_from
    from studio.session import pending_of

    return decisions_from(given, pending_of(document))


async def _found(run_id: str, where: str | None, values: dict[str, Any]) -> "tuple[Context, dict[str, Any]]":
    from graph.runs import Runs, with_settings
    from graph.store import open_store

    async with open_store(where) as store:
        runs = Runs(store)
        context = with_settings(await runs.find(run_id), values)
        return context, (await runs.result(context, run_id)).to_dict()
