"""The command line: ``cactus``."""

import contextlib
import io
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from frames.errors import CactusError, UsageError

VERSION = "0.1.0"


class _Cli(click.Group):
    """A group whose commands are imported when they are used, so that ``--help`` is quick."""

    _modules = {  # noqa: RUF012  # never changed
        "solve": "studio.commands.solve",
        "resume": "studio.commands.resume",
        "replay": "studio.commands.replay",
        "fork": "studio.commands.fork",
        "runs": "studio.commands.runs",
        "show": "studio.commands.show",
        "export": "studio.commands.export",
        "report": "studio.commands.report",
        "eval": "studio.commands.eval",
        "bound": "studio.commands.bound",
        "demo": "studio.commands.demo",
        "doctor": "studio.commands.doctor",
        "dev": "studio.commands.dev",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = self._modules.get(cmd_name)
        if module is None:
            return None
        return getattr(__import__(module, fromlist=["command"]), "command")  # noqa: B009


@click.group(cls=_Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="cactus")
def cli() -> None:
    """Solve a task that is too big for one model call: split it, solve the parts, check and combine them.

    \b
    cactus demo                                       see it work: no key, no network, no model
    cactus solve "Compare REST and gRPC" --model local
    cactus solve --file task.md --model openai:gpt-5-mini --json
    cactus resume RUN                                 go on after a kill, Ctrl-C or a limit
    cactus show RUN                                   how an answer came about
    """  # noqa: D301  # click reads the escape


def main() -> None:
    """Run the command line; wrong use is a message and status 2, never a traceback."""
    _mend_streams()
    try:
        status = cli(standalone_mode=False)  # a command's ctx.exit(status) is returned
    except UsageError as error:
        _stop(f"cactus: {error}", 2)
    except CactusError as error:
        _stop(f"cactus: {error}", 1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _stop("cactus: stopped", 130)
    except BrokenPipeError:
        _leave(1)
    except OSError as error:
        _unwritten(error)
    _leave(status)


def _mend_streams() -> None:
    """Give closed standard streams a place to go, and open ones characters that they lack."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # as long as we
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _unwritten(error: OSError) -> NoReturn:
    _stop(f"cactus: cannot write the output: {error.strerror}; `cactus runs` lists what was done", 1)


def _stop(message: str, status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        click.echo(message, err=True)
    _leave(status)


def _leave(status: int | None) -> NoReturn:
    """Exit with the streams flushed, for a flush that fails later ends with the interpreter's own status."""
    for stream in (sys.stderr, sys.stdout):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and not status and not isinstance(error, BrokenPipeError):
                _unwritten(error)
    sys.exit(status)


def run() -> None:
    """Run the command line as a program: a late Ctrl-C does not change the status that it ends with."""
    try:
        main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    run()
