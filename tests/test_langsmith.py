"""Traces in LangSmith, against a local stub of its ingest endpoint: names, tags and metadata by frame."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Cactus
from tests.servers import Collector, CollectorHandler, LangSmith, LangSmithHandler, serve

ROOT = Path(__file__).parent.parent

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


FORKING = """
from langchain_core.tracers.langchain import wait_for_all_tracers
from graph import RecursiveTaskSolver
from nodes.models.scripted import ScriptedChatModel

def plan(*tasks):
    named = [(task.replace(" ", "-"), task) for task in tasks]
    return {"subtasks": [{"id": id_, "task": task, "kind": "think", "depends_on": []} for id_, task in named]}

script = {"default": "ok", "rules": [
    {"role": "atomize", "depth": 0, "json": {"atomic": False}},
    {"role": "atomize", "frame": "0.1", "json": {"atomic": False}},
    {"role": "atomize", "json": {"atomic": True}},
    {"role": "decompose", "depth": 0, "json": plan("part a", "part b")},
    {"role": "decompose", "json": plan("read b", "weigh b")},
    {"role": "verify", "frame": "0.0", "attempt": 1, "json": {"accepted": False, "feedback": "too short"}},
]}
model = ScriptedChatModel.from_script(script)
prices = {"scripted": {"input": 1, "output": 2}}
with RecursiveTaskSolver.roma(model, db="runs.db", max_depth=2, prices=prices) as solver:
    result = solver.solve("the task", run_id="forked")
assert result.success
wait_for_all_tracers()
"""

CALLABLE = """
from langchain_core.tracers.langchain import wait_for_all_tracers
from graph import RecursiveTaskSolver

def parrot(prompt): return "an answer"

prices = {"parrot": {"input": 4, "output": 8}}
solver = RecursiveTaskSolver(solver=parrot, decomposer=lambda task, depth: [], prices=prices)
assert solver.solve("12345678", run_id="parrot").success
wait_for_all_tracers()
"""

MANY = """
import sys
from langchain_core.tracers.langchain import wait_for_all_tracers
import graph.tracer
from graph import RecursiveTaskSolver

graph.tracer.MOST_RUNS = int(sys.argv[1])
solver = RecursiveTaskSolver(
    solver=lambda prompt: "an answer", atomizer=lambda task, depth: depth > 1,
    decomposer=lambda task, depth: [f"{task}.{n}" for n in range(5)],
)
result = solver.solve("t", run_id="many")
assert (result.status, result.frames) == ("succeeded", 31)
wait_for_all_tracers()
"""

OLD_LIMITS = {"use_multipart_endpoint": False, "size_limit": 100, "size_limit_bytes": 20_000_000}
OLD_LIMITS |= {"scale_up_qsize_trigger": 1000, "scale_up_nthreads_limit": 2, "scale_down_nempty_trigger": 4}


class OldLangSmith(LangSmithHandler):
    """Takes runs in JSON batches only, as servers of one's own may."""

    def info(self) -> dict[str, Any]:
        return {"version": "0.5", "batch_ingest_config": OLD_LIMITS}


def trace(
    tracing: str,
    program: str = PROGRAM,
    handler: type[LangSmithHandler] = LangSmithHandler,
    args: tuple[str, ...] = (),
    folder: Path | None = None,
    **more: str,
) -> LangSmith:
    state = LangSmith()
    with serve(handler, state) as address:
        where = {"LANGSMITH_TRACING": tracing, "LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "x"}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **where, **more}
        command = [sys.executable, "-c", program, *args]
        subprocess.run(command, env=environment, check=True, timeout=60, cwd=folder)
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
        run["name"]
        for run in sorted(runs.values(), key=lambda run: run["dotted_order"])
        if "attempt" in run["name"] and run["run_type"] == "chain"
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


def whole(runs: dict[str, dict[str, Any]]) -> None:
    """Check that a trace is one tree, of runs that ended."""
    assert len([run for run in runs.values() if not run.get("parent_run_id")]) == 1
    for run in runs.values():
        assert run["end_time"], run["name"]
        if parent := run.get("parent_run_id"):
            assert runs[parent]["dotted_order"] == run["dotted_order"].rpartition(".")[0]


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> tuple[LangSmith, Path]:
    folder = tmp_path_factory.mktemp("forked")
    return trace("true", FORKING, folder=folder), folder


def test_the_tree_is_whole_and_says_so(forked: tuple[LangSmith, Path], runs: dict[str, dict[str, Any]]) -> None:
    for trace_of, root in ((runs, "cactus thread-7"), (forked[0].runs, "cactus forked")):
        whole(trace_of)
        assert named(trace_of, root)["extra"]["metadata"]["trace_complete"] is True
        assert "trace-cut" not in named(trace_of, root)["tags"]
        assert not [run for run in trace_of.values() if run["name"] in ("route", "__start__")]


def test_verdicts_are_feedback_on_the_answers(forked: tuple[LangSmith, Path]) -> None:
    state = forked[0]
    told = [
        (state.runs[each["run_id"]]["name"], each["key"], each["score"], each.get("comment"))
        for each in state.feedback.values()
    ]
    assert sorted(told) == [
        ("aggregate 0 attempt 1", "accepted", 1, None),
        ("aggregate 0.1 attempt 1", "accepted", 1, None),
        ("solve 0.0 attempt 1", "accepted", 0, "too short"),
        ("solve 0.0 attempt 2", "accepted", 1, None),
        ("solve 0.1.0 attempt 1", "accepted", 1, None),
        ("solve 0.1.1 attempt 1", "accepted", 1, None),
    ]
    for each in state.feedback.values():
        judge = state.runs[each["feedback_source"]["metadata"]["__run"]["run_id"]]
        assert judge["name"].startswith("verify")
        assert each["session_id"] == state.projects["default"]["id"]


def test_model_runs_have_their_tokens_and_costs(forked: tuple[LangSmith, Path], cactus: Cactus) -> None:
    state, folder = forked
    used = [run["extra"]["metadata"]["usage_metadata"] for run in state.runs.values() if run["run_type"] == "llm"]
    account = cactus("show", "forked", "--json", "--db", str(folder / "runs.db")).document["usage"]
    assert len(used) == account["calls"]
    for tokens in ("input_tokens", "output_tokens"):
        assert sum(each[tokens] for each in used) == account[tokens]
    assert all(each["total_cost"] == pytest.approx(each["input_cost"] + each["output_cost"]) for each in used)
    assert sum(each["input_cost"] for each in used) == pytest.approx(account["input_tokens"] / 1_000_000)
    assert sum(each["output_cost"] for each in used) == pytest.approx(2 * account["output_tokens"] / 1_000_000)


def test_a_callables_calls_are_model_runs_with_estimated_tokens() -> None:
    runs = trace("true", CALLABLE).runs
    whole(runs)
    [call] = [run for run in runs.values() if run["run_type"] == "llm"]
    metadata = call["extra"]["metadata"]
    assert (call["name"], metadata["model"], metadata["usage_estimated"]) == ("solve 0 attempt 1", "parrot", True)
    assert (metadata["usage_metadata"]["input_tokens"], metadata["usage_metadata"]["output_tokens"]) == (2, 3)
    assert metadata["usage_metadata"]["total_cost"] == pytest.approx((2 * 4 + 3 * 8) / 1_000_000)


@pytest.mark.parametrize("most", [40, 10_000])
def test_a_large_trace_is_whole_or_says_where_it_was_cut(most: int) -> None:
    runs = trace("true", MANY, args=(str(most),)).runs
    whole(runs)
    root = named(runs, "cactus many")
    metadata = root["extra"]["metadata"]
    assert metadata["trace_complete"] is (len(runs) < most)
    assert ("trace-cut" in root["tags"]) is (len(runs) == most)
    if len(runs) == most:
        at = metadata["trace_cut"].split()[3]
        last = max(runs.values(), key=lambda run: run["dotted_order"])["extra"]["metadata"]["frame"]
        assert [int(part) for part in at.split(".")] >= [int(part) for part in last.split(".")]
        assert metadata["runs_left_out"] > 0


def test_any_step_is_found_from_its_trace(forked: tuple[LangSmith, Path], cactus: Cactus) -> None:
    state, folder = forked
    db = ("--db", str(folder / "runs.db"))
    steps = [run for run in state.runs.values() if "checkpoint_id" in run["extra"]["metadata"]]
    assert len(steps) > 15
    for run in steps:
        about = run["extra"]["metadata"]
        told = cactus("replay", "--from-trace", f"{about['thread_id']}:{about['checkpoint_id']}", *db, "--json")
        assert told.document["checkpoint_ns"] == about["checkpoint_ns"]
        assert told.document["next"] == [about["role"]]
        if told.document["stack"]:  # the first step of all puts the root there
            top = told.document["stack"][-1]
            assert (top["id"], top["depth"], top["attempt"]) == (about["frame"], about["depth"], about["attempt"])
    inner = named(state.runs, "solve 0.1.0 attempt 1")["extra"]["metadata"]
    told = cactus("replay", "--from-trace", f"forked:{inner['checkpoint_id']}", *db)
    assert told.out.startswith("0.1.0  solve, attempt 1")
    assert "branch 0.1.0, before solve" in told.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--from-trace", "forked"), "must be THREAD:CHECKPOINT"),
        (("--from-trace", "forked:1f1e"), "no checkpoint '1f1e'"),
        (("RUN", "--from-trace", "forked:1f1e"), "give RUN"),
        ((), "give RUN"),
    ],
)
def test_a_step_that_is_not_there_is_told(cactus: Cactus, args: tuple[str, ...], said: str) -> None:
    told = cactus("replay", *args)
    assert (told.status, told.out) == (2, "")
    assert said in told.err


def test_a_replay_sends_nothing(forked: tuple[LangSmith, Path]) -> None:
    argv = ["cactus", "replay", "forked", "--db", "runs.db"]
    program = f"import sys; sys.argv = {argv!r}; from studio.main import run; run()"
    assert trace("true", program, folder=forked[1]).requests == []


def test_a_run_is_unaffected_by_an_endpoint_that_is_down() -> None:
    program = MANY.replace("wait_for_all_tracers()", "print(len(result.traces))")
    where = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9", "LANGSMITH_API_KEY": "x"}
    command = [sys.executable, "-c", program, "10000"]
    told = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) > 60


def test_traces_go_to_an_opentelemetry_collector() -> None:
    state = Collector()
    with serve(CollectorHandler, state) as address:
        where = {"LANGSMITH_TRACING": "true", "LANGSMITH_TRACING_MODE": "otel", "OTEL_EXPORTER_OTLP_ENDPOINT": address}
        where |= {"LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
        subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **where}, check=True, timeout=60)
    assert set(state.requests) == {"/v1/traces"}
    spans = {span.span_id: {each.key: each.value for each in span.attributes} for span in state.spans}
    roots = [span for span in state.spans if span.parent_span_id not in spans]
    assert [span.name for span in roots] == ["cactus thread-7"]
    names = {about["langsmith.trace.name"].string_value for about in spans.values()}
    assert {"solve 0.1 attempt 2", "verify 0 attempt 1"} <= names
    for about in spans.values():
        assert about["langsmith.metadata.thread_id"].string_value == "thread-7"
    calls = [about for about in spans.values() if "gen_ai.usage.output_tokens" in about]
    assert [about["gen_ai.usage.output_tokens"].int_value for about in calls] == [3, 3, 3, 3]
