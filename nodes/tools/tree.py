"""The files below a folder, as a run may see them: listed, searched and read, and nothing outside of it.

In a git work tree these are the tracked files and those that are not ignored; elsewhere ``.gitignore`` files hold, and
what is hidden is left out. All functions block: call them off the event loop.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from frames.errors import UsageError
from frames.findings import shown_path
from nodes.tools.ignored import walked
from nodes.tools.tracked import tracked
from nodes.tools.unreadable import UnreadableError

MOST_FILES = 10_000
"""Files that are listed at most."""

MAX_BYTES = 1_000_000
"""Size up to which a file is read: far beyond any source that people write."""

MOST_SEARCHED = 50_000_000
"""Bytes that one search reads at most."""

_SNIFFED = 8_192
_BY_FOLDER = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


class Hit(NamedTuple):
    """A line that a search found, by number from 1."""

    path: str
    line: int
    text: str


class Listing(NamedTuple):
    """The files of a tree by their paths, in order, and what was left out: path and reason."""

    files: list[str]
    left_out: dict[str, str]


def root_of(given: str) -> Path:
    """Return the absolute path of a tree's root.

    Raises:
        UsageError: there is nothing of that name, or it is no folder.
    """
    folder = Path(given).expanduser()
    if not folder.exists():
        raise UsageError(f"there is no folder {given} to look at: correct the path after --root")
    if not folder.is_dir():
        raise UsageError(f"{given} is not a folder: name the folder that holds it after --root")
    return folder.resolve()


class Tree:
    """The tree below ``root``, which is absolute and without links. Files are looked at anew at every use."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listing: Listing | None = None

    def listing(self) -> Listing:
        """Return the files, at most ``MOST_FILES``, and why others are left out; made once."""
        if self._listing is None:
            self._listing = self._listed()
        return self._listing

    def why_not(self, path: str) -> str | None:
        """Return why a path cannot be read as text; ``None`` where it can."""
        try:
            with os.fdopen(self._open(path), "rb") as file:
                return "binary" if b"\0" in file.read(_SNIFFED) else None
        except UnreadableError as error:
            return str(error)

    def read(self, path: str) -> str:
        """Return a file's text; bytes that are no UTF-8 are replaced.

        Raises:
            UnreadableError: it is outside the tree, not there, too large, binary or no regular file; says which.
        """
        with os.fdopen(self._open(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:  # it has grown since it was opened
            raise UnreadableError(_too_large(len(data)))
        if b"\0" in data[:_SNIFFED]:
            raise UnreadableError("binary")
        return data.decode("utf-8-sig", "replace")

    def search(self, text: str, folder: str = "", most: int = 50) -> tuple[list[Hit], str | None]:
        """Return the lines that hold ``text``, in any case, and why the search stopped short, where it did."""
        wanted, hits, searched = text.casefold(), list[Hit](), 0
        for path in self.below(folder):
            try:
                content = self.read(path)
            except UnreadableError:
                continue
            searched += len(content)
            for number, line in enumerate(content.splitlines(), 1):
                if wanted in line.casefold():
                    if len(hits) == most:
                        return hits, f"more than {most} lines: search for something rarer, or in a folder"
                    hits.append(Hit(path, number, line))
            if searched > MOST_SEARCHED:
                return hits, f"{MOST_SEARCHED // 1_000_000} MB searched: the rest was not; name a folder"
        return hits, None

    def below(self, folder: str) -> list[str]:
        """Return the listed files below a folder; all of them below ""."""
        prefix = folder.strip().strip("/").removeprefix("./")
        prefix = "" if prefix in ("", ".") else f"{prefix}/"
        return [path for path in self.listing().files if path.startswith(prefix)]

    def _listed(self) -> Listing:
        found, left_out = list[str](), dict[str, str]()
        for path, reason in self._candidates():
            why = reason or self._why_not_list(path)
            if why:
                left_out[path] = why
            elif len(found) == MOST_FILES:
                left_out["…"] = f"over {MOST_FILES:,} files: those behind {shown_path(found[-1])} are not looked at"
                break
            else:
                found.append(path)
        return Listing(sorted(found), left_out)

    def _candidates(self) -> Iterator[tuple[str, str | None]]:
        """Return paths, and why they are left out where that is known; git's, else those of a walk."""
        paths = tracked(self.root)
        return walked(self.root) if paths is None else ((path, None) for path in paths)

    def _why_not_list(self, path: str) -> str | None:
        if not _is_text(path):
            return "its name is no UTF-8"
        where = self.root / path
        try:
            status = where.lstat()
            if stat.S_ISLNK(status.st_mode):
                inside = where.resolve().is_relative_to(self.root)
                return "a link to another file" if inside else "a link that leaves the root"
        except OSError as error:
            return _reason(error)
        return _why_not_read(status)

    def _open(self, path: str) -> int:
        """Return a descriptor of a regular file within the tree, each folder on the way opened without links."""
        parts = _parts(path)
        try:
            real = self.root.joinpath(*parts).resolve(strict=True)
            if not real.is_relative_to(self.root):
                raise UnreadableError("outside the root")
            descriptor = _opened(self.root, real.relative_to(self.root).parts)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise UnreadableError(_reason(error) if isinstance(error, OSError) else "links in a circle") from error
        if why := _why_not_read(os.fstat(descriptor)):
            os.close(descriptor)
            raise UnreadableError(why)
        return descriptor


def _opened(root: Path, parts: tuple[str, ...]) -> int:
    """Open a file below ``root``; where the system can, no part of the way may have become a link meanwhile."""
    if not parts:
        raise UnreadableError("a folder, no file")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for ever
    if not _BY_FOLDER:
        return os.open(root.joinpath(*parts), flags | getattr(os, "O_BINARY", 0))
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _parts(path: str) -> tuple[str, ...]:
    """Return the parts of a relative path.

    Raises:
        UnreadableError: it is absolute, empty, or leads upwards.
    """
    if "\0" in path or not _is_text(path) or not path.strip():
        raise UnreadableError("no path")
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or Path(path).is_absolute():
        raise UnreadableError("outside the root")
    return parts


def _why_not_read(status: os.stat_result) -> str | None:
    if stat.S_ISDIR(status.st_mode):
        return "a folder, no file"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return _too_large(status.st_size) if status.st_size > MAX_BYTES else None


def _too_large(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB, over {MAX_BYTES // 1_000_000} MB"


def _is_text(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
