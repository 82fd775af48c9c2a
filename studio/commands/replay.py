"""``cactus replay``: a run once more, from its journal alone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from frames.errors import UsageError
from frames.events import json_line
from studio.commands.export import write
from studio.commands.options import db_option, json_option
from studio.commands.solve import finish

EPILOG = """\b
Examples:
  cactus replay 20261130-101500-1a2b
  cactus replay RUN --json | jq .output
  cactus replay RUN --events again.jsonl            the same bytes as `cactus export RUN`
  cactus replay RUN --to 4                          the stack of frames after step 4
  cactus replay --from-trace THREAD:CHECKPOINT      the stack of frames at a step that LangSmith shows

\b
No model, tool or program is asked, and no network is used. Where the code would ask something else than the
run did, the frame, the role and the difference are printed, and the exit status is 1."""


@click.command("replay", epilog=EPILOG)
@click.argument("run_id", metavar="RUN", required=False)
@click.option("--to", type=click.IntRange(min=0), metavar="STEP", help="Show the stack of frames after a step instead.")
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the run's events, one a line; - for stdout.",
)
@click.option(
    "--from-trace",
    metavar="THREAD:CHECKPOINT",
    help="Show the stack of frames at a step, by thread_id and checkpoint_id of its trace.",
)
@db_option
@json_option
def command(
    run_id: str | None, to: int | None, events: Path | None, from_trace: str | None, db: str | None, as_json: bool
) -> None:
    """Work RUN through again from its journal, without a model, and print the same result."""
    if (run_id is None) == (from_trace is None) or (from_trace and to is not None):
        raise UsageError("give RUN, with --to STEP if you like, or --from-trace THREAD:CHECKPOINT without them")
    if from_trace is not None:
        _print_stack(asyncio.run(_traced(from_trace, db)), as_json=as_json)
        return
    assert run_id  # noqa: S101  # checked above
    if to is not None:
        _print_stack(asyncio.run(_stack(run_id, db, to)), as_json=as_json)
        return
    document, told = asyncio.run(_replayed(run_id, db))
    if events:
        write("".join(f"{json_line(event)}\n" for event in told), events)
    finish(document, as_json=as_json, show=None if str(events) != "-" else lambda _: None, db=db)


async def _replayed(run_id: str, db: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from graph.runs import Runs, with_settings
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        runs = Runs(store)
        context = with_settings(await runs.find(run_id), {})
        result = await runs.replay(context, run_id)
        told = await runs.told(run_id)
    click.echo(f"replayed {run_id} from its journal: the same result, and nothing was asked", err=True)
    return result.to_dict(), told


async def _stack(run_id: str, db: str | None, step: int) -> dict[str, Any]:
    from graph.runs import Runs
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        return await Runs(store).stack_at(run_id, step)


async def _traced(from_trace: str, db: str | None) -> dict[str, Any]:
    from graph.checkpoint import stack_from_trace
    from graph.store import open_store
    from studio.options import database

    thread, colon, checkpoint = from_trace.rpartition(":")
    if not (thread and colon and checkpoint):
        raise UsageError(
            f"--from-trace {from_trace}: must be THREAD:CHECKPOINT, the thread_id and checkpoint_id of a step"
        )
    async with open_store(database(db, existing=True)) as store:
        return await stack_from_trace(store.saver, thread, checkpoint)


def _heading(told: dict[str, Any]) -> str:
    if "steps" in told:
        return f"step {told['step']} of {told['steps']}"
    branch = f" of branch {told['branch']}" if told["branch"] else ""
    return f"run {told['run_id']}, step {told['step']}{branch}, before {', '.join(told['next']) or 'its end'}"


def _print_stack(told: dict[str, Any], *, as_json: bool) -> None:
    from studio.live import printable

    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(_heading(told), err=True)
    for frame in told["stack"] or ():
        done, planned = len(frame["results"]), len(frame["plan"])
        parts = f", {done} of {planned} subtasks done" if planned else ""
        click.echo(
            f"{frame['id']}  {frame['phase']}, attempt {frame['attempt']}{parts}  {printable(frame['task'], 60)}"
        )
