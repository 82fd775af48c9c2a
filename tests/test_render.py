"""What show and runs print, on a terminal and piped."""

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from studio.render import duration, print_result, print_runs


def trace(type_: str, frame: str, detail: str, task: str = "task") -> dict[str, Any]:
    return {"type": type_, "frame": frame, "task": task, "detail": detail, "depth": frame.count("."), "attempt": 1}


def document(**changes: Any) -> dict[str, Any]:
    usage = {"calls": 4, "input_tokens": 30, "output_tokens": 10, "usd": None}
    traces = [
        trace("DECOMPOSED", "0", "2 sub-tasks: a; b", "root " * 30),
        trace("SOLVED", "0.0", "a"),
        trace("VERIFIED", "0.0", "REJECTED: too short", "long [red] " * 20),
    ]
    return {
        "run_id": "r-1",
        "status": "interrupted",
        "task": "the\x1b[31m task",
        "gaps": [],
        "output": None,
        "partial": None,
        "traces": traces,
        "duration_ms": 185_000,
        "frames": 3,
        "bound": None,
        "usage": usage,
        **changes,
    }


def printed(doc: dict[str, Any], *, terminal: bool = False, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_result(doc, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_on_a_terminal_a_frame_is_one_row_that_shows_its_verdict(width: int) -> None:
    lines = printed(document(), terminal=True, width=width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    rows = [line for line in lines if line.lstrip()[:1] in {"✓", "✗", "●"}]
    assert len(rows) == 2
    assert rows[0].endswith("  2 sub-tasks")
    assert "rejected: too" in rows[1]


def test_piped_a_row_is_whole_and_without_escapes() -> None:
    text = printed(document(), width=20)
    assert "rejected: too short\n" in text
    assert "\x1b" not in text
    assert "task  the task\n" in text


def test_a_frame_without_a_verdict_is_neither_accepted_nor_rejected() -> None:
    text = printed(document())
    assert "\n● 0 root" in text
    assert "\n  ✗ 0.0 long [red]" in text


def test_the_answer_keeps_its_lines_and_says_what_it_cost() -> None:
    usage = {"calls": 1, "input_tokens": 30, "output_tokens": 10, "estimated": True}
    bound = {"frames": 156, "calls": 626}
    text = printed(document(output="first\n  second [b]x[/b]", frames=1, usage=usage, bound=bound))
    assert "answer\nfirst\n  second [b]x[/b]\n" in text
    assert "1 frame · 1 calls of at most 626 · 30 tokens in, 10 out (estimated) · 3 min 05 s" in text


def rows_printed(rows: list[dict[str, Any]], *, terminal: bool, colour: Any = None) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=colour)
    print_runs(rows, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


ROW = {"started": "2026-11-30T10:00:00+00:00", "profile": "roma", "task": "why it failed\n" * 20}
ROWS = [{**ROW, "run_id": "中文", "status": "failed"}, {**ROW, "run_id": "run-1234", "status": "succeeded"}]


def test_runs_are_aligned_rows() -> None:
    lines = rows_printed(ROWS, terminal=True).splitlines()
    assert len(lines) == 3
    assert all(cell_len(line) <= 80 for line in lines)
    assert len({cell_len(line.partition("roma")[0]) for line in lines[1:]}) == 1


def test_only_the_status_of_a_run_is_coloured() -> None:
    assert rows_printed(ROWS[:1], terminal=True, colour="standard").count("\x1b[31m") == 1
    assert "\x1b" not in rows_printed(ROWS, terminal=False)


def test_no_runs_says_how_to_start_one() -> None:
    assert "cactus solve" in rows_printed([], terminal=False)


@pytest.mark.parametrize(("seconds", "said"), [(59.97, "1 min 00 s"), (3599.8, "1 h 00 min")])
def test_a_duration_is_rounded_before_its_unit_is_chosen(seconds: float, said: str) -> None:
    assert duration(seconds) == said
