"""The live tree: bounded in height and width, the path in view, and nothing but lines where there is no terminal."""

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from studio.live import LiveView, Picture, amount, printable

HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]x[/] \u202eright\r\n\tleft 👩\u200d👧 🇫🇷 e\u0301 中文字 مرحبا "


def frame(id_: str, task: str) -> dict[str, Any]:
    parent = id_.rpartition(".")[0] or None
    return {"event": "frame", "frame": id_, "parent": parent, "task": task, "depth": id_.count(".")}


def deep(fan: int, depth: int, at: int, task: str = "task") -> list[dict[str, Any]]:
    """Return the events of a run that is ``depth`` levels down, each time at subtask ``at`` of ``fan``."""
    events, id_ = [frame("0", task)], "0"
    for _ in range(depth):
        events.append({"event": "plan", "frame": id_, "subtasks": [{"task": task}] * fan})
        for index in range(min(at, fan - 1)):
            events.append(frame(f"{id_}.{index}", task))
            events.append({"event": "answer", "frame": f"{id_}.{index}", "role": "solve", "attempt": 1, "answer": task})
            events.append({"event": "done", "frame": f"{id_}.{index}", "success": index % 3 != 1})
        id_ = f"{id_}.{min(at, fan - 1)}"
        events.append(frame(id_, task))
    return [*events, {"event": "step", "frame": id_, "role": "solve", "attempt": 2}]


def drawn(
    events: list[dict[str, Any]], width: int, height: int, *, ended: bool = False, colour: Any = None
) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=colour)
    view = LiveView(626, console=console, clock=lambda: 0.0)
    for event in events:
        view.tree.apply(event, 0.0)
    picture = Picture(view.tree, 626, lambda: 5.0)
    picture.ended = ended
    console.print(picture)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@given(
    fan=st.integers(1, 40),
    depth=st.integers(0, 25),
    at=st.integers(0, 39),
    task=st.one_of(st.just(HOSTILE), st.just("long " * 90), st.text(max_size=60)),
    width=st.integers(10, 150),
    height=st.integers(1, 60),
    ended=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_the_picture_is_never_larger_than_the_terminal(
    fan: int, depth: int, at: int, task: str, width: int, height: int, ended: bool
) -> None:
    lines = drawn(deep(fan, depth, at, task), width, height, ended=ended)
    assert len(lines) <= max(height - 1, 1)
    assert all(cell_len(line) <= width for line in lines)


@given(fan=st.integers(2, 40), depth=st.integers(0, 5), at=st.integers(0, 39), height=st.integers(16, 60))
@settings(max_examples=60, deadline=None)
def test_the_whole_path_stays_in_view(fan: int, depth: int, at: int, height: int) -> None:
    events = deep(fan, depth, at)
    lines = drawn(events, 80, height)
    parts = events[-1]["frame"].split(".")
    for level in range(len(parts)):
        assert any(f" {'.'.join(parts[: level + 1])} task" in line for line in lines)


def test_every_line_is_there_or_counted() -> None:
    lines = drawn(deep(40, 2, 20), 80, 24)
    counted = sum(int(line.split()[1]) for line in lines if line.strip().startswith("…"))
    shown = sum(not line.strip().startswith("…") for line in lines) - 1  # the footer
    assert counted + shown == 81
    assert not any("… 1 more" in line for line in lines)


def test_a_long_task_does_not_hide_the_step() -> None:
    lines = drawn(deep(2, 1, 0, "long " * 90), 60, 24)
    assert any("…  solve attempt 2 5 s" in line for line in lines)
    assert lines[-1].startswith("2 frames, 0 done · 0 calls of at most 626 · 0 tokens · 0 s")


def test_a_failed_frame_is_red_and_a_planned_one_dim() -> None:
    lines = drawn(deep(4, 1, 2), 80, 24, colour="standard")
    assert any("\x1b[31m✗" in line and "\x1b[31mtask" in line for line in lines)
    assert any("\x1b[2m" in line and "· 0.3 task" in line for line in lines)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any("\x1b[3" in line for line in drawn(deep(4, 1, 2), 80, 24, colour="standard"))


def test_sequences_go_whole_and_joiners_are_dropped() -> None:
    assert printable("\x1b[1;31mred\x1b[0m \x1b]0;title\x07end") == "red end"
    assert printable("a\x1bb [bold]c[/]") == "a\ufffdb [bold]c[/]"
    assert printable("👩\u200d👧") == "👩👧"


def test_the_last_picture_stays_once() -> None:
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True, color_system=None)
    with LiveView(9, console=console, clock=lambda: 0.0) as view:
        for event in deep(40, 1, 39, HOSTILE):
            view(event)
    last = console.file.getvalue().rpartition("\x1b[2K")[2]  # type: ignore[attr-defined]
    assert last.count("41 frames, 39 done") == 1
    assert "solve attempt" not in last
    assert len(last.splitlines()) <= 20


def test_standard_error_that_is_no_terminal_gets_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with LiveView(9) as view:
        view(frame("0", HOSTILE))
        view({"event": "plan_refused", "frame": "0", "reason": "one\nsubtask"})
        view({"event": "step", "frame": "0", "role": "atomize", "attempt": 1})
        view({"event": "step", "frame": "0", "role": "solve", "attempt": 2})
        view({"event": "verdict", "frame": "0", "attempt": 2, "accepted": False, "feedback": "too short"})
        view({"event": "done", "frame": "0", "success": False})
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert err.splitlines()[1:] == [
        "0 plan refused: one subtask",
        "0 solve attempt 2",
        "0 rejected: too short",
        "0 failed",
    ]


def test_a_dumb_terminal_gets_plain_lines() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, _environ={"TERM": "dumb"})
    with LiveView(9, console=console) as view:
        view({"event": "step", "frame": "0.1", "role": "solve", "attempt": 1})
    assert console.file.getvalue() == "0.1 solve attempt 1\n"  # type: ignore[attr-defined]


def call(frame: str, tokens: int, usd: float | None, **more: Any) -> dict[str, Any]:
    return {"event": "call", "frame": frame, "input_tokens": tokens, "output_tokens": 0, "usd": usd, **more}


def test_a_line_ends_with_what_its_frame_and_all_below_it_have_spent() -> None:
    events = [
        *deep(2, 1, 1),
        call("0.1", 1200, 0.5),
        call("0.0", 40, 0.25),
        call("0", 1, 0.0),
        call("0", 99, 0.1, saved=True),
    ]
    lines = drawn(events, 100, 20)
    assert [line.split()[-3:] for line in lines[:3]] == [
        ["1.2k", "tok", "$0.7500"],
        ["40", "tok", "$0.2500"],
        ["1.2k", "tok", "$0.5000"],
    ]
    assert "3 calls of at most 626 · 1241 tokens · $0.7500" in lines[-1]
    assert not any("tok " in line for line in drawn(events, 60, 20)[:-1]), "a narrow terminal keeps the tasks"
    unknown = drawn([*events, call("0.1", 1, None)], 100, 20)
    assert [line.split()[-1] for line in unknown[:3]] == ["tok", "$0.2500", "tok"], "an unknown price stays unknown"
    assert "$" not in unknown[-1]


def test_a_console_without_unicode_gets_ascii_of_the_same_width() -> None:
    events = [*deep(9, 2, 4, "中文 long " * 20), {"event": "wait", "frame": "0", "seconds": 2, "reason": "429"}]
    view = LiveView(626, console=Console(file=io.StringIO()), clock=lambda: 0.0)
    for event in events:
        view.tree.apply(event, 0.0)

    class Ascii(io.StringIO):
        encoding = "ascii"

    console = Console(file=Ascii(), width=90, height=12, force_terminal=True, color_system=None)
    console.print(Picture(view.tree, 626, lambda: 5.0))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.isascii()
    lines = text.splitlines()
    assert all(len(line) <= 90 for line in lines)
    assert any(line.strip().startswith("+ 0.") for line in lines)
    assert any("waiting 2.0 s: 429" in line for line in lines)


def test_a_wait_is_over_with_the_next_step_or_call() -> None:
    wait = {"event": "wait", "frame": "0", "seconds": 2, "reason": "429"}
    after: list[dict[str, Any]] = [call("0", 1, None), {"event": "step", "frame": "0", "role": "verify", "attempt": 1}]
    for event in after:
        assert not any("waiting" in line for line in drawn([frame("0", "t"), wait, event], 80, 9))


def test_a_run_that_goes_on_shows_what_was_done_before() -> None:
    console = Console(file=io.StringIO(), width=80, height=20, force_terminal=True, color_system=None)
    view = LiveView(9, console=console, clock=lambda: 0.0)
    done = [{"event": "done", "frame": id_, "success": False} for id_ in ("0.1", "0")]
    view.know([*deep(2, 1, 1), *done])
    assert not view.tree.working
    view.tree.apply({"event": "step", "frame": "0.1", "role": "solve", "attempt": 1}, 1.0)
    assert (view.tree.nodes["0.1"].state, view.tree.nodes["0"].state, view.tree.done) == ("running", "running", 1)


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0"), (999, "999"), (1000, "1.0k"), (999_949, "999.9k"), (2_500_000, "2.5M")]
)
def test_amounts(count: int, said: str) -> None:
    assert amount(count) == said
