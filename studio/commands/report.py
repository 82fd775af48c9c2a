"""``cactus report``: a run as one HTML file."""

import asyncio
import webbrowser
from pathlib import Path

import click

from frames.errors import UsageError
from studio.commands.export import events_of, write
from studio.commands.options import db_option

EPILOG = """\b
Examples:
  cactus report 20261130-101500-1a2b -o run.html
  cactus report RUN --open                          written to RUN.html, and shown in the browser
  cactus report RUN -o - > run.html

\b
The file needs no server and no network, and loads nothing. It holds every prompt and reply: mind who reads it."""


@click.command("report", epilog=EPILOG)
@click.argument("run_id", metavar="RUN")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Where to.  [RUN.html]")
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.option("--force", is_flag=True, help="Overwrite a file that is no report.")
@db_option
def command(run_id: str, output: Path | None, db: str | None, *, opens: bool, force: bool) -> None:
    """Write what RUN did as one HTML page: tree, plans, time line, prompts and replies, costs, steps."""
    from studio.report.page import page

    if opens and str(output) == "-":
        raise UsageError("--open needs a file: -o FILE instead of -o -")
    path = output or Path(f"{run_id.replace('/', '_')}.html")
    if not force:
        _check_file(path)
    [events] = asyncio.run(events_of((run_id,), db))
    write(page(events), path)
    if str(path) != "-":
        click.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)", err=True)
    if opens and not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"no browser could be started: open {path} yourself", err=True)


def _check_file(path: Path) -> None:
    """Check that a report may be written to ``path``.

    Raises:
        UsageError: a file is there that is no report.
    """
    from studio.report.page import MARK

    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file with -o")
    if str(path) != "-" and path.is_file() and MARK.encode() not in path.read_bytes()[:2000]:
        raise UsageError(f"{path} is there and is no report: name another file, or use --force")
