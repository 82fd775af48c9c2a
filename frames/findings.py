"""Findings: what an investigation found before a task is split, and the plan that follows from it.

Findings are immutable values; as plain JSON (``Findings.plain``) they lie in the root's frame and in the journal.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from frames.errors import CactusError
from frames.frame import Subtask
from frames.text import clean, one_line

INTEGRATION = "cross_file_integration"
"""The id of the subtask that depends on all passes."""

MOST_FOUND = 1_000
"""Files that findings hold at most: those beyond are told in ``left_out``."""

PER_FILE, CROSS_FILE = {"static_analysis": 1.0}, {"integration": 1.0}
"""The capabilities that a pass over a file, and the integration, require."""

Source = Literal["model", "text", "function"]
"""How findings came about: a model looked, the rule over the task's text did, or a user's function."""

T = TypeVar("T")

_LINES = re.compile(r"\d+(?:-\d+)?")
_LONGEST = 300


class FindingsError(CactusError):
    """What an investigator gave is no findings; the message names the place."""


@dataclass(frozen=True)
class FoundFile:
    """A file that the task touches.

    ``path`` is relative to the root, with slashes; ``why`` it matters; ``lines`` where in it (``12-40``), where known.
    """

    path: str
    why: str = ""
    lines: str | None = None


@dataclass(frozen=True)
class LeftOut:
    """What was not taken, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Findings:
    """What an investigation found: files, observations, and what was left out."""

    files: tuple[FoundFile, ...] = ()
    observations: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    source: Source = "function"

    def plain(self) -> dict[str, Any]:
        """Return the findings as a JSON value."""
        return {
            "files": [
                {"path": file.path, "why": file.why, **({"lines": file.lines} if file.lines else {})}
                for file in self.files
            ],
            "observations": list(self.observations),
            "left_out": [{"what": each.what, "why": each.why} for each in self.left_out],
            "source": self.source,
        }


def findings_of(given: Any, source: Source = "function") -> Findings:
    """Return findings that are given as a mapping (``files``, ``observations``, ``left_out``), or as they are.

    A file is a path, or a mapping of ``path``, ``why`` and ``lines``; each path counts once. Files beyond
    ``MOST_FOUND`` are left out with a word, and so is an entry of a model's (``source``) that cannot be read.

    Raises:
        FindingsError: it is something else; the message names the entry.
    """
    if isinstance(given, Findings):
        return _bounded(given)
    if not isinstance(given, Mapping):
        raise FindingsError(f"the investigator returned {type(given).__name__}, not findings: files and observations")
    fields = cast("Mapping[str, Any]", given)
    unread: list[LeftOut] | None = [] if source == "model" else None
    files = _entries(fields, "files", _file, unread)
    told = _entries(fields, "observations", lambda entry, index: _text(entry, f"observation {index + 1}"), unread)
    left_out = _entries(fields, "left_out", _left_out, unread)
    return _bounded(
        Findings(
            files=tuple({file.path: file for file in reversed(files)}[path] for path in _paths(files)),
            observations=tuple(text for text in told if text),
            left_out=(*left_out, *(unread or ())),
            source=fields.get("source", source),
        )
    )


def _paths(files: Sequence[FoundFile]) -> list[str]:
    return list(dict.fromkeys(file.path for file in files))


def _bounded(findings: Findings) -> Findings:
    beyond = len(findings.files) - MOST_FOUND
    if beyond <= 0:
        return findings
    said = LeftOut(f"{beyond} more files", f"findings hold {MOST_FOUND} files at most: name a smaller part of the tree")
    return Findings(
        findings.files[:MOST_FOUND], findings.observations, (*findings.left_out, said), source=findings.source
    )


def _listed(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    given = fields.get(name)
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise FindingsError(f"{name} of the findings is {type(given).__name__}, not a list")
    return cast("Sequence[Any]", given)


def _entries(
    fields: Mapping[str, Any], name: str, read: Callable[[Any, int], T], unread: list[LeftOut] | None
) -> list[T]:
    """Return the entries of a list as ``read`` gives them; one that cannot be read is put into ``unread``, if given."""
    entries: list[T] = []
    for index, entry in enumerate(_listed(fields, name)):
        try:
            entries.append(read(entry, index))
        except FindingsError as fault:
            if unread is None:
                raise
            unread.append(LeftOut(f"entry {index + 1} of {name}", str(fault)))
    return entries


def _file(entry: Any, index: int) -> FoundFile:
    fields = cast("Mapping[str, Any]", {"path": entry} if isinstance(entry, str) else entry)
    if isinstance(fields, FoundFile):
        return fields
    if not isinstance(fields, Mapping):  # type: ignore[reportUnnecessaryIsInstance]  # users may give anything
        raise FindingsError(f"file {index + 1} of the findings is {type(entry).__name__}, not a path or a mapping")
    path = fields.get("path")
    if not isinstance(path, str) or not path.strip():
        raise FindingsError(f"file {index + 1} of the findings has no path")
    lines = fields.get("lines")
    found = "-".join(map(str, cast("list[Any]", lines))) if isinstance(lines, list) else str(lines or "")
    return FoundFile(clean(path), _text(fields.get("why") or "", path), found if _LINES.fullmatch(found) else None)


def _left_out(entry: Any, index: int) -> LeftOut:
    if isinstance(entry, LeftOut):
        return entry
    fields = cast("Mapping[str, Any]", entry if isinstance(entry, Mapping) else {"what": entry})
    name = f"left_out {index + 1}"
    return LeftOut(_text(fields.get("what"), name), _text(fields.get("why") or "", name))


def _text(given: Any, place: str) -> str:
    if not isinstance(given, str):
        raise FindingsError(f"{place} of the findings is {type(given).__name__}, not a text")
    return one_line(clean(given), _LONGEST)


# From findings to a plan


def plan_from(task: str, findings: Findings, max_files: int) -> list[Subtask]:
    """Return the plan: a pass over each file, side by side, and the integration behind all; none without files.

    With more than ``max_files`` files they are grouped, in order and evenly: each is in exactly one pass.
    """
    groups = grouped(findings.files, max_files)
    if not groups:
        return []
    passes = [_pass(index, group, task) for index, group in enumerate(groups)]
    integration = Subtask(
        id=INTEGRATION,
        task=_integration(task, findings),
        kind=None,
        depends_on=[each["id"] for each in passes],
        tier="cross_file",
        files=[file.path for file in findings.files],
        requires=dict(CROSS_FILE),
    )
    return [*passes, integration]


def grouped(files: Sequence[FoundFile], most: int) -> list[list[FoundFile]]:
    """Return ``files`` in at most ``most`` groups, whose sizes differ by one at most."""
    count = min(len(files), most)
    ends = [len(files) * (place + 1) // count for place in range(count)]
    return [list(files[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def shown_path(path: str) -> str:
    """Return a path on one line: as it is, or quoted as JSON where it has a line break or the like."""
    return path if path.isprintable() and path.strip() == path and '"' not in path else json.dumps(path)


def plain_path(shown: str) -> str:
    """Return the path that ``shown_path`` shows."""
    if not (shown.startswith('"') and shown.endswith('"')):
        return shown
    try:
        path = json.loads(shown)
    except ValueError:
        return shown
    return path if isinstance(path, str) else shown


def _pass(index: int, files: Sequence[FoundFile], task: str) -> Subtask:
    shared = len(files) > 1 and len({file.why for file in files}) == 1 and not any(file.lines for file in files)
    about = "; ".join(shown_path(file.path) if shared else _named(file) for file in files)
    about += f" ({files[0].why})" * bool(shared and files[0].why)
    return Subtask(
        id=f"per_file_{index}",
        task=f"In {about}: do this file's part of the task, and no other's. The task: {task}"
        if len(files) == 1
        else f"In the {len(files)} files {about}: do these files' part of the task, and no other's. The task: {task}",
        kind=None,
        depends_on=[],
        tier="per_file",
        files=[file.path for file in files],
        requires=dict(PER_FILE),
    )


def _named(file: FoundFile) -> str:
    why = [f"lines {file.lines}"] * bool(file.lines) + [file.why] * bool(file.why)
    return f"{shown_path(file.path)} ({', '.join(why)})" if why else shown_path(file.path)


def _all(files: int) -> str:
    return f"all {files} files" if files != 1 else "the one file"


def _integration(task: str, findings: Findings) -> str:
    said = [f"Across {_all(len(findings.files))}, integrate what was found in each. The task: {task}"]
    if findings.observations:
        said.append("Seen before the files were read: " + "; ".join(findings.observations))
    if findings.left_out:
        listed = "; ".join(f"{shown_path(each.what)}: {each.why}" for each in findings.left_out[:20])
        more = f"; and {len(findings.left_out) - 20} more" if len(findings.left_out) > 20 else ""
        said.append(f"Left out, and to be named as such where it matters: {listed}{more}")
    return "\n".join(said)
