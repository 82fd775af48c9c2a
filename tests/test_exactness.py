"""Nothing is paid for twice, nothing is lost: kills at every write, resume, replay, fork."""

import asyncio
import gzip
import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from langgraph.runtime import RunControl

from frames.errors import UsageError
from graph.process import is_gone, this_process
from graph.runs import Runs
from graph.store import RunBusyError, open_store
from nodes.change import Change
from nodes.context import Context
from nodes.journal import ReplayError
from tests.cli import Cactus

PARTS = [
    {"id": "a", "task": "read", "kind": "think"},
    {"id": "b", "task": "mull", "kind": "think"},
    {"id": "c", "task": "draw", "kind": "write", "depends_on": ["a"]},
]
INNER = [{"id": "a", "task": "weigh", "kind": "think"}, {"id": "b", "task": "count", "kind": "think"}]
RULES: list[dict[str, Any]] = [
    {"role": "decompose", "depth": 0, "json": {"subtasks": PARTS}, "reply": "- read\n- mull\n- draw"},
    {"role": "decompose", "frame": r"0\.1", "json": {"subtasks": INNER}, "reply": "- weigh\n- count"},
    {"role": "atomize", "frame": r"0(\.1)?", "json": {"atomic": False}},
    {"role": "atomize", "json": {"atomic": True}},
    {
        "role": "verify",
        "frame": r"0\.0",
        "attempt": 1,
        "reply": "REJECT too short",
        "json": {"accepted": False, "feedback": "too short"},
    },
    {"role": "solve", "reply": "answer to {task}"},
    {"role": "aggregate", "reply": "all of {task}"},
]
CUT = {"role": "solve", "frame": r"0\.1\.1", "attempt": 1, "error": "length"}


def script(folder: Path, *rules: dict[str, Any], **top: Any) -> str:
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump({"log": "calls.jsonl", "rules": [*rules, *RULES], **top}), encoding="utf-8")
    return str(path)


def calls(folder: Path) -> list[dict[str, Any]]:
    log = folder / "calls.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


async def last(events: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    async for event in events:
        document = event.get("result", document)
    return document


@pytest.mark.parametrize(("profile", "stride"), [("classic", 1), ("roma", 2)])
def test_a_run_killed_at_any_write_goes_on_and_repeats_no_finished_call(
    profile: str, stride: int, where: str, tmp_path: Path
) -> None:
    path = script(tmp_path, *([CUT] if profile == "roma" else []))
    settings = {"profile": profile, "parallel": 2} | (
        {"atomizer": "llm", "verifier": "llm"} if profile != "roma" else {}
    )
    place = where if "://" in where else str(tmp_path)
    command = [sys.executable, "-m", "tests.killing", place, path, json.dumps(settings), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    print(profile, told)
    assert told["points"] > told["calls"]
    assert not told["differs"]
    assert told["most"] <= (2 if profile == "roma" else 1), "more than the calls in flight were made again"


async def test_a_limit_a_failure_and_a_refusal_are_gone_on_with(where: str, tmp_path: Path) -> None:
    context = Context.checked(profile="roma", model=f"scripted:{script(tmp_path)}", max_calls=17)
    async with open_store(where) as store:
        runs = Runs(store)
        limited = await last(runs.start(context, "the task", "run"))
        assert limited["status"] == "limited"
        assert 9 < limited["usage"]["calls"] <= 17
        more = Context.checked(profile="roma", model=context.model)
        document = await last(runs.resume(more, "run"))
        assert document["status"] == "succeeded"
        assert 9 < document["usage"]["replayed_calls"] <= limited["usage"]["calls"]
        assert document["usage"]["repeated_calls"] == 0
        assert len(calls(tmp_path)) == document["usage"]["calls"]
        again = await last(runs.resume(more, "run"))
        assert again["output"] == document["output"]
        assert len(calls(tmp_path)) == document["usage"]["calls"]


async def test_a_refused_call_is_asked_again_on_resume_and_stays_in_the_account(tmp_path: Path) -> None:
    refused = {"role": "solve", "frame": r"0\.2", "error": "refusal"}
    options = {"profile": "roma", "on_failure": "fail", "parallel": 1}
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        failing = Context.checked(model=f"scripted:{script(tmp_path, refused)}", **options)
        failed = await last(runs.start(failing, "the task", "run"))
        assert failed["status"] == "failed"
        refusals = failed["usage"]["calls"]
        mended = Context.checked(model=f"scripted:{script(tmp_path)}", **options)
        document = await last(runs.resume(mended, "run"))
        assert document["status"] == "succeeded"
        assert document["usage"]["calls"] == len(calls(tmp_path)), "the refusal was paid for too"
        assert document["usage"]["calls"] > refusals
        assert (await runs.replay(mended, "run")).output == document["output"]


async def test_a_replay_asks_nothing_and_gives_the_same(where: str, tmp_path: Path) -> None:
    context = Context.checked(profile="roma", model=f"scripted:{script(tmp_path, CUT)}")
    async with open_store(where) as store:
        runs = Runs(store)
        document = await last(runs.start(context, "the task", "run"))
        made = len(calls(tmp_path))
        (tmp_path / "script.yaml").unlink()
        bare = Context.checked(profile="roma", model=context.model)
        replayed = await runs.replay(bare, "run")
        assert json.dumps(replayed.to_dict()["traces"]) == json.dumps(document["traces"])
        assert replayed.output == document["output"]
        assert len(calls(tmp_path)) == made


async def test_a_replay_stops_at_a_changed_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nodes.executors import think

    context = Context.checked(profile="roma", model=f"scripted:{script(tmp_path)}")
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        await last(runs.start(context, "the task", "run"))
        render = think.render
        monkeypatch.setattr(think, "render", lambda *args, **about: f"Be bold.\n{render(*args, **about)}")
        with pytest.raises(ReplayError, match=r"0(\.\d)+: solve(.|\n)*\+.*Be bold"):
            await runs.replay(context, "run")


async def test_a_fork_asks_only_what_the_change_touches(where: str, tmp_path: Path) -> None:
    path = script(tmp_path)
    context = Context.checked(profile="roma", model=f"scripted:{path}")
    async with open_store(where) as store:
        runs = Runs(store)
        whole = await last(runs.start(context, "the task", "run"))
        before = len(calls(tmp_path))

        async def frames(name: str, change: Change) -> set[str]:
            made = len(calls(tmp_path))
            document = await last(runs.fork(context, "run", name, change))
            assert document["usage"]["calls"] == len(calls(tmp_path)) - made
            assert (await runs.replay(context, name)).output == document["output"]
            return {call["frame"] for call in calls(tmp_path)[made:]}

        assert await frames("answer", Change("0.0", answer="better")) == {"0.2", "0"}
        assert await frames("task", Change("0.1.0", task="ponder")) >= {"0.1.0", "0.1"}
        other = tmp_path / "other.yaml"
        other.write_text(yaml.safe_dump({"log": "calls.jsonl", "default": "bold"}), encoding="utf-8")
        models = {"solve": [f"scripted:{other}"]}
        assert "0.1.1" in await frames("model", Change("0.1.1", models=models)) <= {"0.1.1", "0.1", "0"}
        assert (await runs.result(context, "run")).output == whole["output"]
        assert len(calls(tmp_path)) > before
        with pytest.raises(UsageError, match="no frame 7"):
            await last(runs.fork(context, "run", "none", Change("7", answer="x")))


async def test_equal_requests_are_answered_once(tmp_path: Path) -> None:
    twins = [{"id": name, "task": f"part {name}", "kind": "think"} for name in "ab"]
    same = [{"id": "x", "task": "the very same", "kind": "think"}]
    rules = [
        {"role": "decompose", "depth": 0, "json": {"subtasks": twins}},
        {"role": "decompose", "depth": 1, "json": {"subtasks": same}},
        {"role": "atomize", "depth": 2, "json": {"atomic": True}},
        {"role": "atomize", "json": {"atomic": False}},
    ]
    made = {}
    for reuse in ("off", "run"):
        folder = tmp_path / reuse
        folder.mkdir()
        path = folder / "script.yaml"
        path.write_text(yaml.safe_dump({"log": "calls.jsonl", "rules": rules, "default": "yes"}), encoding="utf-8")
        context = Context.checked(profile="roma", model=f"scripted:{path}", reuse=reuse)
        async with open_store(folder / "runs.db") as store:
            document = await last(Runs(store).start(context, "the task", "run"))
            assert (await Runs(store).replay(context, "run")).output == document["output"]
        made[reuse] = document["usage"]["calls"]
        assert document["usage"]["calls"] == len(calls(folder))
        assert document["usage"]["saved_calls"] == made["off"] - made[reuse]
    assert made["run"] <= made["off"] - 3


async def test_one_process_at_a_time_works_on_a_run(where: str, tmp_path: Path) -> None:
    context = Context.checked(profile="roma", model=f"scripted:{script(tmp_path)}", max_calls=3)
    async with open_store(where) as store:
        await last(Runs(store).start(context, "the task", "run"))
        await store.take("run", "another")
        before = await store.find("run")
        more = Context.checked(profile="roma", model=context.model, max_calls=50)
        with pytest.raises(RunBusyError, match="is being worked on by"):
            await last(Runs(store).resume(more, "run"))
        assert await store.find("run") == before, "who is refused changes nothing"
        await store.give_back("run", "another", 1.0)
        assert (await last(Runs(store).resume(context, "run")))["status"] == "limited"


async def test_a_store_that_is_closed_leaves_no_task_behind(where: str) -> None:
    async with open_store(where) as store:
        await store.runs()
        during = len(asyncio.all_tasks())
    assert len(asyncio.all_tasks()) < during


def test_a_process_that_ended_is_gone() -> None:
    assert not is_gone(this_process())
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    machine, _, _ = this_process().partition(":")
    ended.wait()
    assert is_gone(f"{machine}:{ended.pid}:1")
    assert not is_gone("elsewhere:1:1")


def test_ctrl_c_keeps_what_is_in_flight_and_names_the_command(tmp_path: Path) -> None:
    parts = [{"id": str(n), "task": f"part {n}", "kind": "think"} for n in range(8)]
    rules = [
        {"role": "decompose", "depth": 0, "json": {"subtasks": parts}},
        {"role": "atomize", "depth": 0, "json": {"atomic": False}},
        {"role": "atomize", "json": {"atomic": True}},
        {"role": "solve", "reply": "done", "latency": 1.5},
    ]
    path = tmp_path / "script.yaml"
    text = {"log": "calls.jsonl", "rules": rules, "default": "yes"}
    path.write_text(yaml.safe_dump(text), encoding="utf-8")
    command = [sys.executable, "-m", "studio.main", "solve", "the task", "--model", f"scripted:{path}"]
    options = ["--run-id", "run", "--db", "runs.db", "-c", "max_subtasks=8"]
    folder = Path(__file__).parent.parent
    env = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.Popen([*command, *options], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    while sum(call["role"] == "atomize" for call in calls(tmp_path)) < 9:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with: cactus resume run --db runs.db" in err
    assert sum(call["role"] == "solve" for call in calls(tmp_path)) == 8
    resumed = [sys.executable, "-m", "studio.main", "resume", "run", "--db", "runs.db", "--json", "--quiet"]
    done = subprocess.run(resumed, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    document = json.loads(done.stdout)
    assert document["status"] == "succeeded", done.stderr
    assert document["usage"]["repeated_calls"] == 0
    assert sum(call["role"] == "solve" for call in calls(tmp_path)) == 8


def test_a_run_of_an_earlier_release_stays_readable(cactus: Cactus) -> None:
    """Saved by 0.1.0: ``cactus solve "the task" --run-id saved`` with CUT and RULES."""
    saved = Path(__file__).parent / "golden" / "run-0.1.0.db.gz"
    (cactus.folder / "saved.db").write_bytes(gzip.decompress(saved.read_bytes()))
    shown = cactus("show", "saved", "--db", "saved.db", "--json").document
    assert shown["output"] == "all of the task"
    assert shown["frames"] == 6
    replayed = cactus("replay", "saved", "--db", "saved.db", "--json")
    assert replayed.status == 0, replayed.err
    assert replayed.document["traces"] == shown["traces"]
    stack = cactus("replay", "saved", "--db", "saved.db", "--to", "3", "--json").document["stack"]
    assert [frame["id"] for frame in stack] == ["0"]
    assert cactus("replay", "saved", "--db", "saved.db", "--to", "99").status == 2


def test_the_commands(cactus: Cactus) -> None:
    model = cactus.script(*RULES)
    limited = cactus("solve", "the task", "--model", model, "--run-id", "one", "--max-calls", "6")
    assert limited.status == 3
    assert "go on with: cactus resume one --max-calls 12" in limited.err
    assert cactus("resume", "one", "--max-calls", "60").status == 0
    again = cactus("resume", "one")
    assert again.status == 0
    assert "is finished" in again.err
    replayed = cactus("replay", "one", "--json")
    assert replayed.status == 0
    assert replayed.document["output"] == again.out.strip()
    forked = cactus("fork", "one", "--frame", "0.0", "--answer", "better", "--run-id", "two")
    assert forked.status == 0
    assert "one: succeeded" in forked.err
    assert "two: succeeded" in forked.err
    assert cactus("resume", "nothing").status == 2
    assert cactus("replay", "nothing").status == 2
    assert cactus("fork", "one", "--frame", "0.9", "--answer", "x").status == 2
    assert cactus("fork", "one", "--frame", "0.0").status == 2
    assert cactus("fork", "one", "--frame", "0.0", "--answer", " ").status == 2
    assert cactus("resume", "one", "--profile", "classic").status == 2


def test_a_person_decides_by_command(cactus: Cactus) -> None:
    model = cactus.script(*RULES)
    waiting = cactus("solve", "the task", "--model", model, "--run-id", "one", "--approve", "plan")
    assert waiting.status == 4
    assert "cactus resume one --decide 0=approve" in waiting.err
    assert cactus("resume", "one", "--decide", "0=yes").status == 2
    rejected = cactus("resume", "one", "--decide", "0=reject:fewer parts", "--json")
    assert rejected.status == 4
    assert [plan["revision"] for plan in rejected.document["pending"]] == [1]
    both = cactus("resume", "one", "--decide", "0=approve", "--json")
    assert both.status == 4
    assert [plan["frame"] for plan in both.document["pending"]] == ["0.1"]
    done = cactus("resume", "one", "--decide", "0.1=approve", "--json")
    assert done.status == 0
    assert done.document["usage"]["repeated_calls"] == 0
    assert "pending" not in done.document
    assert cactus("replay", "one", "--json").document["output"] == done.document["output"]
    assert cactus("fork", "one", "--frame", "0.0", "--answer", "better", "--json").status == 0


def test_a_damaged_entry_is_named(cactus: Cactus) -> None:
    cactus("solve", "the task", "--model", cactus.script(*RULES), "--run-id", "one")
    with sqlite3.connect(cactus.folder / "runs.db") as database:
        database.execute("UPDATE cactus_journal SET content = x'00ff' WHERE frame = '0.2'")
    database.close()
    for command in ("replay", "show"):
        damaged = cactus(command, "one")
        assert damaged.status == 1
        assert "an entry of the journal (frame 0.2, atomize, attempt 1) is damaged" in damaged.err


def test_a_fork_that_waits_for_its_changed_plan_is_replayed_as_far_as_it_came(cactus: Cactus) -> None:
    model = cactus.script(*RULES)
    cactus("solve", "the task", "--model", model, "--run-id", "one", "--approve", "plan")
    cactus("resume", "one", "--decide", "0=approve")
    assert cactus("resume", "one", "--decide", "0.1=approve").status == 0
    forked = cactus("fork", "one", "--frame", "0.0", "--task", "skim", "--run-id", "two", "--json")
    assert forked.status == 4
    assert "+1. [think] skim" in forked.document["pending"][0]["difference"]
    waiting = cactus("replay", "two", "--json")
    assert waiting.status == 4, waiting.err
    assert waiting.document["pending"] == forked.document["pending"]
    assert forked.document["usage"]["calls"] == 0
    (cactus.folder / "plan.yaml").write_text("subtasks:\n- {id: a, task: skim}\n- {id: b, task: sum up}")
    assert cactus("resume", "two", "--decide", "0=@plan.yaml", "--json").status == 0


def test_ctrl_c_at_a_question_leaves_the_plan_waiting(tmp_path: Path) -> None:
    path = script(tmp_path)
    command = [sys.executable, "-m", "studio.main", "solve", "the task", "--model", f"scripted:{path}", "--db", "r.db"]
    terminal, end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    options = ["--approve", "plan", "--run-id", "run"]
    with subprocess.Popen(
        [*command, *options], cwd=tmp_path, env=environment, stdin=end, stdout=end, stderr=end
    ) as process:
        os.close(end)
        said, asked = b"", False
        while chunk := _read(terminal):
            said += chunk
            if b"\n> " in said and not asked:
                asked = True
                process.send_signal(signal.SIGINT)
    os.close(terminal)
    assert process.returncode == 4, said.decode()
    assert b"cactus resume run --db r.db --decide 0=approve" in said


def _read(terminal: int) -> bytes:
    if not select.select([terminal], [], [], 60)[0]:
        return b""
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_money_is_counted_and_limited(cactus: Cactus) -> None:
    model = cactus.script(*RULES)
    unknown = cactus("solve", "the task", "--model", model, "--max-usd", "1")
    assert unknown.status == 2
    assert "unknown" in unknown.err
    price = f"prices.{model}=1000/1000"
    free = cactus("solve", "the task", "--model", model, "--json")
    assert free.document["usage"]["usd"] is None
    dear = cactus("solve", "the task", "--model", model, "-c", price, "--json")
    usage = dear.document["usage"]
    assert usage["usd"] == pytest.approx((usage["input_tokens"] + usage["output_tokens"]) / 1000)
    assert sum(part["usd"] for part in usage["by_frame"].values()) == pytest.approx(usage["usd"])
    half = usage["usd"] / 2
    options = ["--max-usd", f"{half:.6f}", "--parallel", "1", "--json", "--run-id", "half"]
    limited = cactus("solve", "the task", "--model", model, "-c", price, *options)
    assert limited.status == 3
    most = max(part["usd"] for part in usage["by_frame"].values())
    assert 0 < limited.document["usage"]["usd"] < half + most
    assert limited.document["partial"]
    assert "go on with: cactus resume half --max-usd" in limited.err


# --- drain within a step ----------------------------------------------------------------------------------------------


async def drained(context: Context, db: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the events of a run that is asked to stop at its first call, and its end once gone on with."""
    control, events = RunControl(), list[dict[str, Any]]()
    async with open_store(db) as store:
        runs = Runs(store)
        async for event in runs.start(context, "the task", "run", control):
            events.append(event)
            if event["event"] == "call":
                control.request_drain("enough")
        assert events[-1]["result"]["status"] == "cancelled"
        return events, await last(runs.resume(context, "run"))


async def test_a_search_is_left_between_its_calls_and_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "cats.md").write_text("Cats sleep all day.")
    rules = [
        {"role": "solve", "contains": "Cats sleep", "reply": "they sleep"},
        {"role": "solve", "reply": "Action: search_documents\nAction Input: cats"},
    ]
    context = Context.checked(
        profile="roma", model=f"scripted:{script(tmp_path, *rules)}", docs=str(tmp_path / "docs"), max_depth=0
    )
    events, document = await drained(context, tmp_path / "runs.db")
    assert [call["role"] for call in calls(tmp_path)][:1] == ["solve"]
    assert events[-1]["result"]["usage"]["calls"] == 1, "no further one was begun"
    assert (document["status"], document["usage"]["repeated_calls"]) == ("succeeded", 0)
    assert len(calls(tmp_path)) == document["usage"]["calls"] == 3  # two of the search, one verdict


async def test_calls_side_by_side_in_a_step_are_waited_for(tmp_path: Path) -> None:
    long = [{"role": "solve", "reply": "word " * 900}, {"role": "aggregate", "contains": "Shorten", "reply": "short"}]
    context = Context.checked(
        profile="roma", model=f"scripted:{script(tmp_path, *long, latency=0.02)}", window=1000, parallel=2
    )
    control, seen = RunControl(), 0
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        async for event in runs.start(context, "the task", "run", control):
            seen += event["event"] == "call" and event["role"] == "aggregate"
            if seen == 1:
                control.request_drain("enough")
        made = len(calls(tmp_path))
        assert len(await store.entries("run")) == made, "what was in flight is kept"
        document = await last(runs.resume(context, "run"))
    assert (document["status"], document["usage"]["repeated_calls"]) == ("succeeded", 0)
    assert len({(c["frame"], c["role"], c["attempt"], c["request"]) for c in calls(tmp_path)}) == len(calls(tmp_path))


# --- models that are gone ---------------------------------------------------------------------------------------------


def test_a_finished_run_is_told_without_the_script_of_its_model(cactus: Cactus, tmp_path: Path) -> None:
    path = Path(script(tmp_path))
    document = cactus("solve", "the task", "--model", f"scripted:{path}", "--run-id", "r", "--json").document
    path.unlink()
    told = cactus("resume", "r", "--json")
    assert (told.status, told.document["output"]) == (0, document["output"])
    assert cactus("replay", "r").status == cactus("show", "r").status == cactus("export", "r").status == 0


def test_a_fork_with_a_script_that_cannot_be_read_is_refused_and_leaves_no_run(cactus: Cactus, tmp_path: Path) -> None:
    cactus("solve", "the task", "--model", f"scripted:{script(tmp_path)}", "--run-id", "r")
    (tmp_path / "broken.yaml").write_text("rules: [")
    for name in ("broken.yaml", "missing.yaml"):
        refused = cactus("fork", "r", "--frame", "0.0", "--role-model", f"solve=scripted:{tmp_path / name}")
        assert (refused.status, name in refused.err) == (2, True)
    assert cactus("runs").out.count("the task") == 1
