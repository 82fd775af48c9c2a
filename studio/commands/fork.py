"""``cactus fork``: a run once more with one frame changed; all that the change does not touch is shared."""

import asyncio
from typing import Any

import click

from frames.errors import UsageError
from studio.commands.options import db_option, json_option, quiet_option, role_models
from studio.commands.solve import finish

EPILOG = """\b
Examples:
  cactus fork RUN --frame 0.2 --answer "The contract ends in May."
  cactus fork RUN --frame 0.1 --task "Compare the prices of 2026 only"
  cactus fork RUN --frame 0.1 --role-model solve=openai:gpt-5

\b
Asked anew are the frame, those that depend on it, and the combinations above it.
Exit status: as `cactus solve`."""


@click.command("fork", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("--frame", required=True, metavar="ID", help="The frame to change, as `cactus show RUN` names it.")
@click.option("--task", metavar="TEXT", help="Its new task.")
@click.option("--answer", metavar="TEXT", help="Its answer, in place of any work on it.")
@click.option("--role-model", multiple=True, metavar="ROLE=MODEL", help="A model for it and all frames below it.")
@click.option("--run-id", "new_id", metavar="ID", help="Name of the new run.  [a new one]")
@db_option
@json_option
@quiet_option
def command(
    run_id: str,
    frame: str,
    task: str | None,
    answer: str | None,
    role_model: tuple[str, ...],
    new_id: str | None,
    db: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Work on RUN once more, as a new run, with one frame changed."""
    models = {role: [name.strip() for name in named.split(",")] for role, named in role_models(role_model).items()}
    _check(task, answer, models)
    change = {"frame": frame, "task": task, "answer": answer, "models": models}
    before, document = asyncio.run(_forked(run_id, db, new_id, change, quiet=quiet))
    if not quiet:
        click.echo(f"\n{run_id}: {_cost(before)}\n{before['output'] or before['partial'] or '(no answer)'}\n", err=True)
        click.echo(f"{document['run_id']}: {_cost(document)}", err=True)
    finish(document, as_json=as_json, db=db)


def _check(task: str | None, answer: str | None, models: dict[str, list[str]]) -> None:
    if (task is not None) + (answer is not None) + bool(models) != 1:
        raise UsageError("say what to change: one of --task, --answer and --role-model")
    for option, text in (("--task", task), ("--answer", answer)):
        if text is not None and not text.strip():
            raise UsageError(f"{option} is empty: say what the frame is to be given")
    if models:
        from nodes.settings import Settings

        Settings.checked(role_models=models)


async def _forked(
    run_id: str, db: str | None, new_id: str | None, change: dict[str, Any], *, quiet: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    from frames.text import clean
    from graph.runs import Runs, with_settings
    from graph.store import open_store
    from nodes.change import Change
    from studio.options import database
    from studio.session import Session

    where = database(db, existing=True)
    async with open_store(where) as store:
        runs = Runs(store)
        context = with_settings(await runs.find(run_id), {})
        before = (await runs.result(context, run_id)).to_dict()
    texts = {name: clean(value) if isinstance(value, str) else value for name, value in change.items()}
    return before, await Session(context, where, new_id, quiet=quiet).fork(run_id, Change(**texts))


def _cost(document: dict[str, Any]) -> str:
    usage = document["usage"]
    usd = "" if usage["usd"] is None else f", {usage['usd']:.4f} USD"
    return f"{document['status']}, {usage['calls']} calls, {usage['input_tokens'] + usage['output_tokens']} tokens{usd}"
