"""A person in the loop: plans are asked about, decided by exact words, and remembered; in the machine and typed."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from rich.console import Console

from frames.errors import UsageError
from frames.frame import KINDS
from graph import RecursiveTaskSolver, always_accept, make_graph
from graph.store import serializer
from nodes.approve import ALLOWED, Decision
from nodes.approve import read_decision as read_reply
from nodes.context import Context
from studio import approving
from studio.approving import Pending, decide, decisions_from, pendings_of, read_decision, shown
from tests.trees import Node, solver


class Run:
    """A run that stops for a person, on a strict store. ``waiting`` are the questions by frame."""

    def __init__(self, made: RecursiveTaskSolver, task: str = "0") -> None:
        self.task, self.context = task, made.context
        self.graph = make_graph(InMemorySaver(serde=serializer()))
        self.config: Any = {"configurable": {"thread_id": "r"}}
        self.ids: dict[str, str] = {}
        self.waiting: dict[str, dict[str, Any]] = {}
        self.values: dict[str, Any] = {}
        self.events: list[dict[str, Any]] = []

    async def start(self) -> None:
        await self._go({"task": self.task})

    async def bare(self, reply: Any) -> None:
        await self._go(Command(resume=reply))

    async def answer(self, **replies: Any) -> None:
        """Reply by frame: ``f0_1`` is the frame 0.1."""
        by_frame = {name[1:].replace("_", "."): reply for name, reply in replies.items()}
        await self._go(Command(resume={self.ids[frame]: reply for frame, reply in by_frame.items()}))

    async def _go(self, given: Any) -> None:
        self.events = []
        stream: Any = self.graph.astream(
            given, self.config, context=self.context, stream_mode="custom", subgraphs=True, durability="sync"
        )
        async for _, event in stream:
            self.events.append(event)
        state = await self.graph.aget_state(self.config)
        assert len({item.id for item in state.interrupts}) == len(state.interrupts)
        assert json.loads(json.dumps([item.value for item in state.interrupts])) == [i.value for i in state.interrupts]
        self.ids = {item.value["frame"]: item.id for item in state.interrupts}
        self.waiting = {item.value["frame"]: item.value for item in state.interrupts}
        self.values = state.values

    def decisions(self) -> list[tuple[str, str]]:
        return [(event["frame"], event["decision"]) for event in self.events if event["event"] == "approval"]


class Remembered:
    """Keeps approved plans, as a context's ``approvals`` does."""

    def __init__(self) -> None:
        self.plans: dict[str, Any] = {}

    def approved(self, frame: str) -> Any:
        return self.plans.get(frame)

    async def approve(self, frame: str, plan: Any) -> None:
        self.plans[frame] = plan


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Remembered:
    kept = Remembered()
    monkeypatch.setattr(Context, "approvals", property(lambda self: kept), raising=False)
    return kept


async def idle(frame: str) -> None:
    """Do a leaf's work: nothing."""


FORK = [Node([]), Node([])]
CHAIN = [Node([]), Node([0])]
TWO = [Node([], FORK), Node([], CHAIN), Node([0]), Node([])]


# --- approve, edit, reject -----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [FORK, CHAIN], ids=["fork", "chain"])
@pytest.mark.parametrize("parallel", [1, 99])
@pytest.mark.parametrize("reply", ["approve", {"action": "approve"}])
async def test_nothing_is_begun_before_a_plan_is_approved(plan: list[Node], parallel: int, reply: Any) -> None:
    run = Run(solver(plan, idle, approve="plan", parallel=parallel))
    await run.start()
    question = run.waiting["0"]
    assert {**question, "plan": [entry["task"] for entry in question["plan"]]} == {
        "kind": "plan",
        "frame": "0",
        "task": "0",
        "depth": 0,
        "plan": ["0.0", "0.1"],
        "revision": 0,
        "revisions_left": 5,
        "problem": None,
        "was": None,
        "difference": None,
    }
    assert (run.values["frames"], run.values["traces"]) == (1, [])
    assert run.decisions() == [("0", "asked")]
    await run.bare(reply)
    assert run.decisions() == [("0", "approved")]
    assert (run.waiting, run.values["status"], run.values["frames"]) == ({}, "succeeded", 3)


async def test_without_the_setting_nobody_is_asked() -> None:
    run = Run(solver(TWO, idle))
    await run.start()
    assert (run.waiting, run.decisions(), run.values["status"]) == ({}, [], "succeeded")


async def test_one_bare_reply_approves_one_plan_alone() -> None:
    run = Run(solver([Node([], CHAIN), Node([0], CHAIN)], idle, approve="plan"))
    await run.start()
    for frame in ("0", "0.0", "0.1"):
        assert list(run.waiting) == [frame]
        await run.bare("approve")
    assert run.values["status"] == "succeeded"


async def test_an_edited_plan_is_followed() -> None:
    tasks: list[str] = []

    async def work(text: str) -> str:
        tasks.append(text.partition("\n")[0])
        return "done"

    made = RecursiveTaskSolver.roma(
        lambda prompt: "never asked",
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: ["one", "two"],
        executors=dict.fromkeys(["", *KINDS], work),
        aggregator=lambda task, results: " ".join(result["task"] for result in results),
        verifier=always_accept(),
        approve="plan",
    )
    run = Run(made, "whole")
    await run.start()
    edited = [{"id": "b", "task": "after", "depends_on": ["a"]}, {"id": "a", "task": "first", "kind": "SEARCH"}]
    await run.bare({"action": "edit", "plan": edited})
    assert (run.values["output"], tasks) == ("after first", ["first", "after"])
    assert run.values["frames"] == 3
    assert run.values["notes"] == ["0: plan edited by a person"]
    assert run.decisions() == [("0", "edited")]
    again = Run(made, "whole")
    await again.start()
    await again.bare({"action": "edit", "plan": ["only this"]})
    assert again.values["output"] == "only this"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ([], "no subtask"),
        (None, "no subtask"),
        (["", " "], "no subtask"),
        ("- a", "subtasks is str"),
        ([1], "subtask 1 is int"),
        ([{"id": "a"}], "'a' is blank"),
        ([{"task": "a", "kind": "guess"}], "kind 'guess'"),
        ([f"part {n}" for n in range(10)], "more than max_subtasks = 9"),
        (["0"], "restates the task of frame 0"),
        ([{"id": "a", "task": "b", "depends_on": ["c"]}], "'c', which is no subtask"),
        ([{"id": "a", "task": "b", "depends_on": ["b"]}, {"id": "b", "task": "c", "depends_on": ["a"]}], "in a circle"),
        ([f"part {n}" for n in range(6)], "max_frames = 6 reached"),
    ],
)
async def test_an_edited_plan_that_will_not_do_asks_again(plan: Any, said: str) -> None:
    run = Run(solver(FORK, idle, approve="plan", max_frames=6))
    await run.start()
    asked = run.ids["0"]
    await run.bare({"action": "edit", "plan": plan})
    assert said in run.waiting["0"]["problem"]
    assert run.ids["0"] != asked
    assert (run.waiting["0"]["revision"], [entry["task"] for entry in run.waiting["0"]["plan"]]) == (0, ["0.0", "0.1"])
    assert (run.decisions(), run.values["status"]) == ([("0", "asked")], None)
    await run.bare("approve")
    assert run.values["status"] == "succeeded"


async def test_a_planner_is_told_what_a_person_said_of_every_plan() -> None:
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        tasks = [f"part {number}" for number in range(1 + len(prompts) % 2)]
        return json.dumps({"subtasks": [{"id": task, "task": task, "kind": "think"} for task in tasks]})

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 0,
        executors=dict.fromkeys(KINDS, lambda task: "done"),
        aggregator=lambda task, results: "all done",
        verifier=always_accept(),
        approve="plan",
    )
    run = Run(made, "whole")
    await run.start()
    assert "rejected" not in prompts[0]
    await run.bare({"action": "reject", "text": " Too many parts. "})
    assert (run.waiting["0"]["revision"], run.waiting["0"]["revisions_left"]) == (1, 4)
    assert "Your plan (part 0; part 1) was rejected: Too many parts. Give a plan without" in prompts[1]
    await run.bare({"action": "reject", "text": "Too many parts."})
    assert "Too many parts; Your plan (part 0) was rejected: Too many parts." in prompts[2]
    assert len(set(prompts)) == 3  # no request is the same, so that no answer is used again
    await run.bare("approve")
    assert (run.values["output"], len(prompts)) == ("all done", 3)
    assert run.values["notes"] == ["0: plan rejected: Too many parts.", "0: plan rejected: Too many parts."]


async def test_the_classic_profile_and_functions_get_it_behind_the_task() -> None:
    asked: list[str] = []

    def split(task: str, depth: int) -> list[str]:
        asked.append(task)
        return ["one", "two"] if len(asked) == 1 else ["three"]

    made = RecursiveTaskSolver(
        solver=lambda prompt: "answer",
        decomposer=split,
        atomizer=lambda task, depth: depth > 0,
        approve="plan",
    )
    run = Run(made, "whole")
    await run.start()
    await run.bare({"action": "reject", "text": "one part"})
    assert asked == ["whole", "whole\n\nYour plan (one; two) was rejected: one part"]
    assert [entry["task"] for entry in run.waiting["0"]["plan"]] == ["three"]
    await run.bare("approve")
    assert (run.values["status"], run.values["frames"]) == ("succeeded", 2)


@pytest.mark.parametrize(("most", "asked"), [(0, 1), (1, 1), (3, 3)])
async def test_after_enough_rejections_the_task_is_solved_directly(most: int, asked: int) -> None:
    made = RecursiveTaskSolver(
        solver=lambda prompt: "direct",
        decomposer=lambda task, depth: [f"{len(task)} one", "two"],
        approve="plan",
        max_revisions=most,
    )
    run = Run(made, "whole")
    await run.start()
    left = []
    while run.waiting:
        left.append(run.waiting["0"]["revisions_left"])
        await run.bare({"action": "reject", "text": "no"})
    assert left == list(range(most, most - asked, -1))
    assert (run.values["output"], run.values["frames"]) == ("direct", 1)
    assert run.values["notes"][-1] == f"0: plan rejected: no; solved directly, max_revisions = {most}"


async def test_a_plan_that_has_no_room_is_not_asked_about() -> None:
    run = Run(solver(FORK, idle, approve="plan", max_frames=2))
    await run.start()
    assert (run.waiting, run.values["status"]) == ({}, "limited")
    assert run.values["gaps"] == ["0: max_frames = 2 reached: 2 subtasks would make 3 frames"]


async def test_a_plan_for_which_there_is_no_room_any_more_ends_the_run_at_its_limit() -> None:
    run = Run(solver([Node([], FORK), Node([], FORK)], idle, approve="plan", max_frames=6))
    await run.start()
    await run.bare("approve")
    await run.answer(f0_0="approve", f0_1="approve")
    assert run.values["status"] == "limited"
    assert "0.1: max_frames = 6 reached: 2 subtasks would make 7 frames" in run.values["gaps"]
    assert not any(gap.startswith("0.1.") for gap in run.values["gaps"])  # nobody has approved them


# --- case 18: only exact replies are decisions ---------------------------------------------------------------

NO_DECISIONS: list[Any] = [
    "yes",
    "no",
    "",
    " approve",
    "Approve",
    "approved",
    "a",
    "not enough detail",
    "novel ideas",
    "yes but no",
    "reject",
    "reject: too long",
    True,
    False,
    0,
    1,
    [],
    ["approve"],
    {"action": "yes"},
    {"action": "approve", "text": "but shorter"},
    {"action": "reject"},
    {"action": "reject", "text": ""},
    {"action": "reject", "text": " \n"},
    {"action": "reject", "text": None},
    {"action": "reject", "text": "no", "plan": ["a"]},
    {"action": "edit"},
    {"action": "edit", "text": "a"},
    {"action": ["approve"]},
    {"approve": True},
    {"plan": ["a", "b"]},
]


@pytest.mark.parametrize("reply", NO_DECISIONS, ids=repr)
async def test_case_18_what_is_no_exact_decision_asks_again(reply: Any) -> None:
    run = Run(solver(FORK, idle, approve="plan"))
    await run.start()
    await run.bare(reply)
    assert run.waiting["0"]["problem"] in (ALLOWED, "a rejection says what to change")
    assert (run.waiting["0"]["revision"], run.values["frames"], run.decisions()) == (0, 1, [("0", "asked")])


async def test_case_18_nothing_by_id_is_no_decision_either() -> None:
    run = Run(solver(FORK, idle, approve="plan"))
    await run.start()
    await run.answer(f0=None)
    assert run.waiting["0"]["problem"] == ALLOWED
    for _ in range(30):  # however often
        await run.bare("hm")
    await run.bare("approve")
    assert run.values["status"] == "succeeded"


PLAIN = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_case_18_no_other_value_is_a_decision(reply: Any) -> None:
    assert isinstance(read_reply(reply), str) == (reply != "approve")


def test_the_exact_forms() -> None:
    assert read_reply("approve") == read_reply({"action": "approve"}) == Decision("approve")
    assert read_reply({"text": " no\x00 ", "action": "reject"}) == Decision("reject", "no\ufffd")
    assert read_reply({"action": "edit", "plan": [1]}) == Decision("edit", plan=[1])


async def test_case_18_twenty_revisions_are_bounded() -> None:
    calls = Counter[str]()

    def model(prompt: str) -> str:
        calls["plan" if "subtasks" in prompt else "solve"] += 1
        return json.dumps({"subtasks": [{"id": "a", "task": f"part {calls['plan']}", "kind": "think"}]})

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: False,
        executors=dict.fromkeys(["", *KINDS], lambda task: "direct"),
        verifier=always_accept(),
        approve="plan",
    )
    run = Run(made, "whole")
    await run.start()
    revisions = 0
    while run.waiting and revisions < 20:
        revisions += 1
        await run.bare({"action": "reject", "text": "no"})
    assert (revisions, calls["plan"]) == (5, 5)
    assert run.values["output"] == "direct"


# --- case 17: several at once --------------------------------------------------------------------------------


def counted(calls: Counter[str], plan: list[Node]) -> RecursiveTaskSolver:
    async def work(frame: str) -> None:
        calls[frame] += 1

    made = solver(plan, work, approve="plan")
    parts = vars(made.context.components)
    split = parts["decomposer"]

    def planned(task: str, depth: int) -> Any:
        calls[f"plan {task}"] += 1
        return split(task.partition("\n")[0], depth)

    made.context._components = type(made.context.components)(**{**parts, "decomposer": planned})
    return made


@pytest.mark.parametrize("order", [["0.0", "0.1"], ["0.1", "0.0"], ["both"]])
async def test_case_17_two_plans_are_answered_in_any_order_and_one_at_a_time(order: list[str]) -> None:
    calls = Counter[str]()
    run = Run(counted(calls, TWO))
    await run.start()
    await run.bare("approve")
    assert set(run.waiting) == {"0.0", "0.1"}
    assert {"0.3"} == {name for name in calls if not name.startswith("plan")}
    if order == ["both"]:
        await run.answer(f0_1="approve", f0_0="approve")
    else:
        first, second = order
        other = run.ids[second]
        await run.answer(**{f"f{first.replace('.', '_')}": "approve"})
        assert run.ids == {second: other}  # the same question, by the same id
        assert calls[f"{first}.0"] == calls[f"{first}.1"] == 1
        assert not calls[f"{second}.0"]
        await run.bare("approve")
    assert run.values["status"] == "succeeded"
    assert set(calls.values()) == {1}
    assert run.values["frames"] == 9


async def test_case_17_decisions_of_two_plans_do_not_mix() -> None:
    calls = Counter[str]()
    run = Run(counted(calls, TWO))
    await run.start()
    await run.bare("approve")
    await run.answer(f0_1={"action": "reject", "text": "no"}, f0_0="yes")
    assert (run.waiting["0.1"]["revision"], run.waiting["0.1"]["problem"]) == (1, None)
    assert (run.waiting["0.0"]["revision"], run.waiting["0.0"]["problem"]) == (0, ALLOWED)
    await run.answer(f0_0={"action": "edit", "plan": ["0.0.1"]}, f0_1={"action": "edit", "plan": []})
    assert set(run.waiting) == {"0.1"}
    assert [calls["0.0.1"], calls["0.0.0"]] == [1, 0]
    await run.bare("approve")
    assert run.values["status"] == "succeeded"
    assert set(calls.values()) == {1}


async def test_plans_in_forks_within_forks_wait_together() -> None:
    calls = Counter[str]()
    plan = [Node([], [Node([], FORK), Node([], FORK)]), Node([], FORK)]
    run = Run(counted(calls, plan))
    await run.start()
    await run.bare("approve")
    await run.answer(f0_0="approve")
    assert set(run.waiting) == {"0.0.0", "0.0.1", "0.1"}
    await run.answer(f0_0_1="approve")
    assert set(run.waiting) == {"0.0.0", "0.1"}
    await run.answer(f0_1="approve", f0_0_0="approve")
    assert run.values["status"] == "succeeded"
    assert set(calls.values()) == {1}


async def test_going_on_without_a_decision_asks_the_same_again() -> None:
    calls = Counter[str]()
    run = Run(counted(calls, TWO))
    await run.start()
    await run.bare("approve")
    ids = run.ids
    await run._go(None)
    assert run.ids == ids
    assert set(calls.values()) == {1}


async def test_where_a_failure_fails_the_fork_nobody_is_asked() -> None:
    async def work(frame: str) -> None:
        if frame == "0.1":
            raise ValueError("bang")

    run = Run(solver([Node([], FORK), Node([]), Node([0])], work, approve="plan", on_failure="fail"))
    await run.start()
    await run.bare("approve")
    assert (run.waiting, run.values["status"]) == ({}, "failed")
    assert run.values["gaps"] == ["0.1: solve raised ValueError: bang"]


# --- case 19: an approved plan that changes ------------------------------------------------------------------


async def test_case_19_another_plan_of_an_approved_frame_is_asked_about_with_the_difference(
    remembered: Remembered,
) -> None:
    given = [{"id": "a", "task": "read A", "kind": "search"}, {"id": "b", "task": "read B", "kind": "search"}]
    made = RecursiveTaskSolver.roma(
        lambda prompt: "never asked",
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: given,
        executors=dict.fromkeys(KINDS, lambda task: "done"),
        aggregator=lambda task, results: " ".join(result["task"] for result in results),
        verifier=always_accept(),
        approve="plan",
    )
    run = Run(made, "whole")
    await run.start()
    await run.bare("approve")
    approved = remembered.plans["0"]

    given = [{**entry, "id": f"other {entry['id']}"} for entry in given]  # ids say nothing
    run = Run(made, "whole")
    await run.start()
    assert (run.waiting, run.values["output"]) == ({}, "read A read B")
    assert run.decisions() == []

    given = [given[0], {"id": "c", "task": "read C", "kind": "think", "depends_on": ["other a"]}]
    run = Run(made, "whole")
    await run.start()
    question = run.waiting["0"]
    assert question["was"] == approved
    assert question["difference"].splitlines()[3:] == [
        " 1. [search] read A",
        "-2. [search] read B",
        "+2. [think] read C (after 1)",
    ]
    await run.bare("no")
    assert (run.waiting["0"]["was"], run.waiting["0"]["problem"]) == (approved, ALLOWED)
    await run.bare({"action": "edit", "plan": ["read D"]})
    assert [entry["task"] for entry in remembered.plans["0"]] == ["read D"]
    assert run.values["output"] == "read D"


async def test_approved_plans_are_remembered_by_frame(remembered: Remembered) -> None:
    run = Run(solver(TWO, idle, approve="plan"))
    await run.start()
    await run.bare("approve")
    await run.answer(f0_1="approve")
    assert set(remembered.plans) == {"0", "0.1"}
    again = Run(solver(TWO, idle, approve="plan"))
    await again.start()
    assert set(again.waiting) == {"0.0"}


async def test_a_frame_of_an_earlier_version_is_read(remembered: Remembered) -> None:
    run = Run(solver(FORK, idle, approve="plan"))
    await run.start()
    assert "approval" not in run.values["stack"][0]  # none before a reply that is no approval
    await run.bare("approve")
    assert run.values["status"] == "succeeded"


# --- at the terminal -----------------------------------------------------------------------------------------


def subtask(id_: str, task: str, kind: Any = None, depends_on: Iterable[str] = ()) -> dict[str, Any]:
    return {"id": id_, "task": task, "kind": kind, "depends_on": list(depends_on)}


def pending(frame: str, **fields: Any) -> Pending:
    plan = [subtask("a", "read A", "search"), subtask("b", "weigh", "think", ["a"])]
    value = {
        "kind": "plan",
        "frame": frame,
        "task": f"task {frame}",
        "depth": frame.count("."),
        "plan": plan,
        "revision": 0,
        "revisions_left": 5,
        "problem": None,
        "was": None,
        "difference": None,
    }
    return Pending(f"id of {frame}", {**value, **fields})


ONE, SEVERAL = [pending("0.1")], [pending("0.1"), pending("0.12")]


@pytest.mark.parametrize(
    ("line", "frame", "action", "text"),
    [
        ("a 0.1", "0.1", "approve", ""),
        ("0.12 A", "0.12", "approve", ""),
        ("APPROVE 0.12", "0.12", "approve", ""),
        (" 0.1  approve ", "0.1", "approve", ""),
        ("e 0.1", "0.1", "edit", ""),
        ("0.1 Edit", "0.1", "edit", ""),
        ("r 0.1 too many parts", "0.1", "reject", "too many parts"),
        ("0.12 r too many", "0.12", "reject", "too many"),
        ("Reject 0.12 a 0.1", "0.12", "reject", "a 0.1"),
        ("0.1 r 0.12 is the one to keep", "0.1", "reject", "0.12 is the one to keep"),
    ],
)
def test_lines_that_decide(line: str, frame: str, action: str, text: str) -> None:
    decision = read_decision(line, SEVERAL)
    assert not isinstance(decision, str), decision
    assert (decision.pending.frame, decision.action, decision.text) == (frame, action, text)


@pytest.mark.parametrize(
    ("line", "action"), [("a", "approve"), ("Approve", "approve"), ("e", "edit"), ("r too long", "reject")]
)
def test_where_one_plan_waits_its_id_may_be_left_out(line: str, action: str) -> None:
    decision = read_decision(line, ONE)
    assert not isinstance(decision, str)
    assert decision.action == action
    assert "several plans wait" in str(read_decision(line, SEVERAL))


NO_LINES = [
    "",
    " ",
    "yes",
    "no",
    "y",
    "n",
    "0.1",
    "a 0.1 please",
    "a 0.1 0.1",
    "0.1 a 0.1",
    "approve of it",
    "a little more detail",
    "e very part is wrong",
    "not enough detail",
    "novel ideas",
    "yes but no",
    "approved",
    "rejected",
    "reject",
    "r",
    "r 0.1",
    "0.1 r ",
    "r 0.5 too many",
    "a 0.2",
    "a0.1",
    "ed\u0131t 0.1",
    "\uff41",
]


@pytest.mark.parametrize("line", NO_LINES)
@pytest.mark.parametrize("pendings", [ONE, SEVERAL], ids=["one", "several"])
def test_case_18_lines_that_decide_nothing(line: str, pendings: list[Pending]) -> None:
    assert isinstance(read_decision(line, pendings), str)


@given(st.text())
def test_case_18_no_other_line_is_a_decision(line: str) -> None:
    verbs = ("a", "approve", "e", "edit", "r", "reject")
    words = line.lower().split()
    if not any(word in verbs for word in words[:2]):
        assert isinstance(read_decision(line, SEVERAL), str)


def asked(pendings: list[Pending], lines: list[str], edit: Any = None) -> tuple[dict[str, Any], str, list[str]]:
    """Return the replies, what was shown, and the lines that nobody read."""
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    console = Console(record=True, width=200, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    replies = decide(pendings, read, console, edit)
    console.file.close()
    return replies, console.export_text(), left


def test_all_are_asked_about_until_all_are_decided() -> None:
    lines = ["novel ideas", "a", "r 0.12 too many", "a 0.12", "not enough detail", "a", "unread"]
    replies, said, left = asked(SEVERAL, lines)
    assert replies == {"id of 0.12": {"action": "reject", "text": "too many"}, "id of 0.1": "approve"}
    assert said.count("that is no decision") == 2
    assert "several plans wait; name the frame of one: 0.1, 0.12" in said
    assert "no plan of 0.12 waits; those that do: 0.1" in said
    assert left == ["unread"]


@pytest.mark.parametrize("end", [["q"], [" Q "], []])
def test_what_is_not_decided_goes_on_waiting(end: list[str]) -> None:
    assert asked(SEVERAL, ["0.12 a", *end])[0] == {"id of 0.12": "approve"}


def test_an_edit_that_will_not_do_is_told_and_goes_on_where_it_was() -> None:
    seen: list[str] = []
    texts: list[str | None] = [
        None,
        "- [",
        "- {id: a, task: x, depends_on: [b]}",
        "just text",
        "[]",
        "- task 0.1",
        "- x\n- {id: y, task: y}",
        "- {id: 1, task: x}\n- {id: 2, task: y, kind: code, depends_on: 1}",
    ]

    def edit(text: str) -> str | None:
        seen.append(text)
        return texts[len(seen) - 1]

    replies, said, _ = asked(ONE, ["e"] * len(texts), edit)
    assert replies == {"id of 0.1": {"action": "edit", "plan": [subtask("1", "x"), subtask("2", "y", "code", ["1"])]}}
    assert seen[0].startswith("# plan of 0.1: task 0.1\n")
    assert seen[1] == seen[0]
    assert seen[2:] == texts[1:-1]
    for problem in ("as it was", "no YAML", "'b', which is no subtask", "subtasks is str", "it has no subtask"):
        assert problem in said
    assert "restates the task of frame 0.1" in said
    assert "is str, not a mapping" in said


def test_a_plan_that_is_saved_unchanged_is_not_approved_by_it() -> None:
    replies, said, _ = asked(ONE, ["e", "a"], lambda text: text)
    assert replies == {"id of 0.1": "approve"}
    assert "the plan is as it was" in said


def test_without_an_editor_lines_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    replies, said, _ = asked(ONE, ["e", ".", "e", "- one", "- two", " .", "unread"])
    assert replies["id of 0.1"]["plan"] == [subtask("0", "one"), subtask("1", "two")]
    assert "- id: a" in said
    assert asked(ONE, ["e", "- one"])[0] == {}  # the input ended before the dot


@pytest.mark.parametrize("program", ["no-such-editor", "false", 'open "quote'])
def test_an_editor_that_fails_decides_nothing(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", program)
    replies, said, _ = asked(ONE, ["e", "a"])
    assert replies == {"id of 0.1": "approve"}
    assert "the plan is as it was" in said


def test_plans_are_shown_whole_by_frame() -> None:
    hostile = subtask("c", "line one\nline two \x1b[2J\u202eevil", None, ["a", "b"])
    plan = [subtask("a", "read A", "search"), subtask("b", "weigh", "think", ["a"]), hostile]
    changed = {"was": plan[:2], "difference": "--- recorded\n+++ now\n@@ -1 +1 @@\n-1. old\n+1. new"}
    text = shown([pending("0.1"), pending("0.2", plan=plan, revision=2, revisions_left=3, problem="hm", **changed)])
    assert text.plain.splitlines() == [
        "plan of 0.1  task 0.1",
        "  1. [search] read A",
        "  2. [think] weigh (after 1)",
        "",
        "plan of 0.2  task 0.2",
        "  1. [search] read A",
        "  2. [think] weigh (after 1)",
        "  3. line one",
        "     line two \ufffdevil (after 1, 2)",
        "  not the plan that was approved:",
        "    @@ -1 +1 @@",
        "    -1. old",
        "    +1. new",
        "  rejected 2 times; 3 rejections are left",
        "  not taken: hm",
    ]
    colours = {text.plain[span.start : span.end].strip(): span.style for span in text.spans}
    assert (colours["-1. old"], colours["+1. new"]) == ("red", "green")
    last = shown([pending("0", revision=1, revisions_left=1)]).plain
    assert "rejected once; the next rejection has the task solved without a plan" in last


async def test_pendings_are_those_of_the_state_in_the_order_of_the_tree() -> None:
    made = counted(Counter(), [Node([], FORK) for _ in range(9)])
    run = Run(made)
    await run.start()
    await run.bare("approve")
    found = pendings_of(reversed((await run.graph.aget_state(run.config)).interrupts))
    assert [each.frame for each in found] == [f"0.{place}" for place in range(9)]
    replies, _, _ = asked(found, ["a 0.8", "q"])
    await run._go(Command(resume=replies))
    assert "0.8" not in run.waiting
    replies = decisions_from(["0.3=reject:no", "all=approve"], [each for each in found if each.frame != "0.8"])
    await run._go(Command(resume=replies))
    assert set(run.waiting) == {"0.3"}


# --- options -------------------------------------------------------------------------------------------------


def test_options_decide_by_frame(tmp_path: Path) -> None:
    file = tmp_path / "plan=1.yaml"
    file.write_text("- one\n- two\n")
    assert decisions_from([], SEVERAL) == {}
    assert decisions_from(["all=approve"], SEVERAL) == {"id of 0.1": "approve", "id of 0.12": "approve"}
    assert decisions_from(["0.12=reject: a=b: no "], SEVERAL) == {"id of 0.12": {"action": "reject", "text": "a=b: no"}}
    assert decisions_from([f"0.1=@{file}", "all=approve"], SEVERAL) == {
        "id of 0.1": {"action": "edit", "plan": [subtask("0", "one"), subtask("1", "two")]},
        "id of 0.12": "approve",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["0.2=approve"], "no plan of frame '0.2' waits for a decision; those that do: 0.1, 0.12"),
        (["approve"], "is no decision: give FRAME=approve"),
        (["0.1"], "is no decision"),
        (["0.1="], "is no decision"),
        (["0.1=yes"], "is no decision"),
        (["0.1=Approve"], "is no decision"),
        (["0.1=reject"], "is no decision"),
        (["0.1=reject: "], "is no decision"),
        (["0.1=@"], "is no decision"),
        (["all=reject:no"], "no plan of frame 'all'"),
        (["ALL=approve"], "no plan of frame 'ALL'"),
        (["0.1=approve", "0.1=reject:no"], "decided on twice"),
        (["0.1=@nowhere.yaml"], "cannot read nowhere.yaml: No such file"),
    ],
)
def test_options_that_decide_nothing_are_wrong_use(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        decisions_from(options, SEVERAL)


@pytest.mark.parametrize(("content", "said"), [(b"[]", "no subtask"), (b"\xff", "no UTF-8"), (b"- [", "no YAML")])
def test_a_file_without_a_plan_is_wrong_use(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        decisions_from([f"0.1=@{tmp_path / 'p.yaml'}"], ONE)


# --- a real terminal -----------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
from studio.approving import Pending, decide
print(json.dumps(decide([Pending(*given) for given in json.load(open(sys.argv[1]))])))
"""


def test_at_a_real_terminal_with_an_editor(tmp_path: Path) -> None:
    (tmp_path / "pending.json").write_text(json.dumps([[p.id, p.value] for p in SEVERAL]))
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nwith open(sys.argv[1], 'w') as f: f.write('- edited one\\n- edited two\\n')\n")
    ours, theirs = pty.openpty()
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "pending.json")],
            stdin=theirs,
            stdout=out,
            stderr=theirs,
            cwd=Path(approving.__file__).parent.parent,
            env={**os.environ, "TERM": "xterm-256color", "VISUAL": f"{sys.executable} {editor}", "COLUMNS": "100"},
        )
    os.close(theirs)
    seen = _until(ours, lambda text: text.count("> ") == 1)
    for number, line in enumerate(["novel ideas", "e 0.12", "a"], 2):
        os.write(ours, f"{line}\n".encode())
        seen += _until(ours, lambda text, number=number: number == 4 or "> " in text)
    assert process.wait(timeout=30) == 0
    os.close(ours)
    assert "plan of \x1b[0m\x1b[1m0.12\x1b[0m  task 0.12" in seen
    assert "that is no decision" in seen
    edited = {"action": "edit", "plan": [subtask("0", "edited one"), subtask("1", "edited two")]}
    assert json.loads((tmp_path / "out").read_text()) == {"id of 0.12": edited, "id of 0.1": "approve"}


def _until(terminal: int, done: Callable[[str], bool]) -> str:
    seen, end = "", time.monotonic() + 30
    while not done(seen):
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 65536).decode("utf-8", "replace")
    return seen
