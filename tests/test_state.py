"""The state: small, plain, never changed in place, the same after a resume; the stack's laws."""

import copy
import hashlib
import json
import os
import subprocess
import sys
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from frames.channels import append
from frames.frame import KINDS, child_result, root
from frames.stack import Op, Stack, apply, fold, found_so_far
from graph import RecursiveTaskSolver, Verdict, always_accept, build, make_graph
from graph.store import open_store
from nodes.models.scripted import ScriptedChatModel
from tests.agents import NESTED
from tests.worker import go_on

ROOT = Path(__file__).parents[1]
KILOBYTES_PER_FRAME = 40  # case 20: 500 frames in 20 MB


# --- case 20: the database is small and linear --------------------------------------------------------------


def answer(text: str) -> str:
    return text[-9:].ljust(5000, "x")


def classic(parts: list[str], saver: Any) -> RecursiveTaskSolver:
    return RecursiveTaskSolver(solver=answer, decomposer=lambda *about: parts, max_depth=1, checkpointer=saver)


def roma(parts: list[str], saver: Any) -> RecursiveTaskSolver:
    return RecursiveTaskSolver.roma(
        answer,
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda *about: parts,
        executors=dict.fromkeys([*KINDS, ""], answer),
        verifier=always_accept(),
        max_subtasks=None,
        checkpointer=saver,
    )


async def bytes_of(path: Path, frames: int, profile: Any) -> int:
    """Return the size of the database of a task of ``frames - 1`` parts: the largest stack there is."""
    async with open_store(path) as store:
        parts = [f"part {number}" for number in range(frames - 1)]
        with profile(parts, store.saver) as made:
            result = await made.asolve("the task")
        assert (result.success, result.frames) == (True, frames)
        await store.saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[attr-defined]
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


@pytest.mark.parametrize("profile", [classic, roma])
async def test_case_20_the_database_is_small_and_linear(tmp_path: Path, profile: Any) -> None:
    half, whole = [await bytes_of(tmp_path / f"{frames}.db", frames, profile) for frames in (50, 100)]
    assert whole < 100 * KILOBYTES_PER_FRAME * 1000
    assert whole / 100 < 1.05 * half / 50


# --- case 21: the same types after a resume -----------------------------------------------------------------


def in_process(*job: str) -> dict[str, Any]:
    """Do a job of ``tests.worker`` under strict msgpack, where a warning is an error."""
    command = [sys.executable, "-W", "error", "-m", "tests.worker"]
    env = os.environ | {"LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run(command, cwd=ROOT, env=env, input=" ".join(job), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def types_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: types_of(item) for key, item in value.items()}
    return [types_of(item) for item in value] if isinstance(value, list) else type(value)


async def test_case_21_the_same_types_after_a_resume(tmp_path: Path) -> None:
    where = str(tmp_path / "runs.db")
    stopped, resumed = in_process(where, "x", "stop"), in_process(where, "x", "resume")
    async with open_store(where) as store:
        whole = await go_on(store.saver, "whole", {"task": "the task"})
        resumed_here = await go_on(store.saver, "x", None)
    assert stopped["status"] is None
    assert len(stopped["stack"]) == 2
    assert types_of(resumed) == types_of(resumed_here) == types_of(whole)
    varying = {"started", "duration_ms"}
    assert {k: v for k, v in resumed.items() if k not in varying} == {
        k: v for k, v in whole.items() if k not in varying
    }


# --- case 22: the same text after a resume ------------------------------------------------------------------

ODD = "a\x00b\udc81c \u202eright\u202c \N{GRINNING FACE} \N{COMBINING ACUTE ACCENT} end"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_case_22_the_same_text_after_a_resume(tmp_path: Path) -> None:
    async def reply(prompt: str) -> str:
        return f"answer {ODD}"

    async def split(task: str, depth: int) -> list[str]:
        return [f"part {number} {ODD}" for number in range(2)]

    config: Any = {"configurable": {"thread_id": "x"}}
    seen: list[dict[str, Any]] = []
    for given_input in ({"task": ODD}, None):
        async with open_store(tmp_path / "runs.db") as store:
            made = RecursiveTaskSolver(solver=reply, decomposer=split, max_depth=1)
            options: Any = {"context": made.context, "durability": "sync", "stream_mode": "custom"}
            options["interrupt_after"] = ["aggregate"] if given_input else []
            seen += [event async for event in make_graph(store.saver).astream(given_input, config, **options)]
            values = (await make_graph(store.saver).aget_state(config)).values
            if given_input:
                kept = [*found_so_far(values["stack"]), values["stack"][0]]
    answers = [event["answer"] for event in seen if event["event"] == "answer"]
    tasks = [event["task"] for event in seen if event["event"] == "frame"]
    assert [digest(frame["answer"]) for frame in kept] == [digest(answer) for answer in answers]
    assert [digest(frame["task"]) for frame in kept] == [digest(task) for task in [*tasks[1:], tasks[0]]]
    assert digest(values["output"]) == digest(answers[-1])
    assert values["output"] == f"answer {ODD}".replace("\x00", "\ufffd").replace("\udc81", "\ufffd")


# --- plain values, never changed in place -------------------------------------------------------------------


class Watching(InMemorySaver):
    """A saver that fails where what it was given before has changed since."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, str]] = []

    def watch(self, value: Any) -> None:
        for earlier, was in self.seen:
            assert repr(earlier) == was
        self.seen.append((value, repr(value)))

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        self.watch(checkpoint["channel_values"])
        return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.watch(writes)
        await super().aput_writes(config, writes, task_id, task_path)


def eventful() -> RecursiveTaskSolver:
    """Return a solver whose runs pass through every node, a retry among them."""
    parts: dict[str, list[str]] = {"t": ["a", "b", "c"], "b": ["b1", "b2"]}
    return RecursiveTaskSolver(
        solver=lambda prompt: f"re: {prompt}",
        decomposer=lambda task, depth: parts.get(task, []),
        verifier=lambda task, result, attempt: Verdict(task not in {"a", "b2"} or attempt > 1, "why"),
        max_depth=3,
        feedback_on_retry=True,
    )


async def run_eventful(saver: InMemorySaver) -> list[dict[str, Any]]:
    """Return the state at every step of an eventful run."""
    app, config = make_graph(saver), {"configurable": {"thread_id": "x"}}
    output = await app.ainvoke({"task": "t"}, config, context=eventful().context, durability="sync")  # type: ignore[arg-type]
    assert output["success"]
    return [snapshot.values async for snapshot in app.aget_state_history(config)]  # type: ignore[arg-type]


async def run_agents(saver: InMemorySaver) -> list[dict[str, Any]]:
    """Return the state at every step of a run of nested agents."""
    context = RecursiveTaskSolver.agent(ScriptedChatModel.from_script({"rules": NESTED})).context.for_run()
    app, config = make_graph(saver, store=InMemoryStore()), {"configurable": {"thread_id": "y"}}
    output = await app.ainvoke({"task": "t"}, config, context=context, durability="sync")  # type: ignore[arg-type]
    await context.resources.close()
    assert output["success"]
    return [snapshot.values async for snapshot in app.aget_state_history(config)]  # type: ignore[arg-type]


async def run_adaptive(saver: InMemorySaver) -> list[dict[str, Any]]:
    """Return the state at every step of a run whose plan follows from findings."""
    context = RecursiveTaskSolver.adaptive(answer, investigator="text", verifier=always_accept()).context.for_run()
    app, config = make_graph(saver), {"configurable": {"thread_id": "z"}}
    task = {"task": "Review auth.py and store.py"}
    output = await app.ainvoke(task, config, context=context, durability="sync")  # type: ignore[arg-type]
    await context.resources.close()
    assert output["success"]
    return [snapshot.values async for snapshot in app.aget_state_history(config)]  # type: ignore[arg-type]


async def test_the_state_is_plain_json_at_every_step() -> None:
    saver = InMemorySaver()
    states = [*await run_eventful(saver), *await run_agents(saver), *await run_adaptive(saver)]
    assert len(states) > 30
    stored = [plainly(saved.checkpoint["channel_values"]) async for saved in saver.alist(None)]
    for values in [*states, *stored]:
        assert json.loads(json.dumps(values)) == values


def plainly(values: dict[str, Any]) -> dict[str, Any]:
    """Return stored values, LangGraph's own mark of a whole delta channel (a tuple of one) taken off."""
    return {name: value[0] if isinstance(value, tuple) else value for name, value in values.items()}


async def test_what_was_saved_is_never_changed() -> None:
    saver = Watching()
    await run_eventful(saver)
    await run_agents(saver)
    await run_adaptive(saver)
    assert len(saver.seen) > 50


async def test_no_node_changes_the_state_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = set()

    def watched(function: Any) -> Any:
        async def run(state: Any, runtime: Any) -> Any:
            before = copy.deepcopy(state)
            update = await function(state, runtime)
            assert state == before
            visited.add(function.__name__)
            return update

        run.__name__ = function.__name__
        return run

    nodes = {name: watched(function) for name, function in build._NODES.items()}
    monkeypatch.setattr(build, "_NODES", nodes)
    await run_eventful(InMemorySaver())
    await run_agents(InMemorySaver())
    await run_adaptive(InMemorySaver())
    assert visited == set(nodes) - {"approve"}  # that one needs a person: tests/test_approve.py


# --- the laws of the stack ----------------------------------------------------------------------------------


def possible(stack: Stack, size: int) -> list[Op]:
    """Return operations that may follow on ``stack``."""
    if not stack:
        return [{"op": "push", "frame": root("the task")}]
    top = stack[-1]
    ops: list[Op] = [{"op": "revise", "fields": {"phase": "verify", "answer": f"answer {size}"}}, {"op": "settle"}]
    ops.append({"op": "extend", "lists": {"turns": [{"by": "cell", "text": f"turn {size}"}]}})
    if not top["plan"]:
        plan = [
            {"id": str(number), "task": f"{top['task']}/{number}", "kind": None, "depends_on": []}
            for number in range(size % 3 + 1)
        ]
        ops += [{"op": "revise", "fields": {"plan": plan}}] * 2
    if len(top["results"]) < len(top["plan"]):
        ops += [{"op": "descend"}] * 3
    return ops if size % 17 else [{"op": "reset"}]


@st.composite
def histories(draw: st.DrawFn) -> list[Op]:
    """Draw a valid sequence of operations that starts on an empty stack."""
    stack: Stack = []
    ops: list[Op] = []
    for size in draw(st.lists(st.integers(0, 1000), max_size=40)):
        options = possible(stack, size)
        ops.append(options[size % len(options)])
        stack = apply(stack, ops[-1])
    return ops


def batches(ops: list[Op], sizes: list[int]) -> list[list[Op]]:
    """Return ``ops`` as writes of the given sizes, the rest as one."""
    cuts = [0, *(min(end, len(ops)) for end in accumulate(sizes)), len(ops)]
    return [ops[start:end] for start, end in pairwise(cuts)]


sizes = st.lists(st.integers(0, 5), max_size=12)


@given(histories(), sizes, st.integers(0, 12))
def test_folding_does_not_depend_on_the_batches(ops: list[Op], sizes: list[int], cut: int) -> None:
    writes = batches(ops, sizes)
    assert fold(fold([], writes[:cut]), writes[cut:]) == fold([], writes) == fold([], [ops])


@given(histories(), sizes)
def test_folding_changes_nothing_that_it_is_given(ops: list[Op], sizes: list[int]) -> None:
    stack: Stack = []
    for write in batches(ops, sizes):
        given_stack, given_write = copy.deepcopy(stack), copy.deepcopy(write)
        after = fold(stack, [write])
        assert (stack, write) == (given_stack, given_write)
        stack = after


@given(histories())
def test_depth_ids_and_results_agree_at_every_step(ops: list[Op]) -> None:
    for stack in accumulate(ops, apply, initial=[]):
        assert [frame["depth"] for frame in stack] == list(range(len(stack)))
        for parent, child in pairwise(stack):
            assert child["id"] == f"{parent['id']}.{len(parent['results'])}"
            assert child["task"] == parent["plan"][len(parent["results"])]["task"]
        for frame in stack:
            assert [result["frame"] for result in frame["results"]] == [
                f"{frame['id']}.{number}" for number in range(len(frame["results"]))
            ]
            assert len(frame["results"]) <= len(frame["plan"])


@given(histories())
def test_a_settled_answer_is_delivered_to_the_parent(ops: list[Op]) -> None:
    stack: Stack = []
    for op in ops:
        after = apply(stack, op)
        if op["op"] == "settle" and len(stack) > 1:
            done, parent = stack[-1], after[len(stack) - 2]
            delivered = child_result(done)
            assert parent["results"] == [*stack[-2]["results"], delivered]
            last = len(parent["results"]) == len(parent["plan"])
            assert len(after) == len(stack) - last
            assert (parent["phase"] == "aggregate") == last
        stack = after


@given(st.lists(st.integers()), st.lists(st.lists(st.integers())), st.integers(0, 10))
def test_appending_does_not_depend_on_the_batches(value: list[int], writes: list[list[int]], cut: int) -> None:
    before = copy.deepcopy((value, writes))
    assert append(append(value, writes[:cut]), writes[cut:]) == append(value, writes)
    assert append(value, writes) == [*value, *chain(*writes)]
    assert (value, writes) == before
