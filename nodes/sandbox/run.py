"""Code that a language model wrote, run where it can do no harm.

A block of code is a complete program: variables do not survive between blocks, files do. Monty, an interpreter with
no way to the host, runs what it can; CPython in namespaces of its own, by bubblewrap, runs the rest.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol

Engine = Literal["monty", "bubblewrap"]

WORK = "/work"
"""The folder that a program starts in: the files it is given lie there, and what it leaves there comes back."""

MOST_FILES = 1000
"""Files that come back from one program."""


@dataclass(frozen=True)
class SandboxLimits:
    """What one program may use.

    ``seconds`` is wall and CPU time, ``memory_mb`` its memory, ``output_chars`` what is kept of what it prints (the
    rest is cut, and the output says so), ``file_mb`` the size of all files that it writes together.
    """

    seconds: float = 10.0
    memory_mb: int = 256
    output_chars: int = 20_000
    file_mb: int = 20


@dataclass(frozen=True)
class Ran:
    """What became of a program.

    ``output`` is what it printed and, like a notebook's, the value of a last expression that is not ``None``.
    ``error`` says why it failed, for a model to mend it: exception, message and line, or the limit that it hit.
    ``files`` are those that it wrote or changed, by name; a program that was killed leaves none. They are as
    untrusted as the program is.
    """

    output: str
    error: str | None
    files: dict[str, bytes]
    engine: Engine


def as_plain(ran: Ran) -> dict[str, Any]:
    """Return what became of a program as a JSON value, for the journal."""
    files = {name: base64.b64encode(content).decode() for name, content in ran.files.items()}
    return {"output": ran.output, "error": ran.error, "files": files, "engine": ran.engine}


def from_plain(value: Mapping[str, Any]) -> Ran:
    """Return what ``as_plain`` made a JSON value of."""
    files = {name: base64.b64decode(content) for name, content in value["files"].items()}
    return Ran(value["output"], value["error"], files, value["engine"])


def output_of(ran: Mapping[str, Any]) -> str:
    """Return what a program, as ``as_plain`` tells of it, printed, and why it failed where it did."""
    return "\n".join(part for part in (ran["output"], ran["error"]) if part)


@dataclass(frozen=True)
class Lack:
    """What an engine has not, so that another one must run the program."""

    what: str


class Sandbox(Protocol):
    """Runs one program: ``code``, with ``files`` by name (``data/table.csv``).

    It raises for nothing that a program or a file's name may hold; that is told by ``Ran.error``.
    """

    async def run(self, code: str, files: Mapping[str, bytes]) -> Ran: ...


class _Capable(Sandbox, Protocol):
    """A sandbox that may turn out not to work on this machine."""

    async def missing(self) -> str | None: ...


class _Partial(Protocol):
    """An engine that knows what it cannot run."""

    async def attempt(self, code: str, files: Mapping[str, bytes]) -> Ran | Lack: ...


@dataclass(frozen=True)
class FirstThatCan:
    """Runs a program by ``partial``, and by ``whole`` if ``partial`` lacks something that the program needs."""

    partial: _Partial
    whole: _Capable

    async def run(self, code: str, files: Mapping[str, bytes]) -> Ran:
        tried = await self.partial.attempt(code, files)
        if isinstance(tried, Ran):
            return tried
        reason = await self.whole.missing()
        if reason is None:
            return await self.whole.run(code, files)
        return Ran("", f"{tried.what}; the full Python that could run it is not available: {reason}", {}, "monty")


def default_sandbox(limits: SandboxLimits = SandboxLimits()) -> Sandbox:
    """Return the sandbox of this machine: Monty, then CPython under bubblewrap where that works."""
    # both import this file for its types
    from nodes.sandbox.bubblewrap import BubblewrapSandbox
    from nodes.sandbox.monty import MontySandbox

    return FirstThatCan(MontySandbox(limits), BubblewrapSandbox(limits))


def is_inside(name: str) -> bool:
    """Whether ``name`` is a plain relative path: one that stays in the folder that it is joined to."""
    return (
        0 < len(name) < 1000
        and name == str(PurePosixPath(name))
        and not name.startswith("/")
        and name != "."
        and ".." not in PurePosixPath(name).parts
        and "\\" not in name
        and name.isprintable()
        and all(len(part.encode()) < 256 for part in name.split("/"))
    )


def refusal(files: Mapping[str, bytes]) -> str | None:
    """Return why ``files`` cannot be laid out in a folder; ``None`` where they can."""
    for name in files:
        if not is_inside(name):
            return f"the file name {name[:100]!r} is refused: it must be a relative path inside the working folder"
        if any(str(parent) in files for parent in PurePosixPath(name).parents):
            return f"the file {name!r} lies below another file"
    return None


class Output:
    """What a program prints, kept up to ``limit`` characters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[str] = []
        self._size = 0
        self._cut = False

    def add(self, text: str) -> None:
        """Keep what there is room for."""
        room = self._limit - self._size
        self._cut |= len(text) > room
        if room > 0 and text:
            self._kept.append(text[:room])
            self._size += len(text[:room])

    @property
    def room(self) -> int:
        """Characters that may still be kept."""
        return self._limit - self._size

    def text(self) -> str:
        """Return what is kept, and a last line that says so if something is not."""
        kept = "".join(self._kept)
        return f"{kept}\n[output cut after {self._limit:,} characters]" if self._cut else kept


def too_slow(limits: SandboxLimits) -> str:
    """Return the error of a program that ran out of time."""
    return f"time limit: the program did not end within {limits.seconds:g} s; make it faster or do less"


def too_large(limits: SandboxLimits) -> str:
    """Return the error of a program that ran out of memory."""
    return f"memory limit: the program needed more than {limits.memory_mb} MB; keep less in memory at once"
