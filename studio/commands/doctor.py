"""``cactus doctor``: whether everything is at hand that a run needs."""

import asyncio
import json
import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import click

from frames.errors import UsageError
from studio.commands.options import db_option, json_option

PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langchain", "pydantic")
OPTIONAL = ("langchain-openai", "xllamacpp", "langgraph-checkpoint-postgres", "langgraph-api")


class Check(NamedTuple):
    """One finding: ``ok`` is ``None`` where the thing is optional and missing."""

    name: str
    ok: bool | None
    detail: str


@click.command(
    "doctor", epilog="\b\nExamples:\n  cactus doctor\n  cactus doctor --db postgresql://localhost/runs --json"
)
@db_option
@json_option
def command(db: str | None, as_json: bool) -> None:
    """Check packages, models, the database and tracing; status 1 where something needed is missing."""
    checks = [*_packages(), *_models(), asyncio.run(_database(db)), _tracing()]
    if as_json:
        click.echo(json.dumps([check._asdict() for check in checks], ensure_ascii=False))
    else:
        for check in checks:
            click.echo(f"{_mark(check.ok)} {check.name:<30} {check.detail}")
    click.get_current_context().exit(1 if any(check.ok is False for check in checks) else 0)


def _mark(ok: bool | None) -> str:
    return {True: "ok  ", False: "FAIL", None: "-   "}[ok]


def _packages() -> Iterator[Check]:
    yield Check("python", True, platform.python_version())
    for name in (*PACKAGES, *OPTIONAL):
        try:
            yield Check(name, True, version(name))
        except PackageNotFoundError:
            needed = name in PACKAGES
            yield Check(name, False if needed else None, f"not installed: pip install {name}")


def _models() -> Iterator[Check]:
    from nodes.models.local import problems
    from nodes.models.resolve import default_name

    try:
        yield Check("default model", True, default_name())
    except UsageError as error:
        yield Check("default model", False, str(error))
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        yield Check(
            variable, True if os.environ.get(variable) else None, "set" if os.environ.get(variable) else "not set"
        )
    found = problems()
    yield Check("local model", None if found else True, "; ".join(found) or "ready")


async def _database(db: str | None) -> Check:
    from graph.store import default_path, open_store
    from studio.options import database

    where = database(db)
    try:
        async with open_store(where) as store:
            return Check("database", True, f"{where or default_path()} ({len(await store.runs(1_000_000))} runs)")
    except UsageError as error:
        return Check("database", False, str(error))


def _tracing() -> Check:
    from langsmith.utils import tracing_is_enabled

    on = bool(tracing_is_enabled())
    endpoint = os.environ.get("LANGSMITH_ENDPOINT", "LangSmith's own endpoint")
    return Check(
        "LangSmith tracing", True if on else None, f"on: runs are sent to {endpoint}" if on else "off: nothing is sent"
    )
