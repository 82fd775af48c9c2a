"""Programs run by CPython under bubblewrap: namespaces of their own, no network, no file of the host.

The program sees the interpreter's libraries, read-only, and two folders in memory. Its code and files go in, and its
output and files come out, through pipes: no folder of the host is ever mounted writable, and no path that the program
made is ever opened by this process.
"""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from pathlib import Path

from nodes.sandbox.inside import pack, unpack
from nodes.sandbox.run import (
    MOST_FILES,
    WORK,
    Output,
    Ran,
    SandboxLimits,
    is_inside,
    refusal,
    too_large,
    too_slow,
)
from nodes.sandbox.seccomp import seccomp_filter

_START = 1.0
"""Seconds that bubblewrap and CPython may take to start; the program has an alarm of its own."""

_PROBE = "import os\ntry:\n    os.fork()\nexcept PermissionError:\n    print('ready')"
"""Works only where the namespaces and the filter of system calls do."""


class BubblewrapSandbox:
    """Runs programs by CPython under bubblewrap; needs ``bwrap`` on PATH, and Linux."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._limits = limits
        self._probed: tuple[str | None] | None = None

    async def missing(self) -> str | None:
        """Return why programs cannot be run here; ``None`` where they can. It is found out once."""
        if self._probed is None:
            self._probed = (await self._probe(),)
        return self._probed[0]

    async def run(self, code: str, files: Mapping[str, bytes]) -> Ran:
        """Run ``code``; ``error`` says so where bubblewrap does not work."""
        reason = refusal(files) or await self.missing()
        return Ran("", reason, {}, "bubblewrap") if reason else await self._run(code, files)

    async def _probe(self) -> str | None:
        if sys.platform != "linux" or not shutil.which("bwrap"):
            return "bubblewrap (the command bwrap, for Linux) is not installed; installing it would help"
        if seccomp_filter() is None:
            return f"there is no filter of system calls for {os.uname().machine}"
        ran = await self._run(_PROBE, {})
        if ran.output == "ready\n" and ran.error is None:
            return None
        return f"bubblewrap does not work on this machine: {ran.error or ran.output or 'no answer'}"

    async def _run(self, code: str, files: Mapping[str, bytes]) -> Ran:
        sent = pack([("", code.encode(errors="replace")), *files.items()])
        room = (self._limits.file_mb << 20) + sum(len(data) + 4096 for data in files.values())
        process = await self._start(room)
        output, report = Output(self._limits.output_chars), bytearray()
        work = asyncio.gather(_send(process, sent), _print(process, output), _keep(process, report, room + (1 << 20)))
        try:
            done, _ = await asyncio.wait({work}, timeout=self._limits.seconds + _START)
        finally:
            if process.returncode is None and not work.done():
                process.kill()  # its namespace, and all that runs in it, ends with it
            await work
            await process.wait()
        return self._ran(output.text(), bytes(report), process.returncode, slow=not done)

    async def _start(self, room: int) -> Process:
        read = await asyncio.to_thread(_filter)
        try:
            command = await asyncio.to_thread(lambda: [*self._command(read, room)])
            return await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=(read,), env={}
            )
        finally:
            os.close(read)

    def _command(self, seccomp: int, room: int) -> Iterator[str]:
        limits, size = self._limits, str(room)
        python = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
        yield from (shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent")
        yield from ("--new-session", "--clearenv", "--uid", "65534", "--gid", "65534", "--hostname", "sandbox")
        yield from ("--size", size, "--tmpfs", "/tmp", "--size", size, "--tmpfs", WORK, "--chdir", WORK)  # noqa: S108
        yield from _libraries(python)
        yield from ("--ro-bind", str(Path(__file__).with_name("inside.py")), "/inside.py", "--remount-ro", "/")
        yield from ("--seccomp", str(seccomp), python, "-I", "-S", "-X", "utf8", "/inside.py")
        yield from (str(limits.seconds), str(limits.memory_mb), str(limits.file_mb), WORK)

    def _ran(self, output: str, report: bytes, status: int | None, *, slow: bool) -> Ran:
        """Return what the report says: bytes that the program may have forged."""
        try:
            (_, said), *records = unpack(report, MOST_FILES)
        except ValueError:
            return Ran(output, self._unreported(status, report, slow=slow), {}, "bubblewrap")
        error = said.decode(errors="replace")[:4000] or None
        return Ran(
            output,
            error and self._explained(error),
            {name: data for name, data in records if is_inside(name)},
            "bubblewrap",
        )

    def _explained(self, error: str) -> str:
        if error.startswith("MemoryError"):
            return f"{too_large(self._limits)}; {error}"
        if "[Errno 27]" in error or "[Errno 28]" in error:  # one file, or all together
            return f"{error}; the program may write {self._limits.file_mb} MB in all"
        return error

    def _unreported(self, status: int | None, report: bytes, *, slow: bool) -> str:
        if slow or status in (128 + 9, 128 + 14):  # killed by the limit of CPU time, or by its alarm
            return too_slow(self._limits)
        said = report[-300:].decode(errors="replace").strip()
        return f"the program ended its interpreter before its end (exit status {status}){said and f': {said}'}"


def _filter() -> int:
    """Return a descriptor that the filter of system calls is read from."""
    read, write = os.pipe()
    os.write(write, seccomp_filter() or b"")  # far smaller than a pipe's buffer
    os.close(write)
    return read


def _libraries(python: str) -> Iterator[str]:
    """Yield the read-only mounts that CPython needs; packages that are installed beside it are hidden."""
    prefix = Path(sys.base_prefix)
    for name in ("/lib", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), name)  # noqa: PTH115 - as it is written, not resolved
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    shared = [Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/share/zoneinfo"), Path("/etc/ld.so.cache")]
    for path in dict.fromkeys([*shared, prefix / "lib", Path(python)]):
        yield from ("--ro-bind-try", str(path), str(path))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for folder in (version, "python3"):
        for path in (prefix / "lib" / folder / name for name in ("site-packages", "dist-packages")):
            if path.is_dir():
                yield from ("--tmpfs", str(path), "--remount-ro", str(path))
    for name in ("/dev/null", "/dev/zero", "/dev/urandom"):
        yield from ("--dev-bind", name, name)


async def _send(process: Process, data: bytes) -> None:
    assert process.stdin  # noqa: S101 - a pipe was asked for
    try:
        process.stdin.write(data)
        await process.stdin.drain()
        process.stdin.close()
        await process.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended before it read all; its report says why


async def _print(process: Process, output: Output) -> None:
    """Read what the program prints to its end; a flood is read and dropped."""
    assert process.stdout  # noqa: S101 - a pipe was asked for
    decoder = getincrementaldecoder("utf-8")("replace")
    while data := await process.stdout.read(1 << 16):
        output.add(decoder.decode(data))
    output.add(decoder.decode(b"", final=True))


async def _keep(process: Process, report: bytearray, most: int) -> None:
    """Read the report; what is more than ``most`` bytes is dropped, which leaves it unreadable."""
    assert process.stderr  # noqa: S101 - a pipe was asked for
    while data := await process.stderr.read(1 << 16):
        report += data[: max(0, most - len(report))]
