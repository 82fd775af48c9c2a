"""Traces in LangSmith, against a local stub of its ingest endpoint: names, tags and metadata by frame."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.servers import LangSmith, LangSmithHandler, serve

TASK = "the task, in words of its own"

PROGRAM = f"""
from langchain_core.tracers.langchain import wait_for_all_tracers
from graph import RecursiveTaskSolver, Verdict
from nodes.models.scripted import ScriptedChatModel

# slow enough that a run is sent when it starts, and again when it ends
script = {{"default": "an answer", "latency": 0.4}}
model = ScriptedChatModel.from_script(script, folder=__import__("pathlib").Path("."))
solver = RecursiveTaskSolver(
    solver=model, decomposer=lambda task, depth: ["one", "two"] if depth == 0 else [],
    verifier=lambda task, result, attempt: Verdict(attempt > 1 or task != "two"),
)
assert solver.solve({TASK!r}, run_id="thread-7").success
solver.close()
wait_for_all_tracers()
"""


AGAIN = """
from langchain_core.tracers.langchain import wait_for_all_tracers
from langgraph.checkpoint.memory import InMemorySaver
from graph import RecursiveTaskSolver, Verdict

solver = RecursiveTaskSolver(
    solver=lambda prompt: "an answer", decomposer=lambda task, depth: ["one"] if task == "first" else [],
    verifier=lambda task, result, attempt: Verdict(task != "one"), checkpointer=InMemorySaver(),
)
assert not solver.solve("first", run_id="thread-8").success
assert solver.solve("second", run_id="thread-8").success
wait_for_all_tracers()
"""


OLD_LIMITS = {"use_multipart_endpoint": False, "size_limit": 100, "size_limit_bytes": 20_000_000}
OLD_LIMITS |= {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 2, "scale_down_nempty_trigger": 4}


class OldLangSmith(LangSmithHandler):
    """Takes runs in JSON batches only, as servers of one's own may."""

    def do_GET(self) -> None:  # noqa: N802
        self.server.state.requests.append(self.path)  # type: ignore[attr-defined]
        self.answer(200, json.dumps({"version": "0.5", "batch_ingest_config": OLD_LIMITS}).encode())


def trace(
    tracing: str, program: str = PROGRAM, handler: type[LangSmithHandler] = LangSmithHandler, **more: str
) -> LangSmith:
    state = LangSmith()
    with serve(handler, state) as address:
        where = {"LANGSMITH_TRACING": tracing, "LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "x"}
        subprocess.run([sys.executable, "-c", program], env={**os.environ, **where, **more}, check=True, timeout=60)
    return state


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    return trace("true").runs


def named(runs: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    found = [run for run in runs.values() if run["name"] == name]
    assert found, sorted({run["name"] for run in runs.values()})
    return found[0]


@pytest.mark.parametrize(
    ("name", "frame", "depth", "attempt"),
    [
        ("atomize 0 attempt 1", "0", 0, 1),
        ("decompose 0 attempt 1", "0", 0, 1),
        ("solve 0.0 attempt 1", "0.0", 1, 1),
        ("solve 0.1 attempt 2", "0.1", 1, 2),
        ("retry 0.1 attempt 1", "0.1", 1, 1),
        ("verify 0.1 attempt 2", "0.1", 1, 2),
        ("aggregate 0 attempt 1", "0", 0, 1),
    ],
)
def test_a_nodes_run_is_described_by_its_frame(
    runs: dict[str, dict[str, Any]], name: str, frame: str, depth: int, attempt: int
) -> None:
    run = next(r for r in runs.values() if r["name"] == name and r["run_type"] == "chain")
    assert f"depth:{depth}" in run["tags"]
    metadata = run["extra"]["metadata"]
    assert (metadata["frame"], metadata["role"], metadata["attempt"]) == (frame, name.split()[0], attempt)
    assert metadata["thread_id"] == "thread-7"
    assert metadata["checkpoint_id"]


def test_a_models_run_says_on_whose_behalf(runs: dict[str, dict[str, Any]]) -> None:
    calls = [run for run in runs.values() if run["run_type"] == "llm"]
    assert sorted(run["name"] for run in calls) == [
        "aggregate 0 attempt 1",
        "solve 0.0 attempt 1",
        "solve 0.1 attempt 1",
        "solve 0.1 attempt 2",
    ]
    for run in calls:
        metadata = run["extra"]["metadata"]
        assert run["name"] == f"{metadata['role']} {metadata['frame']} attempt {metadata['attempt']}"


def test_the_thread_groups_the_whole_run(runs: dict[str, dict[str, Any]]) -> None:
    assert {run["extra"]["metadata"].get("thread_id") for run in runs.values()} == {"thread-7"}
    assert len({run["trace_id"] for run in runs.values()}) == 1
    assert named(runs, "cactus thread-7")["run_type"] == "chain"


def test_a_tasks_text_is_sent_as_input_only(runs: dict[str, dict[str, Any]]) -> None:
    assert TASK in str(named(runs, "cactus thread-7")["inputs"])
    for run in runs.values():
        assert TASK not in str([run["name"], run.get("tags"), run["extra"]])


def test_a_second_task_on_a_thread_is_described_anew() -> None:
    runs = trace("true", AGAIN).runs
    nodes = [
        run["name"] for run in sorted(runs.values(), key=lambda run: run["dotted_order"]) if "attempt" in run["name"]
    ]
    roles = ("atomize", "decompose", "solve", "verify")
    assert nodes[nodes.index("verify 0.0 attempt 2") + 1 :] == [f"{role} 0 attempt 1" for role in roles]


@pytest.mark.parametrize(
    ("handler", "more", "path"),
    [
        (LangSmithHandler, {"LANGSMITH_DISABLE_RUN_COMPRESSION": "true"}, "/runs/multipart"),
        (OldLangSmith, {}, "/runs/batch"),
    ],
    ids=["plain", "batch"],
)
def test_other_ways_in_get_the_same_runs(
    runs: dict[str, dict[str, Any]], handler: type[LangSmithHandler], more: dict[str, str], path: str
) -> None:
    state = trace("true", handler=handler, **more)
    assert path in state.requests
    assert sorted(run["name"] for run in state.runs.values()) == sorted(run["name"] for run in runs.values())


def test_nothing_is_sent_where_tracing_is_off() -> None:
    assert trace("false").requests == []
