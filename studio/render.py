"""What ``cactus show`` and ``cactus runs`` print."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from studio.live import beside, printable, visible

_COLOURS = {"succeeded": "green", "failed": "red", "limited": "yellow", "cancelled": "yellow", "interrupted": "yellow"}

_MARKS = {"ACCEPTED": ("✓", "green"), "REJECTED": ("✗", "red"), "": ("●", "yellow")}  # the last: not finished


def print_result(document: Mapping[str, Any], console: Console) -> None:
    """Print a run: its task, its tree of frames, its answer and what it cost."""
    status = document["status"]
    _print(console, Text(document["run_id"], "bold").append(f"  {status}", _COLOURS.get(status, "")))
    _print(console, Text("task  ", "dim").append(_kept(document["task"])))
    _print(console, Text())
    for line in _tree(document["traces"], console.width if console.is_terminal else 1000):
        _print_row(console, line)
    _print_section(console, "notes", document.get("notes", []))
    _print_section(console, "gaps", document["gaps"])
    _print_section(console, "artifacts", [_artifact(artifact) for artifact in document.get("artifacts", [])])
    for title in ("output", "partial"):
        if document.get(title):
            _print(console, Text(f"\n{'answer' if title == 'output' else 'found so far'}", "dim"))
            _print(console, Text(_kept(document[title])))
    _print(console, _cost(document))


def _artifact(artifact: Mapping[str, Any]) -> str:
    return f"{artifact['id']}  {artifact['name']}  {artifact['size']} bytes  of {artifact['frame']}"


def print_runs(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a table of runs."""
    if not rows:
        _print(console, Text('no runs yet: cactus solve "…" starts one'))
        return
    heads = ("run", "status", "started", "profile", "task")
    table = [heads, *(_row(row) for row in rows)]
    widths = [max(cell_len(cells[column]) for cells in table) for column in range(4)]
    for cells in table:
        run, status, *rest = [set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=False)]
        line = Text(f"{run}  ", "dim" if cells is heads else "").append(status, _COLOURS.get(cells[1], ""))
        _print_row(console, line.append("  ".join(["", *rest, cells[4]])))


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    started = f"{datetime.fromisoformat(row['started']).astimezone():%Y-%m-%d %H:%M}"
    return (printable(row["run_id"]), row["status"], started, row["profile"], printable(row["task"], 200))


def _tree(traces: Sequence[Mapping[str, Any]], width: int) -> list[Text]:
    """Return one line a frame, in the order the frames were begun, with what became of it."""
    frames: dict[str, list[Mapping[str, Any]]] = {}
    for trace in traces:
        frames.setdefault(trace["frame"], []).append(trace)
    return [_frame_line(frame, entries, width) for frame, entries in frames.items()]


def _frame_line(frame: str, entries: Sequence[Mapping[str, Any]], width: int) -> Text:
    last = entries[-1]
    mark, colour = _MARKS[last["detail"][:8] if last["type"] == "VERIFIED" else ""]
    line = Text("  " * min(last["depth"], 20)).append(mark, colour)
    line.append(f" {frame} ", "bold")
    return beside(line, Text(printable(last["task"], 70)), _became(entries), width)


def _became(entries: Sequence[Mapping[str, Any]]) -> Text:
    """Return what stands behind the task: the subtasks or attempts, and each rejection."""
    line = Text()
    attempts = sum(entry["type"] == "SOLVED" for entry in entries)
    if entries[0]["type"] == "DECOMPOSED":
        line.append(f"  {entries[0]['detail'].partition(':')[0]}", "dim")
    elif attempts > 1:
        line.append(f"  {attempts} attempts", "dim")
    for entry in entries:
        if entry["type"] == "VERIFIED" and entry["detail"].startswith("REJECTED"):
            line.append(f"  {printable(entry['detail'].lower()[:8] + entry['detail'][8:], 80)}", "yellow")
    return line


def _print_section(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        _print(console, Text(f"\n{title}", "dim"))
    for line in lines:
        _print(console, Text(f"  {printable(line)}"))


def _cost(document: Mapping[str, Any]) -> Text:
    usage, bound = document["usage"], document["bound"]
    most = f" of at most {bound['calls']}" if bound else ""
    estimated = " (estimated)" if usage.get("estimated") else ""
    tokens = f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out{estimated}"
    seconds = document["duration_ms"] / 1000
    frames = f"{document['frames']} frame{'s' if document['frames'] != 1 else ''}"
    return Text(f"\n{frames} · {usage['calls']} calls{most} · {tokens} · {duration(seconds)}", "dim")


def duration(seconds: float) -> str:
    """Return a duration as people say it: ``4.2 s``, ``3 min 05 s``, ``2 h 03 min``."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _kept(text: str) -> str:
    """Return ``text`` with its lines, without characters that would move the cursor."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.splitlines())


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)


def _print_row(console: Console, line: Text) -> None:
    """Print ``line`` as one row: cut with an ellipsis on a terminal, whole where it is piped."""
    console.print(line, no_wrap=True, overflow="ellipsis" if console.is_terminal else "ignore", crop=False)
