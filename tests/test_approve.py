"""A person in the loop: plans are asked about, decided by exact replies, and remembered."""

import copy
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from rich.console import Console

from frames.frame import KINDS
from graph import RecursiveTaskSolver, always_accept, build, make_graph
from graph.compressed import serializer
from nodes import approve
from nodes.approve import ALLOWED, Decision
from nodes.approve import read_decision as read_reply
from studio.approving import decide, decisions_from, pendings_of
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
    """Keeps approved plans (``nodes.approve.Approvals``)."""

    def __init__(self) -> None:
        self.plans: dict[str, Any] = {}

    def approved(self, frame: str) -> Any:
        return self.plans.get(frame)

    async def approve(self, frame: str, plan: Any) -> None:
        self.plans[frame] = plan


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Remembered:
    kept = Remembered()
    monkeypatch.setattr(approve, "_approvals", lambda step: kept)
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
        "replies": 0,
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
    None,
    {1: "approve"},
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


async def test_a_bare_reply_in_a_fork_is_to_the_plan_that_waited_and_to_no_later_one() -> None:
    """LangGraph keeps it for the next question of the step: going on would approve a plan that nobody has seen."""
    run = Run(solver([Node([], FORK), Node([]), Node([0], FORK), Node([2], FORK)], idle, approve="plan"))
    await run.start()
    await run.bare("approve")
    await run.bare("approve")
    assert set(run.waiting) == {"0.2"}
    for reply in (None, Command(resume={}), Command(resume={"0" * 32: "approve"})):
        await run._go(reply)
        assert set(run.waiting) == {"0.2"}
    assert run.values["frames"] == 5


async def test_a_bare_reply_while_nothing_waits_is_kept_for_no_later_plan() -> None:
    run = Run(solver([Node([], FORK), Node([], FORK)], idle, approve="plan"))
    await run.graph.ainvoke({"task": "0"}, run.config, context=run.context, interrupt_before=["decompose"])
    await run.bare("approve")
    assert (list(run.waiting), run.waiting["0"]["problem"]) == (["0"], None)


async def test_a_bare_reply_to_two_plans_is_refused() -> None:
    run = Run(solver(TWO, idle, approve="plan"))
    await run.start()
    await run.bare("approve")
    with pytest.raises(RuntimeError, match="multiple pending interrupts"):
        await run.bare("approve")


async def test_the_node_does_not_change_the_state_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = 0
    node = build._NODES["approve"]

    async def approve(state: Any, runtime: Any) -> Any:
        nonlocal visited
        before = copy.deepcopy(state)
        try:
            return await node(state, runtime)
        finally:
            visited += 1
            assert state == before

    monkeypatch.setitem(build._NODES, "approve", approve)
    made = RecursiveTaskSolver(
        solver=lambda prompt: "answer", decomposer=lambda task, depth: ["one"], max_depth=1, approve="plan"
    )
    run = Run(made)
    await run.start()
    for reply in ("hm", {"action": "reject", "text": "no"}, {"action": "edit", "plan": ["two"]}):
        await run.bare(reply)
    assert (visited, run.values["status"]) == (6, "succeeded")


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


# --- from the state to the terminal and back -------------------------------------------------------------------


async def test_pendings_are_those_of_the_state_in_the_order_of_the_tree() -> None:
    made = counted(Counter(), [Node([], FORK) for _ in range(9)])
    run = Run(made)
    await run.start()
    await run.bare("approve")
    found = pendings_of(reversed((await run.graph.aget_state(run.config)).interrupts))
    assert [each.frame for each in found] == [f"0.{place}" for place in range(9)]
    lines = iter(["a 0.8", "q"])
    await run._go(Command(resume=decide(found, lambda prompt: next(lines), Console(quiet=True))))
    assert "0.8" not in run.waiting
    replies = decisions_from(["0.3=reject:no", "all=approve"], [each for each in found if each.frame != "0.8"])
    await run._go(Command(resume=replies))
    assert set(run.waiting) == {"0.3"}


async def test_a_copy_with_another_store_takes_replies_too() -> None:
    """LangGraph's server makes one."""
    made = solver(FORK, idle, approve="plan")
    graph, config = make_graph().copy({"checkpointer": InMemorySaver()}), {"configurable": {"thread_id": "r"}}
    await graph.ainvoke({"task": "0"}, config, context=made.context)  # type: ignore[arg-type]
    ended = await graph.ainvoke(Command(resume="approve"), config, context=made.context)  # type: ignore[arg-type]
    assert ended["status"] == "succeeded"


async def test_what_a_journal_holds_is_no_reply_to_a_later_question() -> None:
    made = solver(FORK, idle, approve="plan")
    run = Run(made)
    run.context = made.context.for_run()
    await run.start()
    for number in range(1, 4):
        await run.bare("hm")
        assert (run.waiting["0"]["problem"], run.waiting["0"]["replies"]) == (ALLOWED, number)
    await run.bare("approve")
    assert run.values["status"] == "succeeded"
