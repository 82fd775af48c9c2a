"""Traces in LangSmith, against a local stub of its ingest endpoint: names, tags and metadata by frame."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.servers import LangSmith, LangSmithHandler, serve

PROGRAM = """
from langchain_core.tracers.langchain import wait_for_all_tracers
from graph import RecursiveTaskSolver, Verdict
from nodes.models.scripted import ScriptedChatModel

model = ScriptedChatModel.from_script({"default": "an answer"}, folder=__import__("pathlib").Path("."))
solver = RecursiveTaskSolver(
    solver=model, decomposer=lambda task, depth: ["one", "two"] if depth == 0 else [],
    verifier=lambda task, result, attempt: Verdict(attempt > 1 or task != "two"),
)
assert solver.solve("the task", run_id="thread-7").success
solver.close()
wait_for_all_tracers()
"""


def trace(tracing: str) -> LangSmith:
    state = LangSmith()
    with serve(LangSmithHandler, state) as address:
        environment = {
            **os.environ,
            "LANGSMITH_TRACING": tracing,
            "LANGSMITH_ENDPOINT": address,
            "LANGSMITH_API_KEY": "x",
        }
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=60)
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
    assert {run["extra"]["metadata"]["frame"] for run in calls} == {"0", "0.0", "0.1"}


def test_the_thread_groups_the_whole_run(runs: dict[str, dict[str, Any]]) -> None:
    assert {run["extra"]["metadata"].get("thread_id") for run in runs.values()} == {"thread-7"}
    assert len({run["trace_id"] for run in runs.values()}) == 1
    assert named(runs, "cactus thread-7")["run_type"] == "chain"


def test_nothing_is_sent_where_tracing_is_off() -> None:
    assert trace("false").requests == []
