"""``cactus eval``: rows, judges, going on, the table; and experiments, against a stub of LangSmith's endpoints."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from frames.errors import UsageError
from graph.dataset import Row, read_rows
from tests.cli import Cactus
from tests.servers import LangSmith, LangSmithHandler, serve

ROWS: list[dict[str, Any]] = [
    {"task": "capital of France?", "expected": "Paris", "judge": "contains"},
    {"task": "two times 21?", "expected": 42},
    {"task": "a colour?", "expected": "one of the rainbow", "judge": "model"},
    {"task": "a year?", "expected": r"\b20\d\d\b", "judge": "regex"},
]

RULES: list[dict[str, Any]] = [
    {"contains": "Judge the answer to the task below by what was expected", "reply": "ACCEPT: blue is one"},
    {"role": "atomize", "json": {"atomic": True}},
    {"role": "solve", "task": "France", "reply": "It is PARIS."},
    {"role": "solve", "task": "21", "reply": " 42\n"},
    {"role": "solve", "task": "colour", "reply": "blue"},
]


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in ROWS))
    return str(path)


def made(cactus: Cactus) -> int:
    """Return how many calls the scripted model has answered."""
    log = cactus.folder / "calls.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def model(cactus: Cactus, **top: Any) -> str:
    return cactus.script(*RULES, log="calls.jsonl", **{"default": "no idea", **top})


def test_tasks_are_solved_judged_and_summed_up(cactus: Cactus, tasks: str) -> None:
    told = cactus(
        "eval", tasks, "--profile", "classic", "--profile", "roma", "--model", model(cactus), "--json", "-q",
        "-c", "prices.*=1/2",
    )  # fmt: skip
    assert told.status == 0, told.err
    document = told.document
    assert document["finished"]
    assert [(each["profile"], each["tasks"], each["correct"]) for each in document["profiles"]] == [
        ("classic", 4, 3),
        ("roma", 4, 3),
    ]
    for summary in document["profiles"]:
        of_profile = [each for each in document["tasks"] if each["profile"] == summary["profile"]]
        assert summary["accuracy"] == 0.75
        assert summary["judge_calls"] == 1
        assert summary["calls"] == sum(each["calls"] for each in of_profile)
        tokens = summary["input_tokens"] + 2 * summary["output_tokens"]
        assert summary["usd"] == pytest.approx(tokens / 1_000_000)
    assert sum(each["calls"] + each["judge_calls"] for each in document["tasks"]) == made(cactus)
    right = {each["line"]: each["correct"] for each in document["tasks"] if each["profile"] == "roma"}
    assert right == {1: True, 3: True, 5: True, 7: False}


def test_the_table_has_a_row_a_profile(cactus: Cactus, tasks: str) -> None:
    out = cactus("eval", tasks, "--profile", "classic", "--model", model(cactus), "-q").out
    row = next(line for line in out.splitlines() if "classic" in line).split()
    assert row[:6] == ["classic", "4", "3", "75%", "8", "1"]


def test_every_task_is_a_run_and_none_is_paid_for_twice(cactus: Cactus, tasks: str) -> None:
    args = ("eval", tasks, "--model", model(cactus), "--json", "-q")
    first, paid = cactus(*args).document, made(cactus)
    listed = {row["run_id"] for row in cactus("runs", "--json").document}
    assert {each["run_id"] for each in first["tasks"]} < listed
    assert cactus(*args).document == first
    assert made(cactus) == paid
    Path(tasks).write_text(Path(tasks).read_text() + '\n{"task": "one more", "expected": "x"}')
    cactus(*args)
    assert made(cactus) == paid + 3  # atomize, solve and verify of the new task alone
    cactus(*args, "--name", "again")
    assert made(cactus) > 2 * paid


def test_an_interrupted_evaluation_goes_on(cactus: Cactus, tasks: str) -> None:
    args = ("eval", tasks, "--model", model(cactus), "--json", "-q")
    first, paid = cactus(*args).document, made(cactus)
    run = first["tasks"][1]["run_id"]
    with sqlite3.connect(cactus.folder / "runs.db") as database:  # as a kill after its first call leaves it
        database.execute("UPDATE cactus_runs SET status = 'running' WHERE run_id = ?", (run,))
        database.execute("DELETE FROM cactus_journal WHERE run_id = ? AND role != 'atomize'", (run,))
        for table, column in (("checkpoints", "thread_id"), ("writes", "thread_id"), ("cactus_events", "run_id")):
            database.execute(f"DELETE FROM {table} WHERE {column} = ?", (run,))
    database.close()
    document = cactus(*args).document
    assert document["finished"]
    assert document["profiles"][0]["correct"] == 3
    assert made(cactus) == paid + 2  # its solve and verify


def test_a_judge_without_a_verdict_is_no_wrong_answer(cactus: Cactus, tasks: str) -> None:
    silent = cactus.script({**RULES[0], "reply": "", "error": "refusal"}, *RULES[1:], default="no idea")
    document = cactus("eval", tasks, "--model", silent, "--json", "-q").document
    unjudged = document["tasks"][2]
    assert unjudged["correct"] is None
    assert "no verdict" in unjudged["reason"]
    assert document["profiles"][0]["accuracy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "line 2: no JSON"),
        ("[1]", "line 2: no JSON object"),
        ('{"task": " ", "expected": "x"}', "line 2: task is missing"),
        ('{"task": "t"}', "line 2: expected is missing"),
        ('{"task": "t", "expected": true}', "line 2: expected is missing or no text"),
        ('{"task": "t", "expected": "x", "judge": "vibes"}', "no judge 'vibes'"),
        ('{"task": "t", "expected": "(", "judge": "regex"}', "line 2: expected is no regular expression"),
        ('{"task": "t", "expected": "x", "answer": "y"}', "line 2: unknown key 'answer'"),
    ],
)
def test_a_bad_row_is_named_by_its_line(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"tasks\.jsonl") as caught:
        read_rows('{"task": "t", "expected": "x"}\n' + line, "tasks.jsonl", "exact")
    assert said in str(caught.value)
    with pytest.raises(UsageError, match="it has no task"):
        read_rows("\n\n", "tasks.jsonl", "exact")


@pytest.mark.parametrize(
    ("judge", "expected", "answer", "right"),
    [
        ("exact", "Paris", " Paris\n", True),
        ("exact", "Paris", "paris", False),
        ("contains", "paris", "It is PARIS.", True),
        ("contains", "Rome", "It is Paris.", False),
        ("regex", r"^\d+$", "42", True),
        ("regex", r"^\d+$", "about 42", False),
    ],
)
def test_judges(judge: Any, expected: str, answer: str, *, right: bool) -> None:
    assert Row(1, "t", expected, judge).holds(answer) is right


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--upload", "capitals"), "LANGSMITH_API_KEY"),
        (("--approve", "plan"), "--approve"),
        (("--name", "a b"), "--name 'a b'"),
    ],
)
def test_wrong_use_is_told(
    cactus: Cactus, tasks: str, more: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANGSMITH_API_KEY", "LANGCHAIN_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    told = cactus("eval", tasks, "--model", model(cactus), *more)
    assert (told.status, told.out) == (2, "")
    assert said in told.err
    assert cactus("eval", "missing.jsonl", "--model", model(cactus)).status == 2


def test_an_evaluation_is_uploaded_as_experiments(cactus: Cactus, tasks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = LangSmith()
    with serve(LangSmithHandler, state) as address:
        where = {"LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "x", "LANGSMITH_TRACING": "false"}
        program = [
            "eval", tasks, "--profile", "classic", "--model", model(cactus), "--upload", "capitals", "--json", "-q",
        ]  # fmt: skip
        first = run_apart(program, where)
        paid = made(cactus)
        again = run_apart(program, where)
    assert first["profiles"] == again["profiles"]
    assert first["profiles"][0]["correct"] == 3
    assert made(cactus) == paid
    [dataset] = state.datasets.values()
    assert (dataset["name"], len(state.examples)) == ("capitals", 4)
    experiments = {document["upload"]["experiments"]["classic"] for document in (first, again)}
    assert len(experiments) == 2
    assert experiments <= state.projects.keys()
    roots = [run for run in state.runs.values() if run["id"] == run["trace_id"] and run["session_name"] in experiments]
    assert len(roots) == 8
    examples = {example["id"]: example for example in state.examples}
    for root in roots:
        scored = [each["score"] for each in state.feedback.values() if each["run_id"] == root["id"]]
        expected = examples[root["reference_example_id"]]["outputs"]["expected"]
        assert scored == [0 if "20" in expected else 1]
    assert any(run["name"].startswith("solve 0 attempt 1") for run in state.runs.values())
    above = {run["parent_run_id"] for run in state.runs.values() if run.get("parent_run_id")}
    assert above <= state.runs.keys()


def run_apart(args: list[str], where: dict[str, str]) -> dict[str, Any]:
    """Return the document of a ``cactus`` of its own: LangSmith's client lasts as long as its process."""
    command = [sys.executable, "-c", "from studio.main import run; run()", *args]
    told = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, timeout=90, check=False)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def test_ctrl_c_ends_after_the_calls_in_flight_and_the_same_command_goes_on(cactus: Cactus, tasks: str) -> None:
    slow = model(cactus, latency=0.4)
    args = ["eval", tasks, "--model", slow, "--json", "-q", "--parallel-tasks", "2"]
    command = [sys.executable, "-c", "from studio.main import run; run()", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while made(cactus) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "the same command goes on" in err
    stopped, paid = json.loads(out), made(cactus)
    assert not stopped["finished"]
    assert paid < 13
    document = cactus(*args).document
    assert document["finished"]
    assert document["profiles"][0]["correct"] == 3
    assert made(cactus) == 13  # three calls a task and the judge's: none was made twice
