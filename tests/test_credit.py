"""Trajectories of agents and their credit, against numbers worked out by hand."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from frames.credit import baseline, credited, depth_weights, reward
from graph import RecursiveTaskSolver
from studio.export import training
from tests.agents import NESTED, block, script


def record(
    rollout: str, node: str, success: bool | None, children: float | None = None, group: str = "g"
) -> dict[str, Any]:
    return {
        "group_id": group,
        "rollout_id": rollout,
        "node_id": node,
        "parent_id": node.rpartition(".")[0] or None,
        "depth": node.count("."),
        "success": success,
        "child_success_mean": children,
    }


TREES = [
    record("a", "0", True, 0.5),
    record("a", "0.0", True),
    record("a", "0.1", False, 1.0),
    record("a", "0.1.0", True),
    record("b", "0", False),
    record("c", "0", True),
    record("z", "0", True, group="other"),
]


def test_reward_is_own_success_and_a_share_of_the_childrens_mean() -> None:
    assert reward(TREES[0]) == 1.0
    assert reward(TREES[0], 0.4) == pytest.approx(1.2)
    assert reward(TREES[2], 0.4) == pytest.approx(0.4)
    assert reward(TREES[4], 0.4) == 0.0
    assert reward(record("a", "0", None)) is None


def test_the_baseline_leaves_the_own_tree_and_other_tasks_out() -> None:
    credit = credited(TREES, 0.4)
    # of a: (0 of b + 1 of c) / 2; of b: (1.2 + 1) / 2; of c: (1.2 + 0) / 2; the other task has one tree
    assert [each["baseline"] for each in credit] == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.1, 0.6, None])
    advantages = [each["advantage"] for each in credit]
    assert advantages[:6] == pytest.approx([0.7, 0.5, -0.1, 0.5, -1.1, 0.4])
    assert advantages[6] is None
    assert baseline({("g", "a"): None, ("g", "b"): 1.0}, ("g", "b")) is None


def test_each_depth_weighs_the_same() -> None:
    # seven records at three depths: 4 at depth 0, 2 at 1, 1 at 2
    assert depth_weights(TREES) == pytest.approx({0: 7 / 3 / 4, 1: 7 / 3 / 2, 2: 7 / 3})
    summed = [
        sum(each["weight"] for each in credited(TREES) if each["node_id"].count(".") == depth) for depth in range(3)
    ]
    assert summed == pytest.approx([7 / 3] * 3)


async def test_a_run_gives_a_record_for_each_agent(tmp_path: Path) -> None:
    with RecursiveTaskSolver.agent(script(tmp_path, *NESTED), db=tmp_path / "runs.db") as solver:
        live = [event async for event in solver.astream("the task", run_id="run")]
        kept = await solver.aevents("run")
    records = list(training(kept))
    assert records == list(training(live))
    assert [each["node_id"] for each in records] == ["0", "0.0", "0.0.0", "0.0.1", "0.1", "0.2"]
    assert [each["fork_step"] for each in records] == [None, 2, 1, 1, 2, 2]
    root, left = records[:2]
    assert root["children"] == ["0.0", "0.1", "0.2"]
    assert (root["child_success_mean"], left["parent_id"], left["terminal_reason"]) == (1.0, "0", "finish")
    assert [message["role"] for message in root["messages"]] == ["system", *["user", "assistant"] * 3]
    assert "begun" in root["messages"][5]["content"], "what the block printed"
    assert [cell["step"] for cell in root["cells"]] == [1, 2, 2, 2, 3]
    assert left["goal"] == "the left half"
    assert root["token_ids"] is root["logprobs"] is None
    assert root["success_provider"] == "verifier:accept"
    assert root["input_tokens"] > left["input_tokens"] > 0
    for earlier, later in zip(root["messages"], records[0]["messages"], strict=True):
        assert earlier == later
    assert len(credited(records)) == 6


async def test_a_conversation_only_grows(tmp_path: Path) -> None:
    solver = RecursiveTaskSolver.agent(script(tmp_path, *NESTED))
    events = [event async for event in solver.astream("the task")]
    asked = [event["messages"] for event in events if event["event"] == "call" and event["frame"] == "0"]
    assert len(asked) == 3
    for before, after in pairwise(asked):
        assert after[: len(before)] == before


async def test_how_agents_came_to_their_end(tmp_path: Path) -> None:
    rules = [
        {
            "role": "solve",
            "depth": 0,
            "reply": block("r = await asyncio.gather(launch_subagent('a'), launch_subagent('b'))\nfinish(str(r))"),
        },
        {"role": "solve", "frame": r"0\.0", "reply": block("print(1)")},
        {"role": "solve", "frame": r"0\.1", "error": "refusal"},
    ]
    solver = RecursiveTaskSolver.agent(script(tmp_path, *rules), agent_steps=2)
    records = list(training([event async for event in solver.astream("the task")]))
    assert [each["terminal_reason"] for each in records] == ["finish", "agent_steps", "failed"]
    assert [each["success"] for each in records] == [True, False, False]
    assert [each["success_provider"] for each in records] == ["verifier:accept", "machine", "machine"]
    assert records[0]["child_success_mean"] == 0.0
