"""``cactus dev``: LangGraph's dev server with one graph per profile, offline."""

import errno
import os
import socket
from importlib.util import find_spec
from pathlib import Path

import click

from frames.errors import UsageError

CONFIG = Path(__file__).parent.parent / "langgraph.json"

JOBS = 8
"""Runs at a time; the server's own default of one would have a run wait for every other."""

OFFLINE = {"LANGSMITH_TRACING": "false", "LANGGRAPH_NO_VERSION_CHECK": "1", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}

_ONLINE = ("LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_CLOUD_")
"""How the variables begin that have the server, or what it imports, call LangSmith."""


@click.command(
    "dev", epilog="\b\nExamples:\n  cactus dev\n  cactus dev --port 8123\n  CACTUS_MODEL=local cactus dev --browser"
)
@click.option("--host", default="127.0.0.1", help="Address to listen on, IPv4.  [127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=2024, metavar="N", help="Port; 0 for a free one.  [2024]"
)
@click.option("--browser/--no-browser", help="Open Studio, a page of smith.langchain.com.  [no browser]")
@click.option("--reload/--no-reload", help="Start anew when a file of code here changes.  [no reload]")
@click.option("--trace", is_flag=True, help="Send traces to LangSmith, as its variables say.  [offline]")
def command(host: str, port: int, browser: bool, reload: bool, trace: bool) -> None:
    """Serve the graphs to LangGraph Studio and to langgraph_sdk, until Ctrl-C.

    Threads and runs are kept in the folder .langgraph_api, here. The server itself calls nobody: no traces, no
    statistics, no look-up of versions.
    """
    for package in ("langgraph_cli", "langgraph_api"):
        if find_spec(package) is None:
            raise UsageError("the dev server is not installed: pip install 'cactus-solver[studio]'")
    port = _free_port(host, port)
    if not trace:
        _go_offline()
    os.environ |= {name: value for name, value in OFFLINE.items() if not (trace and name == "LANGSMITH_TRACING")}
    from langgraph_cli.cli import cli as langgraph  # after the variables, which it reads when it is imported

    flags = [*([] if browser else ["--no-browser"]), *([] if reload else ["--no-reload"])]
    where = ["--config", str(CONFIG), "--host", host, "--port", str(port), "--n-jobs-per-worker", str(JOBS)]
    langgraph.main(["dev", *where, *flags], prog_name="langgraph", standalone_mode=False)


def _go_offline() -> None:
    """Take the variables out of the environment that have the server call LangSmith."""
    for name in [name for name in os.environ if name.startswith(_ONLINE)]:
        del os.environ[name]


def _free_port(host: str, port: int) -> int:
    """Return the port that is meant.

    Raises:
        UsageError: it is taken, or there is no such address here.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UsageError(
                    f"port {port} of {host} is taken: name another with --port, or 0 for a free one"
                ) from error
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; name another with --host"
            ) from error
        return int(probe.getsockname()[1])
