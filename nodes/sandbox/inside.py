"""The program that runs a program: what CPython executes within bubblewrap.

Run as ``python inside.py SECONDS MEMORY_MB FILE_MB FOLDER``. Records are read from standard input: the code, then the
files. What the program prints goes to standard output; records of its error and its files go to standard error. It
imports nothing of Cactus, and it is not trusted: the program shares its process and may send any bytes.
"""

import ast
import builtins
import io
import math
import os
import signal
import stat
import sys
import types
from collections.abc import Iterator

PROGRAM = "program.py"
"""The program's name in tracebacks."""

MOST_ERROR = 2000
"""Characters of an error: it is read by a model, and a message may be as long as memory."""

_RESERVE = 64 << 20
"""Bytes of memory for the report of a program that has used up its own."""


def main() -> None:
    """Lay out the files, run the program within its limits, report."""
    import resource  # of POSIX alone; the functions below are used on every system

    report = os.dup(2)
    os.dup2(1, 2)  # what the program writes to standard error is output too
    seconds, memory_mb, file_mb = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    [(_, code), *files] = unpack(sys.stdin.buffer.read())
    given = sum(len(data) for _, data in files)
    memory = (memory_mb << 20) + given  # this file holds them too
    os.chdir(sys.argv[4])
    for name, data in files:
        _write(name, data)
    for limited, most in {
        resource.RLIMIT_CPU: (math.ceil(seconds), math.ceil(seconds)),
        resource.RLIMIT_AS: (memory, memory + _RESERVE),
        resource.RLIMIT_FSIZE: (file_mb << 20, file_mb << 20),
        resource.RLIMIT_NOFILE: (64, 64),
        resource.RLIMIT_NPROC: (0, 0),  # not kept for root: the filter of system calls is what stops a fork
        resource.RLIMIT_CORE: (0, 0),
    }.items():
        resource.setrlimit(limited, most)
    sys.argv = [PROGRAM]
    for name in ("exit", "quit"):  # of the site module, which is left out
        setattr(builtins, name, sys.exit)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # kills; a program that switches it off is killed from outside
    error = _run(code.decode())
    signal.setitimer(signal.ITIMER_REAL, 0)
    resource.setrlimit(resource.RLIMIT_AS, (memory + _RESERVE, memory + _RESERVE))
    changed = _changed(dict(files), (file_mb << 20) + given)
    try:
        sent = pack([("", (error or "").encode(errors="replace")), *changed])
    except (OSError, MemoryError, RecursionError, ValueError) as fault:
        sent = pack([("", (error or f"its files could not be read: {_said(fault)}").encode(errors="replace"))])
    with open(report, "wb") as stream:  # noqa: PTH123 - a descriptor has no path
        stream.write(sent)
    os._exit(0)  # at once: what the program left to run at exit is not waited for


def pack(records: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> bytes:
    """Return pairs of a name and data as bytes: each part after its length, in 4 bytes."""
    packed = io.BytesIO()
    for name, data in records:
        for part in (name.encode(errors="replace"), data):
            packed.write(len(part).to_bytes(4, "big"))
            packed.write(part)
    return packed.getvalue()


def unpack(packed: bytes, most: int | None = None) -> list[tuple[str, bytes]]:
    """Return what ``pack`` was given, at most ``most`` records. Raises ``ValueError`` for other bytes."""
    stream, records = io.BytesIO(packed), list[tuple[str, bytes]]()
    while stream.tell() < len(packed) and (most is None or len(records) < most):
        records.append((_part(stream).decode(), _part(stream)))
    return records


def _part(stream: io.BytesIO) -> bytes:
    head = stream.read(4)
    part = stream.read(int.from_bytes(head, "big"))
    if len(head) < 4 or len(part) < int.from_bytes(head, "big"):
        raise ValueError("a record is cut off")
    return part


def with_line(message: str, line: int | None, code: str) -> str:
    """Return ``message`` with the line of the program that it is about."""
    message = message[:MOST_ERROR] + (" [cut]" if len(message) > MOST_ERROR else "")
    lines = code.splitlines()
    if line is None or not 0 < line <= len(lines):
        return message
    return f"{message} (line {line}: {lines[line - 1].strip()[:200]})"


def _write(name: str, data: bytes) -> None:
    if folder := os.path.dirname(name):  # noqa: PTH120 - pathlib costs a quarter of the start
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    with open(name, "wb") as file:  # noqa: PTH123
        file.write(data)


def _run(code: str) -> str | None:
    """Run the program as a notebook does; return why it failed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # what was printed before a kill is kept, and half a surrogate pair is no error
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module  # where dataclasses and pickle look for the program's classes
    try:
        value = _value(code, module.__dict__)
        if value is not None:
            print(repr(value))
        sys.stdout.flush()
    except SystemExit as end:
        return None if end.code in (None, 0) else with_line(f"SystemExit: {end.code}", _line(end), code)
    except SyntaxError as error:
        where = error.lineno if error.filename == PROGRAM else _line(error)
        return with_line(f"{type(error).__name__}: {error.msg}", where, code)
    except BaseException as error:  # noqa: BLE001 - whatever the program raises is its result
        return with_line(_said(error), _line(error), code)
    return None


def _value(code: str, names: dict[str, object]) -> object:
    """Execute ``code``; return the value of its last statement if that is an expression."""
    tree = ast.parse(code, PROGRAM)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    exec(compile(tree, PROGRAM, "exec"), names)  # noqa: S102 - what this file is for
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), PROGRAM, "eval"), names)  # noqa: S307
    return None


def _said(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line(error: BaseException) -> int | None:
    """Return the program's line that was executed last."""
    line, step = None, error.__traceback__
    while step:
        if step.tb_frame.f_code.co_filename == PROGRAM:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _changed(given: dict[str, bytes], most: int) -> Iterator[tuple[str, bytes]]:
    """Yield the regular files that are not as they were given; a link's target is not among them."""
    room = most
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.normpath(os.path.join(folder, name))  # noqa: PTH118
            if not stat.S_ISREG(os.lstat(path).st_mode):
                continue
            with open(path, "rb") as file:  # noqa: PTH123
                data = file.read()
            if given.get(path) == data:
                continue
            room -= len(data)
            if room < 0:
                raise ValueError("its files are larger than the limit")
            yield path, data


if __name__ == "__main__":
    main()
