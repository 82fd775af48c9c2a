"""``cactus eval``: a set of tasks solved, judged and summed up by profile."""

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frames.errors import UsageError
from studio.commands.options import PROFILES, db_option, json_option, quiet_option, role_models, setting_options

if TYPE_CHECKING:
    from langgraph.runtime import RunControl
    from rich.table import Table

    from graph.dataset import Row
    from graph.evaluate import Evaluation, Outcome
    from nodes.context import Context

EPILOG = """\b
Examples:
  cactus eval tasks.jsonl --model openai:gpt-5-mini
  cactus eval tasks.jsonl --profile classic --profile roma --parallel-tasks 8
  cactus eval tasks.jsonl --judge model --judge-model openai:gpt-5
  cactus eval tasks.jsonl --upload capitals                   as an experiment in LangSmith

\b
A line of FILE: {"task": "…", "expected": "…", "judge": "exact|contains|regex|model"}
Each task is a run of the database. The same command once more goes on where it was stopped and pays for nothing twice;
another --name works the tasks anew.
Exit status: 0 evaluated, 2 wrong use, 130 stopped by Ctrl-C."""

_NAME = re.compile(r"[\w.-]{1,100}")


@click.command("eval", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.jsonl")
@click.option("--profile", "profiles", multiple=True, type=PROFILES, help="May be repeated.  [roma]")
@click.option(
    "--judge",
    type=click.Choice(["exact", "contains", "regex", "model"]),
    default="exact",
    show_default=True,
    help="Judges the rows that name none.",
)
@click.option("--judge-model", metavar="PROVIDER:NAME", help="Model of the judge `model`.  [the tasks' own]")
@click.option("--parallel-tasks", type=click.IntRange(min=1), default=4, show_default=True, help="Tasks at a time.")
@click.option("--name", metavar="NAME", help="Name of the evaluation.  [FILE's]")
@click.option("--upload", metavar="DATASET", help="Upload as an experiment on LangSmith's data set of that name.")
@setting_options
@db_option
@json_option
@quiet_option
def command(
    file: Path,
    profiles: tuple[str, ...],
    judge: Any,
    judge_model: str | None,
    parallel_tasks: int,
    name: str | None,
    upload: str | None,
    db: str | None,
    role_model: tuple[str, ...],
    config: Path | None,
    pairs: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Solve the tasks of FILE under each profile, judge the answers, and print a table."""
    from graph.dataset import read_rows
    from graph.experiment import checked_key
    from studio.options import choose

    rows = read_rows(_read(file), str(file), judge)
    called = _checked_name(name or re.sub(r"[^\w.-]+", "-", file.stem) or "eval")
    if upload:
        checked_key()
    explicit = {**given, "db": db, "role_models": role_models(role_model)}
    named = dict.fromkeys(profiles or ("roma",))
    chosen = {profile: choose({**explicit, "profile": profile}, pairs, config) for profile in named}
    contexts = {profile: each.context for profile, each in chosen.items()}
    where = next(iter(chosen.values())).db
    work = _Work(called, contexts, rows, judge_model, parallel_tasks, upload, quiet=quiet)
    with contextlib.redirect_stdout(sys.stderr):  # LangSmith's client prints where the experiment is
        document = asyncio.run(work.evaluated(where))
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False))
    else:
        _print(document)
    if not document["finished"]:
        click.echo("stopped: the same command goes on", err=True)
    click.get_current_context().exit(0 if document["finished"] else 130)


class _Work:
    """One evaluation at the terminal."""

    def __init__(
        self,
        name: str,
        contexts: "Mapping[str, Context]",
        rows: "list[Row]",
        judge_model: str | None,
        at_once: int,
        upload: str | None,
        *,
        quiet: bool,
    ) -> None:
        from nodes.models.resolve import Models
        from studio.fetching import Fetching

        first = next(iter(contexts.values()))
        self._models = Models(first.call_timeout, None if quiet else Fetching())
        self._contexts = {profile: self._ready(context) for profile, context in contexts.items()}
        wants = any(row.judge == "model" for row in rows)
        self._judge = self._ready(_judging(first, judge_model)) if wants else None
        self._name, self._rows, self._at_once, self._upload, self._quiet = name, rows, at_once, upload, quiet

    def _ready(self, context: "Context") -> "Context":
        return context.with_components(context.components, self._models)

    async def evaluated(self, db: str | None) -> dict[str, Any]:
        """Return the evaluation's document."""
        from langgraph.runtime import RunControl

        from graph.evaluate import Evaluation, document
        from graph.runs import Runs
        from graph.store import open_store

        control = RunControl()
        experiments: dict[str, str] = {}
        with _heeded(control):
            try:
                await asyncio.to_thread(self._find_models)
                async with open_store(db) as store:
                    work = Evaluation(Runs(store), self._name, self._contexts, self._judge, self._rows, control)
                    outcomes, experiments = await self._worked(work)
            finally:
                self._models.close()
        told = document(self._name, outcomes, len(self._rows) * len(self._contexts))
        return {**told, "upload": {"dataset": self._upload, "experiments": experiments}} if self._upload else told

    async def _worked(self, work: "Evaluation") -> "tuple[list[Outcome], dict[str, str]]":
        if self._upload:
            from graph.experiment import uploaded

            return await uploaded(work, self._upload, self._at_once, self._tell)
        return await work.work(self._at_once, self._tell), {}

    def _find_models(self) -> None:
        for context in [*self._contexts.values(), *([self._judge] if self._judge else [])]:
            for model in dict.fromkeys(context.named_models()):
                self._models.resolve(model)

    def _tell(self, outcome: "Outcome") -> None:
        from studio.live import printable

        if self._quiet:
            return
        mark = {True: "right", False: "wrong", None: "-"}[outcome.correct]
        why = f"  {printable(outcome.reason, 80)}" if outcome.reason else ""
        click.echo(f"{mark:<5}  {outcome.profile}  line {outcome.line}  {printable(outcome.task, 60)}{why}", err=True)


def _judging(context: "Context", model: str | None) -> "Context":
    """Return the settings of the judge's calls: one call each, by ``model`` or the one that verifies."""
    from nodes.context import Context

    asked = model or context.models_of("verify")[0]
    kept = {name: getattr(context, name) for name in ("prices", "call_timeout", "call_attempts")}
    return Context.checked(profile="classic", max_depth=0, model=asked, **kept)


@contextlib.contextmanager
def _heeded(control: "RunControl") -> Iterator[None]:
    """Let the first Ctrl-C end the tasks after the calls in flight; the second stops at once."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def on_signal() -> None:
        if control.drain_requested and task:
            task.cancel()
            return
        control.request_drain("stopped by the user")
        click.echo("stopping after the calls in flight; Ctrl-C again stops at once", err=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, on_signal)
    try:
        yield
    except asyncio.CancelledError:
        raise click.Abort from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}; name a file of JSON lines") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: it is no UTF-8 text (byte {error.start})") from error


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(f"--name {name!r}: must be 1 to 100 letters, digits, dots, dashes or underscores")
    return name


def _print(document: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_table(document))
    for profile, name in document.get("upload", {}).get("experiments", {}).items():
        console.print(f"{profile}: experiment {name}", markup=False, soft_wrap=True)


def _table(document: dict[str, Any]) -> "Table":
    from rich import box
    from rich.table import Table

    from studio.render import duration

    heads = ("profile", "tasks", "right", "accuracy", "calls", "judging", "tokens", "USD", "time a task")
    table = Table(*heads, box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in document["profiles"]:
        share = "-" if each["accuracy"] is None else f"{each['accuracy']:.0%}"
        unjudged = f" ({each['unjudged']} without a verdict)" if each["unjudged"] else ""
        table.add_row(
            each["profile"],
            str(each["tasks"]),
            f"{each['correct']}{unjudged}",
            share,
            str(each["calls"]),
            str(each["judge_calls"]),
            str(each["input_tokens"] + each["output_tokens"]),
            "unknown" if each["usd"] is None else f"{each['usd']:.4f}",
            duration(each["seconds"]),
        )
    return table
