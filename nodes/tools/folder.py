"""Which files of a folder are documents to read, and why the others are not."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from frames.errors import UsageError

MAX_BYTES = 20_000_000

Skip = Callable[[Path, str], None]
"""Told the path and the reason of what is left out."""


def folder_of(given: Path) -> Path:
    """Return the absolute path of a folder of documents.

    Raises:
        UsageError: there is nothing of that name, or it is no folder.
    """
    folder = given.expanduser()
    if not folder.exists():
        raise UsageError(f"there is no folder {given} to search: correct the path after --docs")
    if not folder.is_dir():
        raise UsageError(f"{given} is not a folder: name the folder that holds it after --docs")
    return folder.resolve()


def files_in(folder: Path, skip: Skip) -> Iterator[Path]:
    """Yield the regular files below ``folder`` in the order of their names, links that lead out of it left out."""

    def unreadable(error: OSError) -> None:
        skip(Path(error.filename), _reason(error))

    for parent, folders, names in os.walk(folder, onerror=unreadable):
        entered = {name: _why_not_enter(Path(parent, name)) for name in sorted(folders)}
        folders[:] = [name for name, reason in entered.items() if not reason]
        read = {name: _why_not_read(Path(parent, name), folder) for name in sorted(names)}
        yield from (Path(parent, name) for name, reason in read.items() if not reason)
        for name, reason in (entered | read).items():
            if reason:
                skip(Path(parent, name), reason)


def _why_not_enter(path: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    return "a link to a folder, which is not followed" if path.is_symlink() else None


def _why_not_read(path: Path, folder: Path) -> str | None:
    if path.name.startswith("."):
        return "hidden"
    try:
        status = path.stat()
    except OSError as error:
        return _reason(error)
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"  # reading a pipe would wait for ever
    if path.is_symlink() and not path.resolve().is_relative_to(folder):
        return "a link that leaves the folder"
    return f"over {MAX_BYTES // 1_000_000} MB" if status.st_size > MAX_BYTES else None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
