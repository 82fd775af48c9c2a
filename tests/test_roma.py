"""The roma profile: plans in whatever form models give them, executors by kind, models by role, and the aggregator."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from frames.errors import UsageError
from frames.frame import KINDS
from frames.plan import from_entries
from frames.text import estimate_tokens
from graph import RecursiveTaskSolver, SolveResult, Verdict, always_accept
from nodes.decompose import read_plan
from nodes.models.reply import from_text
from nodes.models.scripted import ScriptedChatModel
from nodes.structured import objects, read_object, without_reasoning
from tests.cli import Cactus

PLAN = (
    '{"subtasks": [{"id": "a", "task": "read", "kind": "search"}, {"id": "b", "task": "sum up", "depends_on": ["a"]}]}'
)


def scripted(*rules: dict[str, Any], **top: Any) -> ScriptedChatModel:
    return ScriptedChatModel.from_script({"rules": list(rules), **top})


def solve(*rules: dict[str, Any], task: str = "the task", **settings: Any) -> SolveResult:
    """Solve with a scripted model; tasks below the root are atomic unless a rule says otherwise."""
    atomic = {"role": "atomize", "reply": "yes"}
    split = {"role": "atomize", "depth": 0, "json": {"atomic": False}}
    made = RecursiveTaskSolver.roma(scripted(*rules, split, atomic, default="an answer"), **settings)
    return made.solve(task)


# --- plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        PLAN,
        f"Here is the plan:\n```json\n{PLAN}\n```\nGood luck!",
        f"<think>Maybe {{'subtasks': []}}? No.</think>{PLAN}",
        f"so the plan is clear.</think>\n\n{PLAN}",
        PLAN.replace('"search"}', '"search",},').replace("]}]}", "],},]}").replace(",,", ","),
        PLAN.replace('"', "'"),
        "```\n" + json.dumps(json.loads(PLAN)["subtasks"], indent=2) + "\n```",
        PLAN.replace("read", "re\nad").replace("re\nad", "read"),
    ],
    ids=["plain", "fence", "reasoning", "end of reasoning", "trailing commas", "python", "list", "newline"],
)
def test_a_plan_is_read_in_whatever_form_it_comes(reply: str) -> None:
    entries: Any = read_plan(from_text("", reply))
    assert [entry["task"] for entry in entries] == ["read", "sum up"]
    assert entries[1]["depends_on"] == ["a"]


def test_bullets_are_a_plan_without_dependencies() -> None:
    assert read_plan(from_text("", "Sure:\n- one\n* two")) == ["one", "two"]


@pytest.mark.parametrize("text", ["", '{"a": {"b": "}"}', "{", "}{", "{]", '{"a": 1', "{" * 2000])
def test_what_is_no_object_is_none(text: str) -> None:
    assert list(objects(text)) in ([], [{"b": "}"}])


def test_the_last_fitting_object_counts() -> None:
    assert read_object(from_text("", '{"atomic": false} … {"atomic": true} {"other": 1}'), "atomic") == {"atomic": True}
    assert without_reasoning("<think>a</think>b<thinking>c") == "b"


def entry(id_: str, task: str, *needs: str, kind: str = "think") -> dict[str, Any]:
    return {"id": id_, "task": task, "kind": kind, "depends_on": list(needs)}


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ([entry("a", "x", "b"), entry("b", "y", "a")], "the subtasks a -> b -> a depend on one another in a circle"),
        ([entry("a", "x", "a")], "subtask 'a' depends on itself"),
        ([entry("a", "x", "z")], "subtask 'a' depends on 'z', which is no subtask of the plan"),
        ([entry("a", "x"), entry("a", "y")], "two subtasks have the id 'a'"),
        ([entry("a", "x"), entry("b", " X. ")], "subtask 'b' repeats subtask 'a'"),
        ([entry("a", "x"), entry("b", " ")], "subtask 'b' is blank"),
        ([entry("a", "x"), entry("b", "The task.")], "subtask 'b' restates the task of frame 0"),
        ([entry("a", "x", kind="dance")], "subtask 'a' is of the kind 'dance'; kinds are search, think, write, code"),
        ([entry(str(n), f"x{n}") for n in range(6)], "6 subtasks, more than max_subtasks = 5"),
    ],
)
def test_a_faulty_plan_goes_back_once_with_its_fault_then_the_task_is_solved_directly(plan: Any, fault: str) -> None:
    result = solve({"role": "decompose", "json": {"subtasks": plan}})
    assert result.success
    assert result.frames == 1
    assert result.notes == [f"0: plan refused: {fault}; solved directly"]
    assert result.usage["by_role"]["decompose"]["calls"] == 2
    good = {"role": "decompose", "contains": re.escape(fault), "json": {"subtasks": [entry("a", "x"), entry("b", "y")]}}
    mended = solve(good, {"role": "decompose", "json": {"subtasks": plan}})
    assert (mended.frames, mended.notes) == (3, [])


@pytest.mark.parametrize("reply", ['{"subtasks": [{"id": "a", "task": "half of', "I would rather not."])
def test_a_reply_that_is_no_plan_goes_back_too(reply: str) -> None:
    result = solve(
        {"role": "decompose", "contains": "Your last plan", "json": {"subtasks": []}},
        {"role": "decompose", "reply": reply},
    )
    assert (result.success, result.frames) == (True, 1)
    assert result.usage["by_role"]["decompose"]["calls"] == 2


@pytest.mark.parametrize("plan", [[], None, [entry("a", ""), entry("b", " ")]])
def test_case_5_an_empty_plan_is_solved_directly(plan: Any) -> None:
    result = solve({"role": "decompose", "json": {"subtasks": plan}})
    assert (result.output, result.frames) == ("an answer", 1)


def test_case_9_a_plan_cut_at_its_length_limit_is_not_asked_for_again_unchanged(tmp_path: Path) -> None:
    cut = {"role": "decompose", "error": "length", "json": {"subtasks": [entry("a", "x"), entry("b", "y")]}}
    model = ScriptedChatModel.from_script({"rules": [cut], "default": "an answer", "log": "log"}, tmp_path)
    result = RecursiveTaskSolver.roma(model, atomizer=lambda task, depth: False).solve("t")
    asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len({line["request"] for line in asked}) == len(asked)
    assert [line["role"] for line in asked].count("decompose") == 2
    assert result.success
    assert "cut its reply off" in result.notes[0]


@pytest.mark.parametrize("role", ["solve", "aggregate"])
def test_case_9_an_answer_cut_at_its_length_limit_is_asked_for_in_other_words(tmp_path: Path, role: str) -> None:
    cut = {"role": role, "attempt": 1, "error": "length", "reply": "a long answer"}
    plan = {"role": "decompose", "depth": 0, "reply": "- one\n- two"}
    model = ScriptedChatModel.from_script({"rules": [cut, plan], "default": "an answer", "log": "log"}, tmp_path)
    result = RecursiveTaskSolver.roma(model, atomizer=lambda task, depth: depth > 0).solve("t")
    asked = [json.loads(line)["request"] for line in (tmp_path / "log").read_text().splitlines()]
    assert result.success
    assert len(set(asked)) == len(asked)


def test_case_1_a_planner_that_never_stops_is_held_by_the_bound() -> None:
    numbers = count()
    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        verifier=always_accept(),
        atomizer=lambda task, depth: False,
        decomposer=lambda task, depth: [f"part {next(numbers)}" for _ in range(5)],
        max_depth=3,
    )
    result = made.solve("t")
    assert result.success
    assert result.frames == made.bound["frames"] == 156
    assert result.usage["calls"] <= made.bound["calls"]


def test_case_2_paraphrases_on_every_level_are_held_by_the_frame_limit() -> None:
    numbers = count()
    said = ["Explain {}", "Give an explanation of {}", "Describe {} in words", "Say what {} is"]
    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        atomizer=lambda task, depth: False,
        decomposer=lambda task, depth: [text.format(f"it ({next(numbers)})") for text in said],
        max_depth=3,
        max_frames=30,
    )
    result = made.solve("Explain it")
    assert result.status == "limited"
    assert result.frames <= 30
    assert "max_frames = 30 reached" in " ".join(result.gaps)


@pytest.mark.parametrize("depth", [0, 1])
def test_case_3_a_child_that_restates_a_task_above_it_is_refused(depth: int) -> None:
    numbers = count()

    def split(task: str, level: int) -> list[dict[str, Any]]:
        return [
            entry("a", "The task!" if level == depth else f"x {next(numbers)}"),
            entry("b", f"y {next(numbers)}", "a"),
        ]

    made = RecursiveTaskSolver.roma(
        lambda prompt: "an answer",
        verifier=always_accept(),
        atomizer=lambda task, depth: False,
        decomposer=split,
        max_depth=2,
    )
    result = made.solve("the task")
    assert result.success
    assert "subtask 'a' restates the task of frame 0" in result.notes[0]


# --- verdicts, retries and who is sent back ------------------------------------------------------------------


TWO = {"role": "decompose", "depth": 0, "json": {"subtasks": [entry("a", "one"), entry("b", "two")]}}


def test_a_retry_is_told_what_was_wrong_and_what_was_answered() -> None:
    seen: list[str] = []

    def model(prompt: str) -> str:
        seen.append(prompt)
        return f"answer {len(seen)}"

    verdicts = iter([Verdict.reject("too short"), Verdict.accept()])
    made = RecursiveTaskSolver.roma(model, atomizer=lambda task, depth: True, verifier=lambda *about: next(verdicts))
    result = made.solve("t")
    assert result.output == "answer 2"
    assert "too short" in seen[1]
    assert "answer 1" in seen[1]


def test_a_rejected_combination_is_combined_again_with_the_feedback() -> None:
    reject = {"role": "verify", "frame": "0", "attempt": 1, "json": {"accepted": False, "feedback": "no figures"}}
    again = {"role": "aggregate", "contains": "no figures", "reply": "with figures"}
    result = solve(TWO, reject, again)
    assert result.output == "with figures"
    assert result.usage["by_role"]["solve"]["calls"] == 2
    assert result.usage["by_role"]["aggregate"]["calls"] == 2


@pytest.mark.parametrize(
    "verdict",
    [
        {"json": {"accepted": False, "feedback": "the wrong year", "guilty": "0.1"}},
        {"reply": "REJECT 0.1 has the wrong year"},
    ],
    ids=["named", "mentioned"],
)
def test_a_rejected_combination_sends_the_guilty_child_back_once(verdict: dict[str, Any]) -> None:
    reject = {"role": "verify", "frame": "0", **verdict}
    again = {"role": "solve", "frame": r"0\.1", "attempt": 2, "contains": "wrong year", "reply": "the right year"}
    echo = {"role": "aggregate", "contains": "the right year", "reply": "right"}
    result = solve(TWO, {**reject, "attempt": 1}, again, echo)
    assert result.output == "right"
    assert result.usage["by_frame"]["0.1"]["calls"] == 1 + 2 * 2  # atomize, and two attempts solved and verified
    assert result.usage["by_frame"]["0.0"]["calls"] == 1 + 2
    assert "0.1: sent back" in result.notes[0]
    stubborn = solve(TWO, reject, again, max_retries=3)
    assert stubborn.status == "failed"
    assert stubborn.usage["by_frame"]["0.1"]["calls"] == 1 + 2 * 2  # once only
    assert stubborn.partial is not None
    assert stubborn.gaps[0].startswith("0: rejected after 3 attempts")


def test_no_child_is_sent_back_where_none_or_several_are_named() -> None:
    reject = {"role": "verify", "frame": "0", "attempt": 1, "reply": "REJECT 0.0 and 0.1 contradict each other"}
    assert solve(TWO, reject).usage["by_role"]["solve"]["calls"] == 2


def test_the_bound_holds_whatever_is_rejected() -> None:
    split = {"role": "atomize", "json": {"atomic": False}}
    plan = {"role": "decompose", "json": {"subtasks": [entry("a", "one of {task}"), entry("b", "two of {task}")]}}
    settings: dict[str, Any] = {"max_depth": 2, "max_subtasks": 2, "max_retries": 2}
    for reject in (r"0\.\d\.\d", r"0\.\d", "0"):
        rule = {"role": "verify", "frame": reject, "json": {"accepted": False, "feedback": f"{reject[:1]}.1 is bad"}}
        made = RecursiveTaskSolver.roma(scripted(split, plan, rule, default="an answer"), **settings)
        result = made.solve("t")
        assert result.usage["calls"] <= made.bound["calls"]


# --- models by role and kind ---------------------------------------------------------------------------------


def test_a_model_for_a_role_and_for_a_kind() -> None:
    plan = [entry(kind, f"do {kind}", kind=kind) for kind in KINDS]
    models = {f"solve.{kind}": scripted(default=f"by {kind}") for kind in ("search", "code")}
    result = solve(
        {"role": "decompose", "json": {"subtasks": plan}},
        {"role": "aggregate", "contains": "by search", "reply": "seen"},
        role_models=models,
    )
    details = {trace.frame: trace.detail for trace in result.traces if trace.type == "SOLVED"}
    assert details == {"0.0": "by search", "0.1": "an answer", "0.2": "an answer", "0.3": "by code"}
    assert result.output == "seen"


@pytest.mark.parametrize("error", ["server", "rate_limit", "refusal", "connection"])
def test_the_next_model_is_asked_where_one_fails(error: str) -> None:
    bad = scripted({"role": "solve", "error": error})
    made = RecursiveTaskSolver.roma(
        scripted(default="main"),
        atomizer=lambda task, depth: True,
        verifier=always_accept(),
        role_models={"solve": [bad, scripted(default="second")]},
        call_attempts=1,
    )
    result = made.solve("t")
    assert result.output == "second"
    assert "the next model is asked" in result.notes[0]
    assert result.usage["calls"] <= made.bound["calls"]


def test_fallbacks_on_the_command_line(cactus: Cactus) -> None:
    bad, good = cactus.folder / "bad.yaml", cactus.folder / "good.yaml"
    bad.write_text("rules: [{error: server}]")
    good.write_text("default: good")
    models = f"solve.think=scripted:{bad},scripted:{good}"
    done = cactus(
        "solve",
        "t",
        "--json",
        "--max-depth=0",
        "-c",
        "call_attempts=1",
        "--model",
        f"scripted:{good}",
        "--role-model",
        models,
    )
    assert done.document["output"] == "good"
    wrong = cactus("solve", "t", "--role-model", "solve.dance=local", "--model", f"scripted:{good}")
    assert wrong.status == 2
    assert "solve.code" in wrong.err


# --- executors -----------------------------------------------------------------------------------------------


def test_an_executor_is_replaced_by_kind() -> None:
    plan = {
        "role": "decompose",
        "json": {"subtasks": [entry("a", "look", kind="search"), entry("b", "add", kind="code")]},
    }
    result = solve(plan, executors={"code": lambda task: f"mine: {task}"})
    details = {trace.frame: trace.detail for trace in result.traces if trace.type == "SOLVED"}
    assert details == {"0.0": "an answer", "0.1": "mine: add"}


def test_a_text_is_drafted_and_revised() -> None:
    plan = {
        "role": "decompose",
        "json": {"subtasks": [entry("a", "write a", kind="write"), entry("b", "write b", kind="write")]},
    }
    revised = {"role": "solve", "contains": "(?s)Draft:.*a draft", "reply": "better"}
    result = solve(plan, revised, {"role": "solve", "reply": "a draft"})
    assert {trace.detail for trace in result.traces if trace.type == "SOLVED"} == {"better"}
    assert result.usage["by_role"]["solve"]["calls"] == 4


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("First 2+2.\nAnswer: 4", "4"),
        ("Step.\n**Answer:**\nIt is\nfour.", "It is\nfour."),
        ("<think>Answer: 5</think>Answer: 4", "4"),
        ("The answer is 4.", "The answer is 4."),
        ("Answer:", "Answer:"),
    ],
)
def test_thinking_gives_its_conclusion(reply: str, answer: str) -> None:
    assert solve({"role": "solve", "reply": reply}, max_depth=0).output == answer


# --- the aggregator ------------------------------------------------------------------------------------------


def combining(children: list[str], window: int = 8000, **settings: Any) -> tuple[SolveResult, list[str]]:
    """Combine children's answers; return the result and what the model was asked."""
    seen: list[str] = []

    def model(prompt: str) -> str:
        seen.append(prompt)
        found = sorted(set(re.findall(r"MARK\d+", prompt)))
        return " ".join(found) + " short"

    numbers = {f"part {number}": answer for number, answer in enumerate(children)}
    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: depth > 0,
        decomposer=lambda task, depth: list(numbers),
        executors=dict.fromkeys(KINDS, lambda task: numbers[task]) | {"": lambda task: numbers[task]},
        verifier=always_accept(),
        max_subtasks=99,
        window=window,
        **settings,
    )
    result = made.solve("the task")
    assert result.usage["calls"] <= made.bound["calls"]
    return result, seen


def test_case_10_forty_children_of_20_kb_are_combined_in_a_tree_and_nothing_is_dropped() -> None:
    result, seen = combining([f"MARK{number} ".ljust(20_000, "x") for number in range(40)])
    assert result.success
    assert {f"MARK{number}" for number in range(40)} <= set((result.output or "").split())
    assert max(map(estimate_tokens, seen)) <= 8000
    assert result.notes == []


def test_a_child_larger_than_the_window_is_shortened_in_pieces() -> None:
    whole = " ".join(f"MARK{number} {'x' * 1500}\n\n" for number in range(30))
    result, seen = combining([whole, "MARK99"])
    assert max(map(estimate_tokens, seen)) <= 8000
    assert {f"MARK{number}" for number in range(30)} | {"MARK99"} <= set((result.output or "").split())


def test_what_exceeds_all_bounds_is_left_out_and_said() -> None:
    result, seen = combining(["y" * 400_000, "MARK1"])
    assert result.success
    assert len(seen) <= 9
    assert "left out, for they exceed the model's window" in result.notes[0]


def test_the_combination_is_told_of_gaps_conflicts_and_its_size() -> None:
    seen: list[str] = []

    def model(prompt: str) -> str:
        seen.append(prompt)
        return "combined"

    def work(task: str) -> str:
        if task == "x":
            raise ValueError("bang")
        return "an answer"

    made = RecursiveTaskSolver.roma(
        model,
        atomizer=lambda task, depth: task in "xyz",
        decomposer=lambda task, depth: ["inner", "z"] if depth == 0 else ["x", "y"],
        executors=dict.fromkeys(KINDS, work) | {"": work},
        verifier=always_accept(),
        answer_tokens=321,
    )
    assert made.solve("t").gaps == ["0.0.0: solve raised ValueError: bang"]
    inner, outer = seen
    assert "- [0.0.0] x (solve raised ValueError: bang)" in inner
    assert "at most 321 tokens" in inner
    assert "tokens (about" not in outer  # the root's answer is as long as its task wants
    assert "contradict each other" in inner


@pytest.mark.parametrize("odd", ["hello", {"a": "x"}, 5, [5, 6], [[1], [2]], "x"])
def test_a_plan_in_no_form_at_all_goes_back_and_is_then_given_up(odd: Any) -> None:
    result = solve({"role": "decompose", "json": {"subtasks": odd}})
    assert (result.success, result.frames) == (True, 1)
    assert "plan refused" in result.notes[0]
    assert "the decomposer" not in result.notes[0]


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("1. first\n2. second", ["first", "second"]),
        ("Plan:\n1) first\n   - detail a\n   - detail b\n2) second", ["first; detail a; detail b", "second"]),
        ("- first\n  - sub one\n- second", ["first; sub one", "second"]),
    ],
)
def test_numbered_and_nested_lists_are_plans(text: str, plan: list[str]) -> None:
    assert read_plan(from_text("", text)) == plan


@pytest.mark.parametrize("needs", ["a, b", ["a", None, "b"], ["a", "b", "a"]])
def test_dependencies_are_read_in_odd_forms(needs: Any) -> None:
    plan = from_entries([entry("a", "x"), entry("b", "y"), {"task": "z", "depends_on": needs}])
    assert plan[2]["depends_on"] == ["a", "b"]


def test_a_number_in_the_feedback_is_no_frame() -> None:
    reject = {"role": "verify", "frame": "0", "attempt": 1, "reply": "REJECT the p value must be 0.1"}
    assert solve(TWO, reject).usage["by_role"]["solve"]["calls"] == 2
    named = {"role": "verify", "frame": "0", "attempt": 1, "json": {"accepted": False, "feedback": "no", "guilty": "b"}}
    assert solve(TWO, named).usage["by_frame"]["0.1"]["calls"] == 1 + 2 * 2  # by its id in the plan


def test_an_empty_answer_is_asked_for_again() -> None:
    result = solve({"role": "solve", "attempt": 1, "reply": ""}, max_depth=0)
    assert result.output == "an answer"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"executors": [1]}, "executors must be a mapping"),
        ({"executors": {"dance": str}}, "there is no kind 'dance'"),
        ({"executors": {"code": 1}}, "must be a function"),
        ({"tools": 5}, "tools must be a list"),
        ({"tools": [5]}, "is a int"),
        ({"role_models": ["x"]}, "role_models must be a mapping"),
        ({"role_models": {"dance": "x"}}, "there is no role 'dance'"),
        ({"parallel": 0}, "parallel must be"),
        ({"on_failure": "maybe"}, "on_failure must be"),
    ],
)
def test_what_roma_is_wrongly_given_is_refused_when_it_is_built(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RecursiveTaskSolver.roma(str.upper, **wrong)
