"""``cactus export``: a run's events for other programs."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from frames.errors import UsageError
from studio.commands.options import db_option

EPILOG = """\b
Examples:
  cactus export RUN --format jsonl > events.jsonl    every event, each call with its prompt and reply
  cactus export RUN --format mermaid -o tree.mmd     the frames as a diagram
  cactus export RUN1 RUN2 --format training          a record for each call: what was asked, said and judged

\b
jsonl: `id` counts without gaps over all continuations of a run, `time` is in seconds since the epoch."""


@click.command("export", epilog=EPILOG)
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "mermaid", "training"]), default="jsonl", show_default=True
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to.  [standard output]")
@db_option
def command(run_ids: tuple[str, ...], form: str, output: Path | None, db: str | None) -> None:
    """Write the events of a run, or what follows from them, as text."""
    from studio.export import exported

    if form == "mermaid" and len(run_ids) > 1:
        raise UsageError("--format mermaid draws one run: name one")
    lines = [line for events in asyncio.run(events_of(run_ids, db)) for line in exported(events, form)]
    write("".join(f"{line}\n" for line in lines), output)


async def events_of(run_ids: tuple[str, ...], db: str | None) -> list[list[dict[str, Any]]]:
    """Return the events of runs.

    Raises:
        UsageError: there is no such run, or it has none.
    """
    from graph.runs import Runs
    from graph.store import open_store
    from studio.options import database

    async with open_store(database(db, existing=True)) as store:
        return [await Runs(store).events(run_id) for run_id in run_ids]


def write(text: str, output: Path | None) -> None:
    """Write ``text`` to a file, or to standard output.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is None or str(output) == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        return
    try:
        output.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
