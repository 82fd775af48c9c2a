"""The live tree, the plain lines, and what show and runs print."""

import asyncio
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from graph import RecursiveTaskSolver, Verdict
from nodes.atomize import depth_based
from studio.live import LiveView, Picture, plain_line, printable
from studio.render import duration, print_result, print_runs
from studio.tree import Tree


def events(width: int, depth: int, task: str = "task") -> list[dict[str, Any]]:
    solver = RecursiveTaskSolver(
        solver=lambda prompt: f"answer\n{prompt}",
        decomposer=lambda task, depth: [f"{task} {index}" for index in range(width)],
        atomizer=depth_based(depth),
        verifier=lambda task, result, attempt: (
            Verdict.accept() if attempt > 1 or "<" in result else Verdict.reject("no")
        ),
        aggregator=lambda task, results: "<combined>",
    )

    async def collect() -> list[dict[str, Any]]:
        return [event async for event in solver.astream(task)]

    return asyncio.run(collect())


RUN = events(3, 2)
WIDE = events(40, 1)
HOSTILE = events(2, 1, "\x1b[31mred\x07 [bold]x[/] \u202eright\r\nto left 🌵 中文字 " + "long " * 90)


def drawn(run: list[dict[str, Any]], upto: int, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    view = LiveView(99, console=console, clock=lambda: 0.0)
    for event in run[:upto]:
        view.tree.apply(event, 0.0)
    console.print(Picture(view.tree, 99, lambda: 0.0))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@given(st.sampled_from([RUN, WIDE, HOSTILE]), st.integers(0, 300), st.integers(20, 120), st.integers(6, 50))
@settings(max_examples=80, deadline=None)
def test_the_picture_fits_and_shows_the_frame_at_work(
    run: list[dict[str, Any]], upto: int, width: int, height: int
) -> None:
    lines = drawn(run, upto, width, height)
    assert len(lines) <= height
    console = Console(width=width)
    assert all(console.render_str(line.replace("[", "(")).cell_len <= width for line in lines)
    started = [event["frame"] for event in run[:upto] if event["event"] == "step"]
    ended = run[:upto] and run[:upto][-1]["event"] in {"done", "end"}
    if started and not ended and height > 8:
        assert any(f" {started[-1]} " in line for line in lines)


def test_the_counts_of_the_tree_are_the_results() -> None:
    tree = Tree()
    for event in RUN:
        tree.apply(event, 0)
    result = RUN[-1]["result"]
    assert len(tree.nodes) == result["frames"] == tree.done
    assert tree.calls == result["usage"]["calls"]
    assert tree.tokens == result["usage"]["input_tokens"] + result["usage"]["output_tokens"]
    assert all(node.state == "done" for node in tree.nodes.values())


def test_an_unknown_event_changes_nothing() -> None:
    tree = Tree()
    tree.apply({"event": "later release"}, 0)
    assert tree == Tree()


def test_nothing_of_a_task_reaches_the_terminal_as_a_command() -> None:
    for line in drawn(HOSTILE, len(HOSTILE), 100, 40):
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(line)
    assert "\x1b" not in str(plain_line(HOSTILE[0]))
    assert printable("a\u202eb\x00") == "a\ufffdb\ufffd"


def test_plain_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with LiveView(9, console=console) as view:
        for event in RUN:
            view(event)
        view({"event": "wait", "frame": "0", "role": "solve", "seconds": 2, "reason": "429 slow down"})
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.1.2 solve attempt 2\n" in text
    assert "0.0.0 rejected: no\n" in text
    assert "0 waiting 2.0 s: 429 slow down\n" in text
    assert "\x1b" not in text


def test_quiet_shows_nothing() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveView(9, quiet=True, console=console) as view:
        for event in RUN:
            view(event)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_show_prints_every_frame_once() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_result({**RUN[-1]["result"], "task": "the\x1b task"}, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("✓") == 13
    assert "0.2.1 task 2 1  2 attempts  rejected: no" in text
    assert "<combined>" in text
    assert "\x1b" not in text


def test_show_of_a_run_without_an_answer() -> None:
    result = {**RUN[-1]["result"], "output": None, "success": False, "status": "limited", "gaps": ["0.1: max_calls"]}
    console = Console(file=io.StringIO(), width=80)
    print_result({**result, "partial": "what there is", "notes": ["0: refused"], "task": "t"}, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(part in text for part in ("limited", "0.1: max_calls", "what there is", "0: refused"))


def test_runs_are_one_line_each() -> None:
    row = {"run_id": "r", "status": "succeeded", "started": "2026-11-30T10:00:00+00:00", "profile": "classic"}
    console = Console(file=io.StringIO(), width=80)
    print_runs([{**row, "task": "a\nlong " * 60}], console)
    assert len(console.file.getvalue().splitlines()) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (185, "3 min 05 s"), (7380, "2 h 03 min")]
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said
