"""Plans at the terminal: shown, decided by exact words or options, edited; and at a real terminal."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from frames.errors import UsageError
from studio import approving
from studio.approving import Pending, decide, decisions_from, read_decision, shown


def subtask(id_: str, task: str, kind: Any = None, depends_on: Iterable[str] = ()) -> dict[str, Any]:
    return {"id": id_, "task": task, "kind": kind, "depends_on": list(depends_on)}


def pending(frame: str, **fields: Any) -> Pending:
    plan = [subtask("a", "read A", "search"), subtask("b", "weigh", "think", ["a"])]
    value = {
        "kind": "plan",
        "frame": frame,
        "task": f"task {frame}",
        "depth": frame.count("."),
        "plan": plan,
        "revision": 0,
        "revisions_left": 5,
        "problem": None,
        "was": None,
        "difference": None,
    }
    return Pending(f"id of {frame}", {**value, **fields})


ONE, SEVERAL = [pending("0.1")], [pending("0.1"), pending("0.12")]


@pytest.mark.parametrize(
    ("line", "frame", "action", "text"),
    [
        ("a 0.1", "0.1", "approve", ""),
        ("0.12 A", "0.12", "approve", ""),
        ("APPROVE 0.12", "0.12", "approve", ""),
        (" 0.1  approve ", "0.1", "approve", ""),
        ("e 0.1", "0.1", "edit", ""),
        ("0.1 Edit", "0.1", "edit", ""),
        ("r 0.1 too many parts", "0.1", "reject", "too many parts"),
        ("0.12 r too many", "0.12", "reject", "too many"),
        ("Reject 0.12 a 0.1", "0.12", "reject", "a 0.1"),
        ("0.1 r 0.12 is the one to keep", "0.1", "reject", "0.12 is the one to keep"),
    ],
)
def test_lines_that_decide(line: str, frame: str, action: str, text: str) -> None:
    decision = read_decision(line, SEVERAL)
    assert not isinstance(decision, str), decision
    assert (decision.pending.frame, decision.action, decision.text) == (frame, action, text)


@pytest.mark.parametrize(
    ("line", "action"), [("a", "approve"), ("Approve", "approve"), ("e", "edit"), ("r too long", "reject")]
)
def test_where_one_plan_waits_its_id_may_be_left_out(line: str, action: str) -> None:
    decision = read_decision(line, ONE)
    assert not isinstance(decision, str)
    assert decision.action == action
    assert "several plans wait" in str(read_decision(line, SEVERAL))


NO_LINES = [
    "",
    " ",
    "yes",
    "no",
    "y",
    "n",
    "0.1",
    "a 0.1 please",
    "a 0.1 0.1",
    "0.1 a 0.1",
    "approve of it",
    "a little more detail",
    "e very part is wrong",
    "not enough detail",
    "novel ideas",
    "yes but no",
    "approved",
    "rejected",
    "reject",
    "r",
    "r 0.1",
    "0.1 r ",
    "r 0.5 too many",
    "a 0.2",
    "a0.1",
    "ed\u0131t 0.1",
    "\uff41",
]


@pytest.mark.parametrize("line", NO_LINES)
@pytest.mark.parametrize("pendings", [ONE, SEVERAL], ids=["one", "several"])
def test_case_18_lines_that_decide_nothing(line: str, pendings: list[Pending]) -> None:
    assert isinstance(read_decision(line, pendings), str)


@given(st.text())
def test_case_18_no_other_line_is_a_decision(line: str) -> None:
    verbs = ("a", "approve", "e", "edit", "r", "reject")
    words = line.lower().split()
    if not any(word in verbs for word in words[:2]):
        assert isinstance(read_decision(line, SEVERAL), str)


def asked(pendings: list[Pending], lines: list[str], edit: Any = None) -> tuple[dict[str, Any], str, list[str]]:
    """Return the replies, what was shown, and the lines that nobody read."""
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    replies = decide(pendings, read, console, edit)
    console.file.close()
    return replies, console.export_text(), left


def test_all_are_asked_about_until_all_are_decided() -> None:
    lines = ["novel ideas", "a", "r 0.12 too many", "a 0.12", "not enough detail", "a", "unread"]
    replies, said, left = asked(SEVERAL, lines)
    assert replies == {"id of 0.12": {"action": "reject", "text": "too many"}, "id of 0.1": "approve"}
    assert said.count("that is no decision") == 2
    assert "several plans wait; name the frame of one: 0.1, 0.12" in said
    assert "no plan of 0.12 waits; those that do: 0.1" in said
    assert left == ["unread"]


@pytest.mark.parametrize("end", [["q"], [" Q "], []])
def test_what_is_not_decided_goes_on_waiting(end: list[str]) -> None:
    assert asked(SEVERAL, ["0.12 a", *end])[0] == {"id of 0.12": "approve"}


def test_an_edit_that_will_not_do_is_told_and_goes_on_where_it_was() -> None:
    seen: list[str] = []
    texts: list[str | None] = [
        None,
        "- [",
        "- {id: a, task: x, depends_on: [b]}",
        "just text",
        "[]",
        "- task 0.1",
        "- x\n- {id: y, task: y}",
        "- {id: 1, task: x}\n- {id: 2, task: y, kind: code, depends_on: 1}",
    ]

    def edit(text: str) -> str | None:
        seen.append(text)
        return texts[len(seen) - 1]

    replies, said, _ = asked(ONE, ["e"] * len(texts), edit)
    assert replies == {"id of 0.1": {"action": "edit", "plan": [subtask("1", "x"), subtask("2", "y", "code", ["1"])]}}
    assert seen[0].startswith("# plan of 0.1: task 0.1\n")
    assert seen[1] == seen[0]
    assert seen[2:] == texts[1:-1]
    for problem in ("as it was", "no YAML", "'b', which is no subtask", "subtasks is str", "it has no subtask"):
        assert problem in said
    assert "restates the task of frame 0.1" in said
    assert "is str, not a mapping" in said


def test_a_plan_that_is_saved_unchanged_is_not_approved_by_it() -> None:
    replies, said, _ = asked(ONE, ["e", "a"], lambda text: text)
    assert replies == {"id of 0.1": "approve"}
    assert "the plan is as it was" in said


def test_without_an_editor_lines_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    replies, said, _ = asked(ONE, ["e", ".", "e", "- one", "- two", " .", "unread"])
    assert replies["id of 0.1"]["plan"] == [subtask("0", "one"), subtask("1", "two")]
    assert "- id: a" in said
    assert asked(ONE, ["e", "- one"])[0] == {}  # the input ended before the dot


@pytest.mark.parametrize("program", ["no-such-editor", "false", 'open "quote'])
def test_an_editor_that_fails_decides_nothing(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", program)
    replies, said, _ = asked(ONE, ["e", "a"])
    assert replies == {"id of 0.1": "approve"}
    assert "the plan is as it was" in said


def test_plans_are_shown_whole_by_frame() -> None:
    hostile = subtask("c", "line one\nline two \x1b[2J\u202eevil", None, ["a", "b"])
    plan = [subtask("a", "read A", "search"), subtask("b", "weigh", "think", ["a"]), hostile]
    changed = {"was": plan[:2], "difference": "--- recorded\n+++ now\n@@ -1 +1 @@\n-1. old\n+1. new"}
    text = shown([pending("0.1"), pending("0.2", plan=plan, revision=2, revisions_left=3, problem="hm", **changed)])
    assert text.plain.splitlines() == [
        "plan of 0.1  task 0.1",
        "  1. [search] read A",
        "  2. [think] weigh (after 1)",
        "",
        "plan of 0.2  task 0.2",
        "  1. [search] read A",
        "  2. [think] weigh (after 1)",
        "  3. line one",
        "     line two \ufffdevil (after 1, 2)",
        "  not the plan that was approved:",
        "    @@ -1 +1 @@",
        "    -1. old",
        "    +1. new",
        "  rejected 2 times; 3 rejections are left",
        "  not taken: hm",
    ]
    colours = {text.plain[span.start : span.end].strip(): span.style for span in text.spans}
    assert (colours["-1. old"], colours["+1. new"]) == ("red", "green")
    last = shown([pending("0", revision=1, revisions_left=1)]).plain
    assert "rejected once; the next rejection has the task solved without a plan" in last


# --- options -------------------------------------------------------------------------------------------------


def test_options_decide_by_frame(tmp_path: Path) -> None:
    file = tmp_path / "plan=1.yaml"
    file.write_text("- one\n- two\n")
    assert decisions_from([], SEVERAL) == {}
    assert decisions_from(["all=approve"], SEVERAL) == {"id of 0.1": "approve", "id of 0.12": "approve"}
    assert decisions_from(["0.12=reject: a=b: no "], SEVERAL) == {"id of 0.12": {"action": "reject", "text": "a=b: no"}}
    assert decisions_from([f"0.1=@{file}", "all=approve"], SEVERAL) == {
        "id of 0.1": {"action": "edit", "plan": [subtask("0", "one"), subtask("1", "two")]},
        "id of 0.12": "approve",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["0.2=approve"], "no plan of frame '0.2' waits for a decision; those that do: 0.1, 0.12"),
        (["approve"], "is no decision: give FRAME=approve"),
        (["0.1"], "is no decision"),
        (["0.1="], "is no decision"),
        (["0.1=yes"], "is no decision"),
        (["0.1=Approve"], "is no decision"),
        (["0.1=reject"], "is no decision"),
        (["0.1=reject: "], "is no decision"),
        (["0.1=@"], "is no decision"),
        (["all=reject:no"], "no plan of frame 'all'"),
        (["ALL=approve"], "no plan of frame 'ALL'"),
        (["0.1=approve", "0.1=reject:no"], "decided on twice"),
        (["0.1=@nowhere.yaml"], "cannot read nowhere.yaml: No such file"),
    ],
)
def test_options_that_decide_nothing_are_wrong_use(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        decisions_from(options, SEVERAL)


@pytest.mark.parametrize(("content", "said"), [(b"[]", "no subtask"), (b"\xff", "no UTF-8"), (b"- [", "no YAML")])
def test_a_file_without_a_plan_is_wrong_use(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        decisions_from([f"0.1=@{tmp_path / 'p.yaml'}"], ONE)


# --- a real terminal -----------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
from studio.approving import Pending, decide
print(json.dumps(decide([Pending(*given) for given in json.load(open(sys.argv[1]))])))
"""


def test_at_a_real_terminal_with_an_editor(tmp_path: Path) -> None:
    (tmp_path / "pending.json").write_text(json.dumps([[p.id, p.value] for p in SEVERAL]))
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nwith open(sys.argv[1], 'w') as f: f.write('- edited one\\n- edited two\\n')\n")
    ours, theirs = pty.openpty()
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "pending.json")],
            stdin=theirs,
            stdout=out,
            stderr=theirs,
            cwd=Path(approving.__file__).parent.parent,
            env={**os.environ, "TERM": "xterm-256color", "VISUAL": f"{sys.executable} {editor}", "COLUMNS": "100"},
        )
    os.close(theirs)
    seen = _until(ours, lambda text: text.count("> ") == 1)
    for number, line in enumerate(["novel ideas", "e 0.12", "a"], 2):
        os.write(ours, f"{line}\n".encode())
        seen += _until(ours, lambda text, number=number: number == 4 or "> " in text)
    assert process.wait(timeout=30) == 0
    os.close(ours)
    assert "plan of \x1b[0m\x1b[1m0.12\x1b[0m  task 0.12" in seen
    assert "that is no decision" in seen
    edited = {"action": "edit", "plan": [subtask("0", "edited one"), subtask("1", "edited two")]}
    assert json.loads((tmp_path / "out").read_text()) == {"id of 0.12": edited, "id of 0.1": "approve"}


def _until(terminal: int, done: Callable[[str], bool]) -> str:
    seen, end = "", time.monotonic() + 30
    while not done(seen):
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536).decode("utf-8", "replace")
    return seen
