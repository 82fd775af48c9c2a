"""Programs run by Monty: a Python interpreter in Rust, which has no system calls to give away.

Each program has a worker process of its own, with no file of the host. The files it is given are a virtual tree in
this process's memory, so that ``open``, ``pathlib`` and ``os`` work on them and on nothing else.
"""

import asyncio
import builtins
import os
import re
import signal
import sys
import threading
import types
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from pydantic_monty import (
    MemoryFile,
    Monty,
    MontyCrashedError,
    MontyError,
    MontyFileHandle,
    MontyRuntimeError,
    MontySyntaxError,
    OSAccess,
)

from nodes.sandbox.inside import PROGRAM, with_line
from nodes.sandbox.run import MOST_FILES, WORK, Lack, Output, Ran, SandboxLimits, refusal, too_large, too_slow
from nodes.sandbox.shown import shown

_GRACE = 0.5
"""Seconds after its time that a program which does not look at its own clock is killed."""

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_NO_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_NO_MEMBER = re.compile(r"AttributeError: module '(\w+)' has no attribute '(\w+)'")
_NO_IMPORT = re.compile(r"ImportError: cannot import name '(\w+)' from '(\w+)'")
_NO_ATTRIBUTE = re.compile(r"AttributeError: (?:type object )?'([\w.]+)'(?: object)? has no attribute '(\w+)'")
_UNSUPPORTED = re.compile(r"[Mm]onty|not yet support|not yet implemented|mode is not supported|in this environment")


class MontySandbox:
    """Runs programs by Monty alone."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits

    async def run(self, code: str, files: Mapping[str, bytes]) -> Ran:
        """Run ``code``; what Monty lacks is an error."""
        tried = await self.attempt(code, files)
        return Ran("", tried.what, {}, "monty") if isinstance(tried, Lack) else tried

    async def attempt(self, code: str, files: Mapping[str, bytes]) -> Ran | Lack:
        """Run ``code``; return what Monty lacks where that, and no fault of the program, ended it."""
        if reason := refusal(files):
            return Ran("", reason, {}, "monty")
        program = _Program(code, files, self._limits)
        try:
            return await asyncio.to_thread(program.run)
        finally:
            program.stop()


class _Program:
    """One program in its worker, run in a thread.

    The synchronous API is used: workers of the asynchronous one were seen to abort the interpreter as it exits.
    """

    def __init__(self, code: str, files: Mapping[str, bytes], limits: SandboxLimits) -> None:
        self._code, self._given, self._limits = code, files, limits
        self._output = Output(limits.output_chars)
        self._files = _Files(files, limits.file_mb)
        self._worker: int | None = None
        self._stopped = False
        self._ended = False

    def stop(self) -> None:
        """End the worker, if it runs; may be called from another thread, at any time."""
        self._stopped = True
        if self._worker and not self._ended:
            with suppress(ProcessLookupError):
                os.kill(self._worker, signal.SIGTERM)

    def run(self) -> Ran | Lack:
        """Run the program to its end."""
        # the worker's own clock stands while the host serves a call, so that there is one here too
        clock = threading.Timer(self._limits.seconds + 2 * _GRACE, self.stop)
        clock.daemon = True
        clock.start()
        try:
            self._feed()
        except MontyError as error:
            return self._failed(error)
        finally:
            clock.cancel()
        return self._ran(None if self._ended else too_slow(self._limits))

    def _feed(self) -> None:
        seconds = self._limits.seconds
        pool = Monty(max_processes=1, request_timeout=seconds + _GRACE, feed_duration_limit_grace=_GRACE)
        limits: Any = {
            "max_feed_duration_secs": seconds,
            "max_total_sleep_secs": seconds,
            "max_memory": self._limits.memory_mb << 20,
            "max_suspensions": 1_000_000,  # time ends a program that calls the host without end
        }
        with pool, pool.checkout(script_name=PROGRAM, limits=limits) as session:
            self._worker = session.worker_pid
            if self._stopped:
                return
            try:
                value = session.feed_run(self._code, print_callback=self._print, os=self._files, cwd=WORK)
            finally:
                self._ended = True
            if value is not None:
                self._output.add(shown(value, self._output.room) + "\n")

    def _print(self, _stream: str, text: str) -> None:
        self._output.add(text)

    def _ran(self, error: str | None) -> Ran:
        return Ran(self._output.text(), error, self._files.changed(self._given), "monty")

    def _failed(self, error: MontyError) -> Ran | Lack:
        if isinstance(error, MontyCrashedError):
            slow = self._stopped or "timeout" in str(error) or "time limit" in str(error)
            return self._ran(too_slow(self._limits) if slow else f"the program crashed its interpreter: {error}"[:500])
        if not isinstance(error, MontyRuntimeError | MontySyntaxError):
            return self._ran(f"{type(error).__name__}: {error}"[:500])
        message = error.display("type-msg")
        if message.startswith(("TimeoutError: feed time limit", "TimeoutError: sleep limit")):
            return self._ran(too_slow(self._limits))
        if message.startswith(("MemoryError: memory limit", "MemoryError: the worker exceeded")):
            return self._ran(too_large(self._limits))
        if message == "SystemExit":
            return self._ran(None)
        frames = error.traceback()
        said = with_line(message, frames[-1].line if frames else None, self._code)
        if isinstance(error, MontyRuntimeError) and _is_lack(message):
            return Lack(f"the small Python interpreter lacks something that this program needs: {said}")
        return self._ran(said)


class _Files(OSAccess):
    """A program's files, in memory. All that it writes is counted, also what it overwrites."""

    def __init__(self, files: Mapping[str, bytes], file_mb: int) -> None:
        super().__init__([MemoryFile(f"{WORK}/{name}", data) for name, data in files.items()])
        self.path_mkdir(PurePosixPath(WORK), parents=True, exist_ok=True)
        self._file_mb, self._room = file_mb, file_mb << 20

    def path_write_text(self, path: PurePosixPath | MontyFileHandle, data: str) -> int:
        self._charge(len(data.encode()))
        return super().path_write_text(path, data)

    def path_write_bytes(self, path: PurePosixPath | MontyFileHandle, data: bytes) -> int:
        self._charge(len(data))
        return super().path_write_bytes(path, data)

    def path_append_text(self, path: PurePosixPath | MontyFileHandle, data: str) -> int:
        self._charge(len(data.encode()))
        return super().path_append_text(path, data)

    def path_append_bytes(self, path: PurePosixPath | MontyFileHandle, data: bytes) -> int:
        self._charge(len(data))
        return super().path_append_bytes(path, data)

    def changed(self, given: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files of the working folder that are not as they were given."""
        found, folders = dict[str, bytes](), [PurePosixPath(WORK)] if self.path_is_dir(PurePosixPath(WORK)) else []
        while folders and len(found) < MOST_FILES:
            for path in self.path_iterdir(folders.pop()):
                if self.path_is_dir(path):
                    folders.append(path)
                    continue
                name, data = str(path.relative_to(WORK)), self.path_read_bytes(path)
                if given.get(name) != data:
                    found[name] = data
        return found

    def _charge(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise OSError(f"file limit: the program may write {self._file_mb} MB in all")


def _is_lack(message: str) -> bool:
    """Whether CPython has what Monty, by its ``message``, has not.

    A program can raise such a message on purpose; then it runs once more, in the other sandbox.
    """
    if found := _NO_MODULE.match(message):
        return found[1] in sys.stdlib_module_names
    if found := _NO_NAME.match(message):
        return hasattr(builtins, found[1]) or found[1] == "__builtins__"
    if found := _NO_MEMBER.match(message):
        return _has(found[1], found[2])
    if found := _NO_IMPORT.match(message):
        return _has(found[2], found[1])
    if found := _NO_ATTRIBUTE.match(message):
        kind = {"function": types.FunctionType}.get(found[1], getattr(builtins, found[1], None))
        return "." in found[1] or (kind is not None and hasattr(kind, found[2]))
    return bool(_UNSUPPORTED.search(message))


def _has(module: str, name: str) -> bool:
    """Whether a module of the standard library has ``name``; nothing is imported for a program's sake."""
    if module not in sys.stdlib_module_names:
        return False
    return module not in sys.modules or hasattr(sys.modules[module], name)
