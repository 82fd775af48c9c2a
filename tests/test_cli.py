"""The command line: options, exit status, messages, the JSON document, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from nodes.settings import Settings
from tests.cli import Cactus

SPLIT = {"role": "decompose", "depth": 0, "reply": "- part one\n- part two"}
ANSWER = {"role": "solve", "reply": "answer to {task}"}


def test_solve_prints_the_answer_alone_on_standard_output(cactus: Cactus) -> None:
    done = cactus("solve", "the task", "--model", cactus.script(SPLIT, ANSWER, default="combined"))
    assert (done.status, done.out) == (0, "combined\n")
    assert "0.1" in done.err


def test_json_is_the_document_of_the_interface(cactus: Cactus) -> None:
    done = cactus("solve", "t", "--json", "--run-id", "mine", "--model", cactus.script(SPLIT, ANSWER, default="c"))
    document = done.document
    assert list(document)[:5] == ["schema", "run_id", "status", "success", "output"]
    assert {"partial", "gaps", "traces", "duration_ms", "frames", "bound", "usage"} < set(document)
    assert (document["schema"], document["run_id"], document["status"]) == (1, "mine", "succeeded")
    assert document["frames"] == 3
    assert set(document["traces"][0]) == {"type", "task", "detail", "depth", "attempt", "frame"}
    assert document["usage"]["by_role"]["solve"]["calls"] == 2
    assert document["usage"]["by_frame"]["0"]["calls"] == 4  # atomize, decompose, aggregate, verify
    assert document["usage"]["repeated_calls"] == 0
    assert cactus("show", "mine", "--json").document == {**document, "artifacts": []}


def test_quiet_writes_nothing_to_standard_error(cactus: Cactus) -> None:
    assert cactus("solve", "t", "--quiet", "--model", cactus.script(default="a")).err == ""


def test_a_task_comes_from_standard_input_or_a_file(cactus: Cactus, monkeypatch: pytest.MonkeyPatch) -> None:
    model = cactus.script(ANSWER)
    file = cactus.folder / "task.md"
    file.write_text("von Datei: größer 🌵", encoding="utf-8")
    assert cactus("solve", "--file", str(file), "--model", model).out == "answer to von Datei: größer 🌵\n"
    with (cactus.folder / "in").open("w+", encoding="utf-8") as stream:
        stream.write("piped")
        stream.seek(0)
        monkeypatch.setattr(sys, "stdin", stream)
        assert cactus("solve", "-", "--model", model).out == "answer to piped\n"


def test_no_accepted_answer_is_status_1(cactus: Cactus) -> None:
    reject = {"role": "verify", "reply": "REJECT too short"}
    done = cactus("solve", "t", "-c", "verifier=llm", "--json", "--model", cactus.script(reject, ANSWER))
    assert done.status == 1
    assert (done.document["output"], done.document["partial"]) == (None, None)
    assert done.document["gaps"] == ["0: rejected after 2 attempts: too short"]
    plain = cactus("solve", "t", "-c", "verifier=llm", "--model", cactus.script(reject, ANSWER))
    assert plain.out == ""
    assert "0: rejected after 2 attempts: too short" in plain.err
    assert "cactus show" in plain.err


@pytest.mark.parametrize("limit", [["--max-calls", "2"], ["--max-tokens", "18"], ["--max-frames", "2"]])
def test_a_limit_is_status_3_with_what_was_found(cactus: Cactus, limit: list[str]) -> None:
    done = cactus(
        "solve",
        "t",
        "--json",
        "--profile",
        "classic",
        "--max-depth",
        "1",
        *limit,
        "--model",
        cactus.script(SPLIT, ANSWER, default="c"),
    )
    assert (done.status, done.document["status"], done.document["output"]) == (3, "limited", None)
    assert limit[0].removeprefix("--").replace("-", "_") in done.document["gaps"][0]
    if limit[0] == "--max-calls":
        assert "answer to part one" in done.document["partial"]


def test_a_deadline_ends_a_call_that_never_returns(cactus: Cactus) -> None:
    hang = {"role": "solve", "frame": r"0\.1", "error": "hang"}
    began = time.monotonic()
    model = cactus.script(SPLIT, hang, ANSWER, default="c")
    done = cactus("solve", "t", "--json", "--deadline", "1", "--model", model)
    assert time.monotonic() - began < 10
    assert (done.status, done.document["status"]) == (3, "limited")
    assert "answer to part one" in done.document["partial"]
    assert done.document["gaps"] == ["0.1: deadline = 1.0 s reached"]


WRONG: list[tuple[list[str], str]] = [
    (["solve"], "give one task"),
    (["solve", "t", "--file", "x"], "give one task"),
    (["solve", "   "], "the task is empty"),
    (["solve", "--file", "/no/such/file"], "cannot read --file /no/such/file"),
    (["solve", "t", "--model", "nonsense"], "not PROVIDER:NAME"),
    (["solve", "t", "--model", "nosuch:model"], "nosuch"),
    (["solve", "t", "--model", "scripted:/no/such.yaml"], "/no/such.yaml"),
    (["solve", "t", "--model", "openai:gpt-5-mini"], "set OPENAI_API_KEY"),
    (["solve", "t", "--max-retries", "0"], "max_retries must be greater than or equal to 1"),
    (["solve", "t", "--max-depth", "-1"], "max_depth must be greater than or equal to 0"),
    (["solve", "t", "--max-depth", "many"], "'many' is not a valid integer"),
    (["solve", "t", "-c", "atomizer=maybe"], "atomizer must be depth:N"),
    (["solve", "t", "-c", "nosuch=1"], "unknown setting 'nosuch'"),
    (["solve", "t", "-c", "novalue"], "must be key=value"),
    (["solve", "t", "--role-model", "judge=local"], "role_models has no role 'judge'"),
    (["solve", "t", "--role-model", "judge"], "must be ROLE=PROVIDER:NAME"),
    (["solve", "t", "--config", "/no/such.yaml"], "cannot read --config /no/such.yaml"),
    (["solve", "t", "--profile", "nosuch"], "nosuch"),
    (["solve", "t", "--db", "/proc/nosuch/runs.db"], "name another file with --db"),
    (["solve", "t", "--nosuch"], "No such option"),
    (["show", "nosuch"], "no run 'nosuch': `cactus runs` lists them"),
    (["bound", "--max-subtasks", "0"], "max_subtasks must be greater than or equal to 1"),
    (["nosuch"], "No such command"),
]


@pytest.mark.parametrize(("args", "said"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_wrong_use_is_status_2_with_a_short_message(cactus: Cactus, args: list[str], said: str) -> None:
    if args[0] == "solve" and "--model" not in args:
        args = [*args, "--model", cactus.script(default="a")]
    done = cactus(*args)
    assert done.status == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_no_model_at_all_names_the_three_ways_out(cactus: Cactus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodes.models.resolve.local_available", lambda: False)
    done = cactus("solve", "t")
    assert done.status == 2
    assert all(way in done.err for way in ("--model", "OPENAI_API_KEY", "cactus-solver[local]"))


def test_an_unreachable_endpoint_is_a_short_message(cactus: Cactus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    done = cactus("solve", "t", "--max-depth", "0", "--model", "openai:m", "-c", "call_attempts=2", "--run-id", "r")
    assert done.status == 1
    assert "openai:m could not be reached (2 attempts)" in done.err
    assert "Traceback" not in done.err
    assert cactus("show", "r", "--json").document["status"] == "failed"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-c", "role_models=null"], None),
        (["-c", "role_models=abc"], "role_models must be role: provider:model"),
        (["-c", "max_depth=1", "-c", "max_depth.b=2"], "max_depth has a value of its own already"),
        (["-c", "db=5"], "db must be a file"),
        (["--db", ":memory:"], "db must be a file"),
        (["--db", ""], "db must be a file"),
        (["--run-id", "a\nb"], "--run-id"),
    ],
    ids=str,
)
def test_values_of_the_wrong_form_are_refused(cactus: Cactus, args: list[str], said: str | None) -> None:
    done = cactus("solve", "t", *args, "--model", cactus.script(default="a"))
    assert done.status == (2 if said else 0)
    assert (said or "") in done.err


def test_a_database_that_is_not_there_is_not_made_by_looking(cactus: Cactus) -> None:
    done = cactus("runs", "--db", str(cactus.folder / "sub" / "x.db"))
    assert done.status == 2
    assert "there is no database" in done.err
    assert not (cactus.folder / "sub").exists()


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(
    ("redirected", "status"),
    [("2>/dev/full", 0), ("2>&-", 0), (">&-", 0), ("2>&1 | true", 0), (">/dev/full", 1), ("<&-", 0)],
)
def test_a_stream_that_is_closed_or_full_loses_nothing(
    cactus: Cactus, redirected: str, status: int, buffered: bool
) -> None:
    model = cactus.script(ANSWER)
    solve = f"{sys.executable} -m studio.main solve t --run-id r --model {model} --db runs.db {redirected}"
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    done = subprocess.run(["bash", "-c", solve], cwd=cactus.folder, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert cactus("show", "r", "--json").document["output"] == "answer to t"


def test_a_run_id_is_used_once(cactus: Cactus) -> None:
    model = cactus.script(default="a")
    assert cactus("solve", "t", "--run-id", "r", "--model", model).status == 0
    again = cactus("solve", "t", "--run-id", "r", "--model", model)
    assert again.status == 2
    assert "run r exists already" in again.err


def test_settings_explicit_beats_file_beats_environment(cactus: Cactus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACTUS_MAX_SUBTASKS", "1")
    monkeypatch.setenv("CACTUS_MAX_RETRIES", "7")
    (cactus.folder / "c.toml").write_text("max-subtasks = 2\nmax_depth = 1\n")
    monkeypatch.setenv("CACTUS_PROFILE", "classic")
    said = cactus("bound", "--json", "--config", "c.toml").document
    assert said["frames"] == 3
    assert said["steps"] == 3 * (2 + 3 * 7)
    assert cactus("bound", "--json", "--config", "c.toml", "-c", "max_subtasks=4").document["frames"] == 5
    assert cactus("bound", "--json", "--config", "c.toml", "--max-subtasks", "5").document["frames"] == 6


CHOICES = [
    f"{name}={choice}"
    for name, field in Settings.model_fields.items()
    if get_origin(field.annotation) is Literal
    for choice in get_args(field.annotation)
]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_of_a_setting_can_be_given_as_it_is_written(cactus: Cactus, choice: str) -> None:
    name, _, value = choice.partition("=")
    rules = [{"role": "atomize", "json": {"atomic": True}}, {"role": "verify", "json": {"accepted": True}}]
    model = cactus.script(*rules, default="ACCEPT")
    profile = [] if name == "profile" else ["--profile", "adaptive"]
    done = cactus("solve", "Say hello", *profile, "--model", model, "-c", choice, "--json")
    assert done.status == (3 if value == "agent" else 0), done.err  # whose replies have no code
    began = json.loads(cactus("export", done.document["run_id"]).out.splitlines()[0])
    assert began["settings"][name] == value


def test_one_roles_model(cactus: Cactus) -> None:
    model = cactus.script(SPLIT, default="main")
    other = cactus.folder / "other.yaml"
    other.write_text("default: other")
    done = cactus("solve", "t", "--json", "--model", model, "--role-model", f"aggregate=scripted:{other}")
    assert done.document["output"] == "other"


def test_a_run_lives_where_db_says(cactus: Cactus, where: str) -> None:
    solved = cactus("solve", "t\x00\udc81", "--json", "--db", where, "--run-id", "r", "--model", cactus.script(ANSWER))
    assert solved.document["output"] == "answer to t\ufffd\ufffd"
    assert cactus("show", "r", "--json", "--db", where).document == {**solved.document, "artifacts": []}
    assert "r  " in cactus("runs", "--db", where).out


def test_runs_lists_the_newest_first(cactus: Cactus) -> None:
    assert "cactus solve" in cactus("runs").out
    model = cactus.script(default="a")
    for name in ("one", "two"):
        cactus("solve", f"task {name}", "--run-id", name, "--model", model)
    rows = json.loads(cactus("runs", "--json").out)
    assert {row["run_id"] for row in rows} == {"one", "two"}
    assert {row["status"] for row in rows} == {"succeeded"}
    assert "task one" in cactus("runs").out


def test_show_tells_how_the_answer_came_about(cactus: Cactus) -> None:
    cactus("solve", "the task", "--run-id", "r", "--model", cactus.script(SPLIT, ANSWER, default="combined"))
    shown = cactus("show", "r").out
    assert all(text in shown for text in ("the task", "succeeded", "part one", "0.1", "combined"))


def test_help_shows_examples_line_by_line(cactus: Cactus) -> None:
    assert "\n  cactus demo " in cactus("--help").out
    assert "\n    cactus runs --limit 5 --json\n" in cactus("runs", "--help").out


@pytest.mark.parametrize("command", ["solve", "runs", "show", "bound", "demo", "doctor", "dev"])
def test_help_has_examples(cactus: Cactus, command: str) -> None:
    done = cactus(command, "--help")
    assert done.status == 0
    assert "Examples:" in done.out


def test_demo_passes_through_every_node_and_saves_nothing(cactus: Cactus) -> None:
    done = cactus("demo", "--json")
    assert done.status == 0
    assert {trace["type"] for trace in done.document["traces"]} == {"DECOMPOSED", "SOLVED", "AGGREGATED", "VERIFIED"}
    assert any(trace["detail"].startswith("REJECTED") for trace in done.document["traces"])
    assert not (cactus.folder / "runs.db").exists()


def test_doctor_reports(cactus: Cactus) -> None:
    done = cactus("doctor", "--json", "--db", str(cactus.folder / "d.db"))
    found = {check["name"]: check for check in json.loads(done.out)}
    assert found["langgraph"]["ok"]
    assert found["database"]["ok"]
    assert cactus("doctor", "--db", "/proc/no/d.db").status == 1


def start(folder: Path, *args: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "CACTUS_DB": str(folder / "runs.db")}
    command = [sys.executable, "-m", "studio.main", *args]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_text().splitlines()) >= lines:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} has no {lines} lines")


@pytest.mark.parametrize(("signals", "calls"), [([signal.SIGINT], 2), ([signal.SIGTERM], 2), ([signal.SIGINT] * 2, 1)])
def test_ctrl_c_keeps_what_was_done(cactus: Cactus, signals: list[int], calls: int) -> None:
    slow: dict[str, Any] = {"role": "solve", "latency": 2, "reply": "slow"}
    model = cactus.script(SPLIT, slow, default="c", log="calls.jsonl")
    process = start(
        cactus.folder, "solve", "t", "--json", "--profile=classic", "--max-depth=1", "--run-id=r", "--model", model
    )
    wait_for(cactus.folder / "calls.jsonl", 1)
    time.sleep(0.3)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    document = json.loads(out)
    assert document["status"] == "cancelled"
    assert document["usage"]["calls"] == calls
    assert cactus("show", "r", "--json").document["status"] == "cancelled"


def test_a_failed_part_is_told_beside_the_answer(cactus: Cactus) -> None:
    refused = {"role": "solve", "frame": r"0\.1", "error": "refusal"}
    model = cactus.script(SPLIT, refused, ANSWER, default="combined")
    for profile in (["--profile=classic", "--max-depth=1"], ["--max-depth=1"]):
        done = cactus("solve", "t", "--on-failure=partial", *profile, "--model", model)
        assert (done.status, done.out) == (0, "combined\n")
        assert "the answer has gaps\n  0.1: solve: " in done.err
        failed = cactus("solve", "t", "--json", "--on-failure=fail", *profile, "--model", model)
        assert (failed.status, failed.document["output"]) == (1, None)


def test_a_run_stopped_in_a_fork_shows_what_its_branches_did(cactus: Cactus) -> None:
    slow: dict[str, Any] = {"role": "solve", "frame": r"0\.1", "latency": 2, "reply": "slow"}
    model = cactus.script(SPLIT, slow, ANSWER, default="c", log="calls.jsonl")
    for name, number in (("drained", signal.SIGINT), ("killed", signal.SIGKILL)):
        (cactus.folder / "calls.jsonl").unlink(missing_ok=True)
        process = start(cactus.folder, "solve", "t", "--max-depth=1", f"--run-id={name}", "--model", model)
        wait_for(cactus.folder / "calls.jsonl", 4)  # atomize, decompose, one solved and verified
        time.sleep(0.5)
        process.send_signal(number)
        process.communicate(timeout=30)
        shown = cactus("show", name, "--json").document
        assert shown["usage"]["calls"] == len((cactus.folder / "calls.jsonl").read_text().splitlines())
        assert "answer to part one" in shown["partial"]
        assert {trace["frame"] for trace in shown["traces"]} >= {"0", "0.0"}


def test_a_second_ctrl_c_when_all_is_done_keeps_the_document(cactus: Cactus) -> None:
    slow: dict[str, Any] = {"role": "solve", "latency": 0.5, "reply": "slow"}
    model = cactus.script(SPLIT, slow, default="c", log="calls.jsonl")
    for pause in (0.45, 0.6, 0.75):
        (cactus.folder / "calls.jsonl").unlink(missing_ok=True)
        process = start(cactus.folder, "solve", "t", "--json", "--max-depth=1", "--model", model)
        wait_for(cactus.folder / "calls.jsonl", 2)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, "Traceback" in err) == (130, False)
        assert json.loads(out)["status"] == "cancelled"


def test_of_very_many_gaps_the_terminal_tells_the_first(cactus: Cactus) -> None:
    split = {"role": "decompose", "depth": 0, "reply": "\n".join(f"- part {n}" for n in range(50))}
    model = cactus.script(split, ANSWER, default="c")
    options = ["--max-depth=1", "--max-subtasks=50", "--profile=classic", "--max-calls=2", "--run-id=r"]
    done = cactus("solve", "t", *options, "--model", model)
    assert done.status == 3
    assert "… and 19 more: cactus show r" in done.err
    assert len(cactus("show", "r", "--json").document["gaps"]) == 49
