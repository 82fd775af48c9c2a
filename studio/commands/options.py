"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from frames.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

PROFILES = click.Choice(["roma", "classic", "adaptive", "agent"])

_PROFILE = click.option("--profile", type=PROFILES, help="Which of the published systems to follow.  [roma]")

_SETTINGS = [
    click.option("--max-depth", type=int, metavar="N", help="Depth at which every task is solved directly.  [5]"),
    click.option("--max-retries", type=int, metavar="N", help="Attempts per atomic task, the first included.  [2]"),
    click.option("--max-subtasks", type=int, metavar="N", help="Most subtasks of one plan.  [5; classic: no limit]"),
    click.option("--max-frames", type=int, metavar="N", help="Most frames of the whole run.  [1000]"),
    click.option("--max-calls", type=int, metavar="N", help="Most model calls of the whole run.  [no limit]"),
    click.option("--parallel", type=int, metavar="N", help="Most model calls in flight.  [8]"),
    click.option(
        "--on-failure",
        type=click.Choice(["fail", "partial"]),
        help="What a failed subtask does to its parent.  [partial; classic: fail]",
    ),
    click.option("--max-usd", type=float, metavar="X", help="US dollars, after which no call is made.  [no limit]"),
    click.option("--approve", type=click.Choice(["plan"]), help="Ask a person about every plan.  [off]"),
    click.option("--root", metavar="FOLDER", help="Files that the run may list, search and read."),
    click.option("--docs", metavar="FOLDER", help="Documents to search: text, Markdown, HTML, PDF."),
    click.option("--attach", multiple=True, metavar="FILE", help="A file that the run may read; may be repeated."),
    click.option("--tool", "tools", multiple=True, metavar="MODULE:NAME", help="A LangChain tool; may be repeated."),
    click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings: YAML, JSON or TOML."),
    click.option("-c", "pairs", multiple=True, metavar="KEY=VALUE", help="One setting, such as -c atomizer=llm."),
    click.option(
        "--model", metavar="PROVIDER:NAME", help="Model of every role; scripted:FILE or local.  [$CACTUS_MODEL]"
    ),
    click.option(
        "--role-model",
        "role_model",
        multiple=True,
        metavar="ROLE=MODEL[,MODEL]",
        help="One role's model, and those asked where it fails.",
    ),
    click.option("--max-tokens", type=int, metavar="N", help="Tokens after which no call is made.  [no limit]"),
    click.option("--deadline", type=float, metavar="SECONDS", help="When the run ends at the latest.  [none]"),
]

db_option = click.option("--db", metavar="FILE|postgresql://…", help="Where runs live.  [the user's data folder]")
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress.")


def run_options(command: F) -> F:
    """Add the options that say how a run is made and bounded."""
    return _with([_PROFILE, *_SETTINGS], command)


def setting_options(command: F) -> F:
    """Add the same options but for the profile, of which the command takes several."""
    return _with(_SETTINGS, command)


def role_models(given: tuple[str, ...]) -> dict[str, str]:
    """Return the ``ROLE=MODEL`` options as a mapping.

    Raises:
        UsageError: one is not of that form.
    """
    split = [text.partition("=") for text in given]
    for text, (role, equals, model) in zip(given, split, strict=True):
        if not (role and equals and model):
            raise UsageError(f"--role-model {text}: must be ROLE=PROVIDER:NAME, such as solve=openai:gpt-5-mini")
    return {role: model for role, _, model in split}


def _with(options: list[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command
