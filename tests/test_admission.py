"""Admission: what was begun is answered, checked and combined, whatever the limits; resume and replay agree."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frames.frame import KINDS, Frame, Subtask, child, child_result, root
from frames.stack import Stack, descend, fold, revise, settle
from graph import RecursiveTaskSolver, Verdict
from graph.runs import Runs
from graph.store import open_store
from nodes.budget import Budget, Least
from nodes.component import least_calls
from nodes.context import Context
from tests.cli import Cactus
from tests.test_exactness import RULES, calls, last, script
from tests.trees import Node, solver

NEEDED = 23
"""Calls of a run of ``RULES`` without limits."""

COMPARED = ("status", "success", "output", "partial", "gaps", "traces", "frames")


# --- shares ---------------------------------------------------------------------------------------------------


def least(solve: int = 1, aggregate: int = 1, verify: int = 1) -> Least:
    return Least(lambda kind: 2 if kind == "search" else solve, aggregate, verify)


def planned(*kinds: Any) -> tuple[Frame, list[Subtask]]:
    plan = [Subtask(id=str(n), task=f"part {n}", kind=kind, depends_on=[]) for n, kind in enumerate(kinds)]
    return Frame({**root("whole"), "plan": plan, "phase": "fork"}), plan


def test_a_task_is_solved_and_verified_and_a_plan_combined_too() -> None:
    budget = Budget(least())
    budget.enter([root("whole")])
    assert (budget.kept(), budget.left("0", "solve"), budget.left("0", "decompose")) == (2, 1, 0)
    frame, plan = planned("think", "search", "write")
    assert budget.needed(subtask["kind"] for subtask in plan) == 2 + 2 + 3 + 2
    budget.plan(frame, plan)
    assert (budget.kept(), budget.kept(besides="0")) == (9, 7)


def test_a_share_is_drawn_on_by_its_own_role_and_ends_with_its_frame() -> None:
    budget = Budget(least())
    frame, plan = planned("think", "search")
    budget.plan(frame, plan)
    for role, left in (("solve", 6), ("decompose", 6), ("solve", 5), ("solve", 5), ("verify", 4)):
        budget.begin("0.1", role)
        assert budget.kept() == left
    budget.end("0.0")
    assert budget.kept() == 2
    budget.end("0")
    assert budget.kept() == 0


def test_a_task_that_is_split_gives_its_share_for_those_of_its_plan() -> None:
    budget = Budget(least())
    budget.plan(*planned("think", "think"))
    inner = Frame({**child(planned("think", "think")[0], 0), "plan": planned("think")[1], "phase": "fork"})
    budget.enter([inner])
    assert budget.kept() == 2 + (2 + 2) + 2
    budget.end("0.0")
    assert budget.kept() == 2 + 2


def test_what_a_journal_holds_counts_for_tasks_and_for_combinations_once_it_is_recalled() -> None:
    paid = [("0.0", "solve"), ("0.0", "verify"), ("0", "aggregate"), ("0", "verify")]
    budget = Budget(least(), paid)
    budget.enter([planned("think", "think")[0]])
    assert (budget.kept(), budget.left("0.0", "solve"), budget.left("0", "aggregate")) == (4, 0, 1)
    budget.see("0", "aggregate")
    assert (budget.left("0", "aggregate"), budget.left("0", "verify")) == (0, 1)


def test_nothing_is_kept_back_for_a_second_combination() -> None:
    frame, _ = planned("think")
    done = child_result(Frame({**child(frame, 0), "answer": "a"}))
    for fields, kept in (
        ({"phase": "aggregate"}, 2),
        ({"phase": "verify"}, 1),
        ({"phase": "retry"}, 0),
        ({"phase": "aggregate", "attempt": 2}, 0),
        ({"phase": "aggregate", "stale": []}, 0),
    ):
        budget = Budget(least())
        budget.enter([Frame({**frame, "results": [done], **fields})])  # type: ignore[typeddict-item]
        assert budget.kept() == kept, fields


def test_a_plan_that_waits_for_a_person_keeps_nothing_back() -> None:
    budget = Budget(least())
    budget.enter([Frame({**planned("think", "think")[0], "phase": "approve"})])
    assert budget.kept() == 2


@given(st.lists(st.sampled_from([None, *KINDS]), min_size=1, max_size=5), st.data())
def test_a_resumed_run_has_the_shares_of_the_one_that_was_stopped(kinds: list[Any], data: st.DataObject) -> None:
    budget, paid = Budget(least()), list[tuple[str, str]]()
    stack: Stack = revise([root("whole")], {"plan": planned(*kinds)[1]})
    budget.plan(stack[0], stack[0]["plan"])
    stack = descend(stack)
    for _ in range(data.draw(st.integers(0, len(kinds) - 1))):
        budget.enter(stack)
        for role in ("solve", "verify"):
            budget.begin(stack[-1]["id"], role)
            paid.append((stack[-1]["id"], role))
        budget.end(stack[-1]["id"])
        stack = settle(revise(stack, {"answer": "a"}))
    budget.enter(stack)
    resumed = Budget(least(), paid)
    resumed.enter(stack)
    assert (resumed.kept(), resumed.kept(besides="0")) == (budget.kept(), budget.kept(besides="0"))


def test_the_calls_to_reckon_with() -> None:
    parts = Context.checked(profile="roma", model="scripted:x").components
    kinds = [None, *KINDS]
    bare = [least_calls(parts.executor(kind), searches=False, attaches=False) for kind in kinds]
    with_tools = [least_calls(parts.executor(kind), searches=True, attaches=False) for kind in kinds]
    assert bare == [1, 1, 1, 2, 2]
    assert with_tools == [2, 2, 1, 2, 2]
    assert least_calls(lambda task: "", searches=True, attaches=True) == 0


def test_the_effect_of_a_limit_on_a_child_is_one_on_its_parents() -> None:
    frame, _ = planned("think", "think")
    limited = child_result(child(frame, 0), failed="no", limited=True)
    delivered = fold([frame], [[{"op": "deliver", "results": [limited]}]])
    assert delivered[0].get("limited") is True
    above = descend(revise([frame], {"phase": "atomize"}))
    assert settle(above, failed="no", limited=True)[0].get("limited") is True
    assert settle(revise(above, {"limited": True, "answer": "a"}))[0].get("limited") is True
    assert "limited" not in settle(revise(above, {"answer": "a"}))[0]


# --- calls ----------------------------------------------------------------------------------------------------


def context_of(folder: Path, *rules: dict[str, Any], **settings: Any) -> Context:
    return Context.checked(profile="roma", model=f"scripted:{script(folder, *rules)}", **settings)


@pytest.mark.parametrize("parallel", [1, 4])
async def test_at_any_limit_what_was_planned_is_combined_and_replays_and_goes_on(tmp_path: Path, parallel: int) -> None:
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        free = context_of(tmp_path, parallel=parallel)
        whole = await last(runs.start(free, "the task", "whole"))
        assert whole["usage"]["calls"] == NEEDED
        for most in range(1, NEEDED + 1):
            (tmp_path / "calls.jsonl").write_text("")
            context = context_of(tmp_path, parallel=parallel, max_calls=most)
            events = [event async for event in runs.start(context, "the task", f"r{most}")]
            document = events[-1]["result"]
            assert len(calls(tmp_path)) == document["usage"]["calls"] <= most
            assert (document["status"] == "succeeded") == (most == NEEDED)
            if most < NEEDED:
                split = any(event["event"] == "plan" and event["frame"] == "0" for event in events)
                assert (document["success"], document["output"]) == (False, None)
                assert document["partial"] == ("all of the task" if split else "answer to the task")
                told = [(event["frame"], event["limit"]) for event in events if event["event"] == "limit"]
                assert told
                assert {frame for frame, _ in told} <= {gap.partition(":")[0] for gap in document["gaps"]}
            replayed = await runs.replay(context, f"r{most}")
            assert {name: document[name] for name in COMPARED} == {name: replayed.to_dict()[name] for name in COMPARED}
            resumed = await last(runs.resume(free, f"r{most}"))
            assert (resumed["status"], resumed["usage"]["repeated_calls"]) == ("succeeded", 0)
            assert {name: resumed[name] for name in ("output", "gaps")} == {
                name: whole[name] for name in ("output", "gaps")
            }
            assert len(calls(tmp_path)) == resumed["usage"]["calls"]
            assert (await runs.replay(free, f"r{most}")).output == whole["output"]


async def test_a_replay_works_a_limited_run_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph import runs as module

    async with open_store(tmp_path / "runs.db") as store:
        runs, context = Runs(store), context_of(tmp_path, max_calls=20)
        document = await last(runs.start(context, "the task", "run"))
        worked: list[Any] = []

        async def replayed(*args: Any, **options: Any) -> Any:
            worked.append(await real(*args, **options))
            return worked[-1]

        real = module.replayed
        monkeypatch.setattr(module, "replayed", replayed)
        await runs.replay(context, "run")
    assert {name: worked[0].to_dict()[name] for name in COMPARED} == {name: document[name] for name in COMPARED}


async def test_the_same_limits_refuse_the_same_plan_and_others_look_at_it_anew(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runs.db") as store:
        runs, context = Runs(store), context_of(tmp_path, max_calls=10)
        first = await last(runs.start(context, "the task", "run"))
        refused = "0: max_calls = 10 reached: 3 subtasks need at least 9 calls, 8 are left; solved directly"
        assert first["gaps"] == [refused]
        again = await last(runs.resume(context, "run"))
        assert {name: again[name] for name in COMPARED} == {name: first[name] for name in COMPARED}
        assert len(calls(tmp_path)) == 4
        [entry] = [entry for entry in await store.entries("run") if entry["key"].kind == "admission"]
        assert entry["asked"]["subtasks"] == 3
        assert entry["asked"]["limits"] == {
            "max_frames": 1000,
            "max_calls": 10,
            "max_tokens": None,
            "max_usd": None,
        }
        more = await last(runs.resume(context_of(tmp_path, max_calls=16), "run"))
        assert more["partial"] == "all of the task"
        assert len(calls(tmp_path)) <= 16
        back = await last(runs.resume(context_of(tmp_path, max_calls=15), "run"))
        assert back["partial"] == "all of the task", "a plan that was followed stays admitted"


def test_case_8_one_call_short(cactus: Cactus) -> None:
    model = cactus.script(*RULES)
    short = cactus("solve", "the task", "--model", model, "--max-calls", str(NEEDED - 1), "--run-id", "r", "--json")
    document = short.document
    assert (short.status, document["status"], document["success"], document["output"]) == (3, "limited", False, None)
    assert document["partial"] == "all of the task"
    assert document["gaps"]
    assert f"go on with: cactus resume r --max-calls {2 * (NEEDED - 1)}" in short.err
    assert cactus("replay", "r").status == 3
    again = cactus("resume", "r", "--max-calls", str(2 * (NEEDED - 1)), "--json")
    assert (again.status, again.document["output"]) == (0, "all of the task")
    assert again.document["usage"]["repeated_calls"] == 0


def test_a_kill_at_any_write_of_a_limited_run_changes_nothing(tmp_path: Path) -> None:
    path = script(tmp_path)
    settings = {"profile": "roma", "parallel": 1, "max_calls": 16}
    command = [sys.executable, "-m", "tests.killing", str(tmp_path), path, json.dumps(settings), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["calls"] == 16
    assert told["points"] > 16
    assert not told["differs"]


# --- frames that fail, and what is left of them -----------------------------------------------------------------


def rejecting(**settings: Any) -> RecursiveTaskSolver:
    """Return a solver of three parts whose first answers are rejected."""
    return RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: [f"part {n}" for n in range(3)],
        verifier=lambda task, result, attempt: Verdict(task == "whole" or attempt > 1, "no"),
        parallel=1,
        **{"reuse": "off", **settings},
    )


def test_an_attempt_for_which_no_call_is_left_leaves_a_gap_and_its_siblings_are_combined() -> None:
    result = rejecting(max_calls=5).solve("whole")
    assert (result.status, result.partial, result.usage["calls"]) == ("limited", "an answer", 5)
    kept = "max_calls = 5 reached: what is left is kept back for what was begun"
    assert result.gaps == [f"0.1: {kept}", f"0.2: {kept}"]
    assert (rejecting(max_calls=7).solve("whole").status, rejecting().solve("whole").usage["calls"]) == ("succeeded", 7)


def test_none_of_whose_parts_has_an_answer_ends_at_its_limit() -> None:
    result = rejecting(max_calls=4).solve("whole")
    assert (result.status, result.partial) == ("limited", None)
    assert result.gaps[-1] == "0: none of its subtasks has an answer"


def test_where_a_failure_ends_the_run_a_limit_does_too() -> None:
    result = rejecting(max_calls=4, on_failure="fail").solve("whole")
    assert (result.status, result.usage["calls"]) == ("limited", 3 - 2)
    assert result.gaps[0].startswith("0.0: max_calls = 4 reached")
    assert [gap.partition(": ")[2][:9] for gap in result.gaps[1:]] == ["not begun", "not begun"]


def test_classic_ends_at_its_limit_as_its_seed_says() -> None:
    made = RecursiveTaskSolver(
        solver=lambda prompt: "an answer",
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: ["one", "two", "three"],
        max_calls=2,
        on_failure="partial",
    )
    result = made.solve("whole")
    assert (result.status, result.usage["calls"]) == ("limited", 2)
    assert result.gaps == ["0.2: max_calls = 2 reached"]


# --- the other limits -------------------------------------------------------------------------------------------


def test_the_limit_of_frames_solves_directly_and_combines() -> None:
    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        atomizer=lambda task, depth: depth > 1,
        decomposer=lambda task, depth: [f"{task} {n}" for n in range(3)],
        verifier=lambda task, result, attempt: Verdict.accept(),
        parallel=1,
        max_frames=8,
    )
    result = made.solve("whole")
    assert (result.status, result.partial, result.frames) == ("limited", "an answer", 7)
    assert result.gaps == [
        f"0.{n}: max_frames = 8 reached: 3 subtasks would make 10 frames; solved directly" for n in (1, 2)
    ]


@pytest.mark.parametrize("limit", ["max_tokens", "max_usd"])
async def test_tokens_and_money_are_kept_back_for_the_combination(tmp_path: Path, limit: str) -> None:
    free = context_of(tmp_path, parallel=1, prices={"*": {"input": 1000, "output": 1000}})
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        usage = (await last(runs.start(free, "the task", "whole")))["usage"]
        tokens = usage["input_tokens"] + usage["output_tokens"]
        used, split = {"max_tokens": tokens, "max_usd": usage["usd"]}[limit], 0
        for tenth in range(1, 11):
            most = max(1, round(used * tenth / 10)) if limit == "max_tokens" else used * tenth / 10
            context = context_of(tmp_path, **{**free.model_dump(exclude={"profile", "model"}), limit: most})
            document = await last(runs.start(context, "the task", f"r{tenth}"))
            assert document["status"] == "limited"
            assert any(gap.partition(": ")[2].startswith(f"{limit} = ") for gap in document["gaps"])
            types = [trace["type"] for trace in document["traces"] if trace["frame"] == "0"]
            assert ("DECOMPOSED" in types) == ("AGGREGATED" in types)
            split += "DECOMPOSED" in types
            assert document["partial"] == ("all of the task" if "DECOMPOSED" in types else "answer to the task")
            assert (await runs.replay(context, f"r{tenth}")).to_dict()["gaps"] == document["gaps"]
        assert split >= 2
        resumed = await last(runs.resume(free, "r5"))
        assert (resumed["output"], resumed["usage"]["repeated_calls"]) == ("all of the task", 0)


# --- cases 4 and 11: the deadline -------------------------------------------------------------------------------


def test_case_4_a_call_that_hangs_ends_at_the_deadline_and_its_siblings_are_kept(cactus: Cactus) -> None:
    model = cactus.script({"role": "solve", "frame": r"0\.1\.0", "error": "hang"}, *RULES)
    done = cactus("solve", "the task", "--model", model, "--deadline", "1.5", "--run-id", "r", "--json")
    document = done.document
    assert (done.status, document["status"], document["output"]) == (3, "limited", None)
    assert "0.1.0: deadline = 1.5 s reached" in document["gaps"]
    assert all(f"answer to {task}" in document["partial"] for task in ("read", "count", "draw"))
    assert "go on with: cactus resume r --deadline 3" in done.err
    assert cactus("replay", "r", "--json").document["gaps"] == document["gaps"]


@pytest.mark.parametrize(
    ("role", "partial"), [("aggregate", "0.0 read\nanswer to read"), ("verify", "all of the task")]
)
def test_case_11_a_combination_that_hangs_gives_what_there_is(cactus: Cactus, role: str, partial: str) -> None:
    model = cactus.script({"role": role, "frame": "0", "error": "hang"}, *RULES)
    done = cactus("solve", "the task", "--model", model, "--deadline", "1.5", "--json")
    document = done.document
    assert (done.status, document["status"], document["output"]) == (3, "limited", None)
    assert document["gaps"] == ["0: deadline = 1.5 s reached"]
    assert document["partial"].startswith(partial)


async def test_a_combination_that_could_not_be_verified_stands_for_what_it_combines() -> None:
    async def work(frame: str) -> None:
        await asyncio.sleep(0)

    async def judge(task: str, result: str, attempt: int) -> Verdict:
        await asyncio.sleep(60 if task == "0.1" else 0)
        return Verdict.accept()

    plan = [Node([]), Node([], [Node([]), Node([])])]
    result = await solver(plan, work, verifier=judge, deadline=0.5).asolve("0")
    assert (result.status, result.gaps) == ("limited", ["0.1: deadline = 0.5 s reached"])
    assert result.partial == "0.0 0.0\nre 0.0\n\n0.1 0.1\n0.1(re 0.1.0 re 0.1.1)"


def test_nothing_is_kept_where_nothing_is_limited() -> None:
    made: Iterator[Context] = iter(
        [Context.checked(profile="roma", model="scripted:x").for_run(), Context.checked(max_calls=3).for_run()]
    )
    assert [context.shared.budget for context in made if context.shared] == [None, None]
