"""Events: one stream a run, kept as it is told; each view is drawn from it, and a replay tells it again."""

import io
import json
import os
import re
import sqlite3
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from frames import events as kinds
from frames.errors import UsageError
from graph.runs import Runs
from graph.solver import RecursiveTaskSolver
from graph.store import open_store
from nodes.change import Change
from nodes.context import Context
from nodes.event_log import EventLog
from nodes.journal import ReplayError
from nodes.models.scripted import ScriptedChatModel
from studio.export import split
from studio.live import Picture, plain_line
from studio.tree import Tree
from tests import agents
from tests.cli import Cactus
from tests.test_exactness import CUT, RULES, last, script

GOLDEN = Path(__file__).parent / "golden"


def settings(folder: Path, profile: str = "roma", *rules: dict[str, Any], **more: Any) -> Context:
    judged = {} if profile == "roma" else {"atomizer": "llm", "verifier": "llm"}
    return Context.checked(**{"profile": profile, "model": f"scripted:{script(folder, *rules)}", **judged, **more})


@pytest.fixture
async def runs(where: str) -> Any:
    async with open_store(where) as store:
        yield Runs(store)


async def test_what_is_told_is_kept_whole_and_in_order(runs: Runs, tmp_path: Path) -> None:
    live = [event async for event in runs.start(settings(tmp_path, "roma", CUT), "the task", "r")]
    assert live == await runs.events("r")
    assert [event["id"] for event in live] == list(range(1, len(live) + 1))
    assert [event["time"] for event in live] == sorted(event["time"] for event in live)
    assert (live[0]["event"], live[-1]["event"]) == ("run", "end")
    assert {event["schema"] for event in live} == {kinds.EVENTS_SCHEMA}
    assert all(event["parent"] == (event["frame"].rpartition(".")[0] or None) for event in live if "frame" in event)
    calls = [event for event in live if event["event"] == "call"]
    assert len(calls) == live[-1]["result"]["usage"]["calls"]
    assert all(call["messages"] and call["reply"] is not None for call in calls)
    assert sum(call["input_tokens"] for call in calls) == live[-1]["result"]["usage"]["input_tokens"]


@pytest.mark.parametrize("profile", ["classic", "roma"])
async def test_case_24_every_frame_has_its_start_its_plan_and_its_end(runs: Runs, tmp_path: Path, profile: str) -> None:
    rejected = {"role": "verify", "frame": r"0\.1\.0", "reply": "REJECT no", "json": {"accepted": False}}
    context = settings(tmp_path, profile, rejected, on_failure="partial")
    told = [event async for event in runs.start(context, "the task", "r")]
    by_kind = {name: Counter(e["frame"] for e in told if e["event"] == name) for name in ("frame", "plan", "done")}
    traced = {trace["frame"] for trace in told[-1]["result"]["traces"]}
    assert traced <= by_kind["frame"].keys() == by_kind["done"].keys()
    assert set(by_kind["frame"].values()) == set(by_kind["done"].values()) == {1}
    planned = {f"{e['frame']}.{n}" for e in told if e["event"] == "plan" for n, _ in enumerate(e["subtasks"])}
    assert planned == by_kind["frame"].keys() - {"0"}
    order = {(e["event"], e["frame"]): e["id"] for e in told if e["event"] in by_kind}
    assert all(order["frame", frame] < order["done", frame] for frame in by_kind["frame"])


async def test_a_replay_tells_the_same(runs: Runs, tmp_path: Path) -> None:
    context = settings(tmp_path, "roma", CUT)
    await last(runs.start(context, "the task", "r"))
    before = await runs.events("r")
    assert (await runs.replay(context, "r")).status == "succeeded"
    assert await runs.events("r") == before
    change = {"role": "plan", "reason": "never told"}
    await runs.store.append("r", [(len(before) + 1, "key", {"event": "plan_refused", "frame": "0", **change})])
    with pytest.raises(ReplayError, match=r"does not tell what the run did: .*never told"):
        await runs.replay(context, "r")


async def test_a_replay_that_tells_something_else_says_what(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    context = settings(tmp_path, "classic")
    async with open_store(db) as store:
        await last(Runs(store).start(context, "the task", "r"))
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE cactus_events SET key = 'other' WHERE id = 4")
    async with open_store(db) as store:
        with pytest.raises(ReplayError, match=r'tells what the run did not: \{"event": "call"'):
            await Runs(store).replay(context, "r")


def test_replay_and_export_give_the_same_bytes(cactus: Cactus, tmp_path: Path) -> None:
    model = f"scripted:{script(tmp_path, CUT)}"
    assert cactus("solve", "Unicode: \U0001f335 مرحبا \udc81", "--model", model, "--run-id", "r").status == 0
    exported = tmp_path / "a.jsonl"
    assert cactus("export", "r", "-o", str(exported)).status == 0
    told = cactus("replay", "r", "--events", str(tmp_path / "b.jsonl"))
    assert told.status == 0
    assert exported.read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    assert cactus("replay", "r", "--events", "-").out == exported.read_text()
    assert cactus("export", "r", "-o", str(tmp_path)).status == 2


async def test_a_continuation_tells_what_is_new_alone(runs: Runs, tmp_path: Path) -> None:
    context = settings(tmp_path, "classic")
    document = await last(runs.start(Context.checked(**{**context.model_dump(), "max_calls": 7}), "the task", "r"))
    assert document["status"] == "limited"
    first = await runs.events("r")
    again = [event async for event in runs.resume(context, "r")]
    told = await runs.events("r")
    assert told == [*first, *again]
    assert [event["session"] for event in told if event["event"] == "run"] == [1, 2]
    assert [event["id"] for event in told] == list(range(1, len(told) + 1))
    assert Counter(e["frame"] for e in told if e["event"] == "frame").most_common(1)[0][1] == 1
    whole = {
        json.dumps({k: v for k, v in e.items() if k not in ("id", "time", "seconds")})
        for e in [event async for event in runs.start(context, "the task", "whole")]
        if e["event"] not in ("run", "end")
    }
    now = {json.dumps({k: v for k, v in e.items() if k not in ("id", "time", "seconds")}) for e in told}
    assert whole <= now


async def test_a_fork_tells_all_and_says_which_calls_it_was_spared(runs: Runs, tmp_path: Path) -> None:
    context = settings(tmp_path)
    await last(runs.start(context, "the task", "r"))
    document = await last(runs.fork(context, "r", "f", Change("0.1.1", answer="42")))
    calls = [event for event in await runs.events("f") if event["event"] == "call"]
    assert sum(not call["saved"] for call in calls) == document["usage"]["calls"]
    assert any(call["saved"] for call in calls)


def test_the_log_gives_each_event_once_and_counts_equal_ones() -> None:
    log = EventLog()
    counts: dict[str, int] = {}
    event = {"event": "wait", "frame": "0", "seconds": 1.0}
    assert [(log.tell("a", event, counts) or {}).get("id") for _ in range(3)] == [1, 2, 3]
    assert log.tell("a", event, {}) is None  # the step is done over
    assert (log.tell("b", event, {}) or {})["id"] == 4


async def test_a_run_without_events_says_so(runs: Runs, tmp_path: Path) -> None:
    await runs.store.add("old", "the task", {"profile": "roma"}, {"frames": 1, "calls": 1, "steps": 1})
    with pytest.raises(UsageError, match="saved by a release that kept none"):
        await runs.events("old")


def test_a_damaged_event_is_named(cactus: Cactus, tmp_path: Path) -> None:
    cactus("solve", "t", "--run-id", "r", "--model", cactus.script(default="ok"))
    with sqlite3.connect(cactus.folder / "runs.db") as connection:
        connection.execute("UPDATE cactus_events SET content = ? WHERE id = 3", (zlib.compress(b"{"),))
    assert "event 3 is damaged: restore the database from a copy" in cactus("export", "r").err


async def test_python_reads_events(tmp_path: Path) -> None:
    model = ScriptedChatModel.from_script({"rules": RULES})
    solver = RecursiveTaskSolver.roma(model, db=tmp_path / "r.db")
    live = [event async for event in solver.astream("the task", run_id="r")]
    assert await solver.aevents("r") == live
    unkept = RecursiveTaskSolver.roma(model)
    told = [event async for event in unkept.astream("the task")]
    assert Counter(event["event"] for event in told) == Counter(event["event"] for event in live)


# --- exports ----------------------------------------------------------------------------------------------------------


def test_training_records_have_what_was_asked_said_and_judged(cactus: Cactus, tmp_path: Path) -> None:
    model = f"scripted:{script(tmp_path)}"
    cactus("solve", "the task", "--model", model, "--run-id", "r")
    cactus("solve", "another", "--model", model, "--run-id", "s")
    records = [json.loads(line) for line in cactus("export", "r", "s", "--format", "training").out.splitlines()]
    assert {record["run"] for record in records} == {"r", "s"}
    solved = [r for r in records if (r["run"], r["frame"], r["role"]) == ("r", "0.0", "solve")]
    assert [(r["attempt"], r["reward"], r["verdict"]["feedback"]) for r in solved] == [
        (1, 0.0, "too short"),
        (2, 1.0, ""),
    ]
    assert all(r["messages"] and r["reply"] for r in records)
    assert len({(r["run"], r["split"]) for r in records}) == 2
    assert {split(str(n)) for n in range(100)} == {"train", "validation", "test"}
    assert 700 < sum(split(f"task {n}") == "train" for n in range(1000)) < 900


def test_a_diagram_has_every_frame_and_names_no_markup(cactus: Cactus, tmp_path: Path) -> None:
    model = f"scripted:{script(tmp_path)}"
    cactus("solve", 'a "task" <b>\x1b[31m # |', "--model", model, "--run-id", "r")
    lines = cactus("export", "r", "--format", "mermaid").out.splitlines()
    assert lines[0] == "flowchart TD"
    assert '  f0["0 a #34;task#34; #60;b#62; #35; #124;"]' in lines
    assert "  f0_0 -.-> f0_2" in lines
    assert sum("-->" in line for line in lines) == 5
    assert cactus("export", "r", "r", "--format", "mermaid").status == 2


@pytest.mark.parametrize("profile", ["classic", "roma", "adaptive", "agent"])
def test_golden_events_and_views(cactus: Cactus, tmp_path: Path, profile: str) -> None:
    """The events of one run of each profile, one call at a time, and each text that is drawn from them."""
    place = agents.script(tmp_path, *agents.NESTED) if profile == "agent" else f"scripted:{script(tmp_path)}"
    judged = [] if profile == "agent" else ["-c", "atomizer=llm", "-c", "verifier=llm"]
    given = ["--profile", profile, "--model", place, "--run-id", "r", "--parallel", "1", *judged]
    task = "the task of auth.py and `store.py`" if profile == "adaptive" else "the task"
    assert cactus("solve", task, *given).status == 0
    events = [json.loads(line) for line in cactus("export", "r").out.splitlines()]
    views = {form: cactus("export", "r", "--format", form).out for form in ("jsonl", "mermaid", "training")}
    views["lines"] = "".join(f"{line}\n" for event in events if (line := plain_line(event)))
    views["tree"] = drawn(events)
    for view, text in views.items():
        told = text.replace(json.dumps(place)[1:-1], "scripted:script.yaml")
        told = re.sub(r'"(time|seconds|duration_ms)":[\d.e-]+', r'"\1":0', told)
        golden = GOLDEN / f"export-{profile}.{view}"
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(told, encoding="utf-8")
        assert told == golden.read_text(encoding="utf-8")


def drawn(events: list[dict[str, Any]]) -> str:
    """Return the live tree's last picture, the run as it stood in its middle above it."""
    console = Console(file=io.StringIO(), width=110, height=24, force_terminal=True, color_system=None)
    for until in (len(events) // 2, len(events)):
        tree = Tree()
        for event in events[:until]:
            tree.apply(event, 0.0)
        picture = Picture(tree, 99, lambda: 0.0)
        picture.ended = until == len(events)
        console.print(picture)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return re.sub("[\u2800-\u28ff]", "\u283f", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))
