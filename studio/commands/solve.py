"""``cactus solve``: a task in, a checked answer out."""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from frames.errors import UsageError
from studio.commands.options import db_option, json_option, quiet_option, role_models, run_options

EPILOG = """\b
Examples:
  cactus solve "Write a migration guide from REST to gRPC" --model openai:gpt-5-mini
  cactus solve --file task.md --model local --max-depth 1
  echo "Summarise this: …" | cactus solve - --json --quiet
  cactus solve "…" --role-model verify=openai:gpt-5 -c verifier=llm --max-calls 50

\b
Exit status: 0 an accepted answer, 1 none, 2 wrong use, 3 a limit was reached,
4 waiting for a person, 130 stopped by Ctrl-C."""

_LIMIT = re.compile(r"\b(max_calls|max_tokens|max_usd|max_frames|deadline) = ([\d.]+)(?: s)? reached")

MOST_GAPS = 30
"""Gaps that are told at the terminal."""


@click.command("solve", epilog=EPILOG)
@click.argument("task", required=False)
@click.option("--file", "file", type=click.Path(path_type=Path), metavar="PATH", help="Read the task from a file.")
@run_options
@db_option
@click.option("--run-id", metavar="ID", help="Name of the run.  [a new one]")
@json_option
@quiet_option
def command(
    task: str | None,
    file: Path | None,
    db: str | None,
    run_id: str | None,
    role_model: tuple[str, ...],
    config: Path | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Solve TASK; - reads it from standard input."""
    text = read_task(task, file)
    from studio.options import choose  # LangGraph takes a second or two to import

    chosen = choose({**given, "db": db, "role_models": role_models(role_model)}, pairs, config)
    from studio.session import Session

    session = Session(chosen.context, chosen.db, run_id, quiet=quiet)
    document = session.decided(asyncio.run(session.solve(text)), asks=asks(as_json=as_json, quiet=quiet))
    finish(document, as_json=as_json, db=db)


def asks(*, as_json: bool, quiet: bool) -> bool:
    """Whether a person can be asked: at a terminal, and without --json or --quiet."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not as_json and not quiet


def read_task(task: str | None, file: Path | None) -> str:
    """Return the task's text, from the argument, standard input or a file.

    Raises:
        UsageError: none or both were given, the file cannot be read, or the text is blank.
    """
    if (task is None) == (file is None):
        raise UsageError("give one task: TASK, - for standard input, or --file PATH")
    text = _read(file) if file else sys.stdin.buffer.read().decode("utf-8", "replace") if task == "-" else str(task)
    if not text.strip():
        raise UsageError("the task is empty: say what to solve")
    return text


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read --file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read --file {file}: it is no UTF-8 text (byte {error.start})") from error


def finish(
    document: dict[str, Any],
    *,
    as_json: bool,
    show: Callable[[dict[str, Any]], None] | None = None,
    db: str | None = None,
) -> None:
    """Print the outcome and how to go on, and end with its exit status."""
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        show(document) if show else print_outcome(document, db)
    if document.get("pending"):
        _print_pending(document, db)
    elif document["status"] in ("limited", "interrupted", "cancelled") and not show:
        click.echo(f"  go on with: {continuing(document, db)}", err=True)
    status = {"succeeded": 0, "failed": 1, "limited": 3}.get(document["status"], 4 if document.get("pending") else 130)
    click.get_current_context().exit(status)


def _print_pending(document: dict[str, Any], db: str | None) -> None:
    from rich.console import Console

    from studio.approving import shown
    from studio.session import pending_of

    Console(stderr=True).print(shown(pending_of(document)))
    frame = document["pending"][0]["frame"]
    click.echo(f"waiting for a person: {continuing(document, db)} --decide {frame}=approve", err=True)
    click.echo("  or at a terminal without --decide; other decisions: FRAME=reject:TEXT, FRAME=@plan.yaml", err=True)


def continuing(document: dict[str, Any], db: str | None) -> str:
    """Return the command that goes on with a run; a limit that was reached must be raised for that."""
    found = [match for gap in document["gaps"] if (match := _LIMIT.search(gap))]
    raised = f" --{found[-1][1].replace('_', '-')} {_double(found[-1][2])}" if found else ""
    return f"cactus resume {document['run_id']}{raised}{_at(db)}"


def _at(db: str | None) -> str:
    return f" --db {shlex.quote(db)}" if db else ""


def _double(number: str) -> str:
    return f"{2 * float(number):g}"


def print_outcome(document: dict[str, Any], db: str | None = None) -> None:
    """Print the answer on standard output; why there is none on standard error."""
    if document["success"]:
        click.echo(document["output"])
        if document["gaps"]:
            click.echo("cactus: the answer has gaps" + _listed(document, db), err=True)
        return
    if document.get("pending"):
        return
    head = {"failed": "no accepted answer", "limited": "a limit was reached"}.get(document["status"], "stopped")
    click.echo(f"cactus: {head}" + _listed(document, db), err=True)
    click.echo(f"  what was done is kept: cactus show {document['run_id']}{_at(db)}", err=True)
    if document["partial"]:
        click.echo(f"[no answer; found so far]\n{document['partial']}")


def _listed(document: dict[str, Any], db: str | None) -> str:
    """Return the gaps, one a line; of very many the first, for the run has them all."""
    gaps = document["gaps"]
    kept = f"cactus show {document['run_id']}{_at(db)}"
    more = [f"… and {len(gaps) - MOST_GAPS} more: {kept}"] if len(gaps) > MOST_GAPS else []
    return "".join(f"\n  {gap}" for gap in [*gaps[:MOST_GAPS], *more])
