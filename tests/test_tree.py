"""The plain model of a running solve."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from studio.tree import Tree


def frame(id_: str, task: str = "task") -> dict[str, Any]:
    parent = id_.rpartition(".")[0] or None
    return {"event": "frame", "frame": id_, "parent": parent, "task": task, "depth": id_.count(".")}


def tree_of(*events: dict[str, Any]) -> Tree:
    tree = Tree()
    for second, event in enumerate(events):
        tree.apply(event, float(second))
    return tree


def test_planned_subtasks_are_pending_until_they_begin() -> None:
    tree = tree_of(
        frame("0"), {"event": "plan", "frame": "0", "subtasks": [{"task": task} for task in "abc"]}, frame("0.0", "a")
    )
    assert tree.pending("0") == [("0.1", "b"), ("0.2", "c")]
    assert tree.nodes["0"].children == ["0.0"]
    assert tree.path() == ["0", "0.0"]


def test_a_step_sets_role_attempt_and_when_it_began() -> None:
    tree = tree_of(frame("0"), {"event": "step", "frame": "0", "role": "solve", "attempt": 2})
    node = tree.nodes["0"]
    assert (node.role, node.attempt, node.began) == ("solve", 2, 1.0)


def test_a_rejection_is_noted_until_an_answer_is_accepted() -> None:
    rejected = {"event": "verdict", "frame": "0", "attempt": 1, "accepted": False, "feedback": "too\nshort"}
    assert tree_of(frame("0"), rejected).nodes["0"].note == "rejected: too short"
    assert tree_of(frame("0"), rejected, {**rejected, "accepted": True}).nodes["0"].note is None


def test_waiting_is_noted_until_the_model_replies() -> None:
    wait = {"event": "wait", "frame": "0", "role": "solve", "seconds": 2, "reason": "429"}
    call = {"event": "call", "frame": "0", "input_tokens": 3, "output_tokens": 4}
    assert tree_of(frame("0"), wait).nodes["0"].note == "waiting 2.0 s: 429"
    tree = tree_of(frame("0"), wait, call)
    assert tree.nodes["0"].note is None
    assert (tree.calls, tree.tokens) == (1, 7)


def test_a_frame_ends_done_or_failed() -> None:
    tree = tree_of(
        frame("0"),
        frame("0.0"),
        {"event": "answer", "frame": "0.0", "role": "solve", "attempt": 1, "answer": "first\nsecond"},
        {"event": "done", "frame": "0.0", "success": True},
        {"event": "done", "frame": "0", "success": False},
    )
    assert [tree.nodes[id_].state for id_ in ("0.0", "0")] == ["done", "failed"]
    assert tree.nodes["0.0"].answer == "first second"
    assert tree.done == 2


@given(st.lists(st.integers(0, 9), max_size=6), st.sampled_from(["step", "plan", "wait", "verdict", "done"]))
def test_a_frame_begun_before_a_resume_is_made_with_its_parents(parts: list[int], kind: str) -> None:
    id_ = ".".join(map(str, [0, *parts]))
    fields = {"role": "solve", "attempt": 1, "subtasks": [], "seconds": 1, "reason": "", "accepted": True}
    tree = tree_of({"event": kind, "frame": id_, "feedback": "", "success": True, **fields})
    assert len(tree.nodes) == len(parts) + 1
    assert all(node.id in tree.nodes[node.parent].children for node in tree.nodes.values() if node.parent)


def test_a_frame_that_is_announced_again_is_not_there_twice() -> None:
    tree = tree_of(frame("0"), frame("0.0"), frame("0.0", "anew"))
    assert tree.nodes["0"].children == ["0.0"]
    assert tree.nodes["0.0"].task == "anew"
