"""``cactus demo``: a scripted run through every node."""

import asyncio
from pathlib import Path

import click

from studio.commands.options import json_option, quiet_option
from studio.commands.solve import finish

TASK = "Write a migration guide for moving from REST to gRPC"
SCRIPT = Path(__file__).parent.parent / "demo.yaml"


@click.command("demo", epilog="\b\nExamples:\n  cactus demo\n  cactus demo --json | jq .traces")
@json_option
@quiet_option
def command(as_json: bool, quiet: bool) -> None:
    """Solve a task with scripted answers: no key, no network, no model; nothing is saved."""
    from nodes.context import Context
    from studio.session import Session

    context = Context.checked(profile="roma", model=f"scripted:{SCRIPT}")
    session = Session(context, None, None, quiet=quiet, keep=False)
    finish(asyncio.run(session.solve(TASK)), as_json=as_json)
