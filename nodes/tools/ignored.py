"""A folder without git: its files in order, what ``.gitignore`` files exclude and what is hidden left out."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec

_NEVER = {"__pycache__", "node_modules"}
_LONGEST = 1_000_000
_DEEPEST = 100

Rules = tuple[str, GitIgnoreSpec]
"""The rules of one ``.gitignore``, and the folder that they hold below, relative to the root and ending in a slash."""


def walked(root: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the paths below ``root``, relative to it, and why they are left out where they are; links not followed.

    What is ignored or hidden is not yielded at all.
    """
    yield from _below(root, "", ())


def _below(root: Path, prefix: str, rules: Sequence[Rules]) -> Iterator[tuple[str, str | None]]:
    try:
        with os.scandir(root / prefix) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield prefix, (error.strerror or str(error)).lower()
        return
    own = _rules(root / prefix / ".gitignore")
    rules = [*rules, (prefix, own)] if own else rules
    for entry in entries:
        path = f"{prefix}{entry.name}"
        folder = entry.is_dir(follow_symlinks=False)
        if entry.name.startswith(".") or entry.name in _NEVER or _ignored(path, rules, folder=folder):
            continue
        if folder and path.count("/") == _DEEPEST:
            yield path, f"below {_DEEPEST} folders"
        elif folder:
            yield from _below(root, f"{path}/", rules)
        elif entry.is_symlink() and entry.is_dir():
            yield path, "a link to a folder, which is not followed"
        else:
            yield path, None


def _rules(file: Path) -> GitIgnoreSpec | None:
    if file.is_symlink() or not file.is_file() or file.stat().st_size > _LONGEST:
        return None
    return GitIgnoreSpec.from_lines(file.read_text(encoding="utf-8", errors="replace").splitlines())


def _ignored(path: str, rules: Sequence[Rules], *, folder: bool) -> bool:
    """Whether the rules exclude a path: the last that says anything about it decides."""
    verdict = False
    for below, spec in rules:
        said = spec.check_file(path.removeprefix(below) + "/" * folder).include
        verdict = verdict if said is None else said
    return verdict
