"""``cactus bound``: what a run can cost at most, before it starts."""

import json
from pathlib import Path
from typing import Any

import click

from studio.commands.options import json_option, role_models, run_options


@click.command(
    "bound",
    epilog="\b\nExamples:\n  cactus bound --max-subtasks 5\n  cactus bound --max-depth 2 -c verifier=llm --json",
)
@run_options
@json_option
def command(
    role_model: tuple[str, ...], config: Path | None, pairs: tuple[str, ...], as_json: bool, **given: Any
) -> None:
    """Print the most frames and model calls that a run with these options can need."""
    from graph.bound import bound_of
    from studio.options import choose
    from studio.session import at_most

    most = bound_of(choose({**given, "role_models": role_models(role_model)}, pairs, config, needs_model=False).context)
    if as_json:
        click.echo(json.dumps(most))
    else:
        click.echo(f"{at_most(most)}, in {most['steps']} steps")
