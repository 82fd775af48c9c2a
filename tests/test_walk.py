"""One parallel run, seen in every way: live in a terminal, in LangSmith, as a report, and in Studio's drawing."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from graph.solver import RecursiveTaskSolver
from nodes.models.scripted import ScriptedChatModel
from studio import graphs
from tests.cli import Cactus
from tests.servers import LangSmith, LangSmithHandler, serve
from tests.test_exactness import RULES, script
from tests.test_langsmith import ROOT, named, whole
from tests.test_report import CHROMIUM, opened  # noqa: F401  # a fixture

FRAMES = {"0", "0.0", "0.1", "0.1.0", "0.1.1", "0.2"}

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def in_a_terminal(args: list[str], environment: dict[str, str], folder: Path, columns: int = 110) -> str:
    """Return all that a command shows in a terminal of 24 lines, whatever size the environment speaks of."""
    environment = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(args, stdin=its, stdout=its, stderr=its, env=environment, cwd=folder)
    os.close(its)
    shown = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the terminal was closed
            break
        if not some:
            break
        shown += some
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown.decode(errors="replace")[-3000:]
    return _ANSI.sub("", shown.decode(errors="replace"))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
def test_a_parallel_run_is_seen_whole_in_every_view(cactus: Cactus, tmp_path: Path, opened: Any) -> None:  # noqa: F811
    state = LangSmith()
    with serve(LangSmithHandler, state) as address:
        traced = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "x"}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **traced}
        model = f"scripted:{script(tmp_path, latency=0.15)}"
        args = [sys.executable, "-m", "studio.main", "solve", "the task", "--model", model, "--run-id", "walk"]
        shown = in_a_terminal([*args, "-c", "prices.*=3/15"], environment, tmp_path)
    # the terminal: frames side by side, an attempt, what it cost, the answer
    pictures = shown.split("6 frames")
    assert any("0.0 think" in picture and "0.1 think" in picture for picture in pictures)
    assert "solve attempt 2" in shown
    assert re.search(r"6 frames, 6 done · \d+ calls of at most \d+ · \d+ tokens · \$0\.\d+", shown)
    assert shown.rstrip().endswith("all of the task")
    # LangSmith: one tree, each frame's steps in it, on the run's thread
    whole(state.runs)
    assert named(state.runs, "cactus walk")["extra"]["metadata"]["trace_complete"] is True
    assert {
        run["extra"]["metadata"]["frame"] for run in state.runs.values() if "frame" in run["extra"]["metadata"]
    } >= FRAMES
    # the events, the report
    events = [json.loads(line) for line in cactus("export", "walk").out.splitlines()]
    assert {event["frame"] for event in events if event["event"] == "frame"} == FRAMES
    assert cactus("report", "walk", "-o", "walk.html").status == 0
    made = opened(cactus.folder / "walk.html", "#view=tree")
    rows = " ".join(row.inner_text() for row in made.query_selector_all("#rows [role=treeitem]"))
    assert all(frame in rows for frame in FRAMES)
    # Studio's drawing: a node for each role that worked
    drawn = graphs.roma.get_graph(xray=True).draw_mermaid()
    assert all(f"{event['role']}(" in drawn for event in events if event["event"] == "step")


PAGE = (ROOT / "docs" / "terminal.md").read_text(encoding="utf-8")


def seen_as(line: str) -> re.Pattern[str]:
    """Return what a line of the page looks like in another run: other times, and so texts that are cut elsewhere."""
    cells = re.split(r"\s{2,}", line.strip())
    if len(cells) > 1:
        cells = [cells[0][:20], *(cell if re.match(r"[\d$]", cell) else cell[:4] for cell in cells[1:])]
    pattern = r"[^\n]*?".join(map(re.escape, cells))
    pattern = re.sub("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", pattern)
    return re.compile(re.sub(r"\d+(\\\.\d)?\\ s\b", r"\\d[\\d. mins]* s", pattern))


@pytest.mark.parametrize("console", ["a terminal", "a log"])
def test_the_terminals_page_shows_what_is_seen(console: str, tmp_path: Path) -> None:
    rules = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    latency = {"a terminal": 1.2, "a log": 0.1}[console]  # what a terminal shows must last until it is drawn
    (tmp_path / "offers.yaml").write_text(rules.replace("latency: 1.2", f"latency: {latency}"))
    line = re.findall(r"^cactus (.*)", PAGE, re.MULTILINE)[0]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment["CACTUS_DB"] = str(tmp_path / "runs.db")
    args = [sys.executable, "-m", "studio.main", *shlex.split(line)]
    if console == "a terminal":
        seen = in_a_terminal(args, environment, tmp_path, columns=100)
    else:
        done = subprocess.run(args, env=environment, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
        seen = done.stderr
    mark = {"a terminal": "seen", "a log": "seen in a log"}[console]
    told = re.findall(rf"^<!-- {mark} -->\n```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(told) == {"a terminal": 2, "a log": 1}[console]
    missed = [line for block in told for line in block.splitlines() if not seen_as(line).search(seen)]
    assert missed == [], "\n".join(dict.fromkeys(line for line in seen.splitlines() if line[:8] == missed[0][:8]))


@pytest.mark.parametrize("usage", ["reported", "estimated"])
async def test_case_25_a_streamed_run_counts_as_one_that_is_not(usage: str) -> None:
    def model() -> Any:
        return ScriptedChatModel.from_script({"rules": RULES}) if usage == "reported" else lambda prompt: "yes"

    plain = await RecursiveTaskSolver.roma(model()).asolve("the task")
    events = [event async for event in RecursiveTaskSolver.roma(model()).astream("the task")]
    streamed = events[-1]["result"]["usage"]
    totals = ("calls", "input_tokens", "output_tokens", "estimated", "by_role")
    assert {name: streamed[name] for name in totals} == {name: plain.usage[name] for name in totals}
    assert streamed["estimated"] == (usage == "estimated")
    told = [event for event in events if event["event"] == "call" and not event["saved"]]
    assert sum(event["input_tokens"] for event in told) == streamed["input_tokens"]
    assert {event["estimated"] for event in told} == {usage == "estimated"}
