"""The agent profile: code that launches copies of its agent, killed, resumed, replayed, forked and bounded."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frames.errors import UsageError
from graph import RecursiveTaskSolver, Verdict
from graph.runs import Runs
from graph.store import open_store
from nodes import verify
from nodes.change import Change
from nodes.context import Context
from nodes.sandbox import cells
from tests.agents import NESTED, NESTED_ANSWER, block, by_step, script

ROOT = Path(__file__).parent.parent


def agent(folder: Path, *rules: dict[str, Any], **settings: Any) -> RecursiveTaskSolver:
    return RecursiveTaskSolver.agent(script(folder, *rules), **settings)


def calls(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


async def last(events: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    async for event in events:
        document = event.get("result", document)
    return document


def test_code_launches_copies_and_goes_on_with_what_they_give(tmp_path: Path) -> None:
    result = agent(tmp_path, *NESTED).solve("the task")
    assert json.loads(result.output or "") == NESTED_ANSWER
    assert result.frames == 6
    assert [trace.frame for trace in result.traces if trace.type == "SOLVED"].count("0.0.1") == 1


def test_one_after_another_gives_the_same(tmp_path: Path) -> None:
    result = agent(tmp_path, *NESTED, parallel=1).solve("the task")
    assert json.loads(result.output or "") == NESTED_ANSWER


def test_a_run_killed_at_any_write_goes_on_with_its_variables(where: str, tmp_path: Path) -> None:
    script(tmp_path, *NESTED)
    place = where if "://" in where else str(tmp_path)
    stride = "6"
    settings = json.dumps({"profile": "agent", "parallel": 4})
    command = [sys.executable, "-m", "tests.killing", place, str(tmp_path / "agent.yaml"), settings, stride]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    print(told)
    assert told["points"] * int(stride) > told["calls"]
    assert not told["differs"]
    assert told["most"] <= 4, "more than the calls in flight were made again"


async def test_a_replay_runs_no_code_and_gives_the_same(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context.checked(profile="agent", model=script(tmp_path, *NESTED))
    async with open_store(where) as store:
        runs = Runs(store)
        document = await last(runs.start(context, "the task", "run"))

        async def never(*_: Any) -> None:
            raise AssertionError("a cell was run")

        monkeypatch.setattr(cells.Cells, "run", never)
        (tmp_path / "agent.yaml").unlink()
        replayed = await runs.replay(context, "run")
        assert replayed.output == document["output"]


async def test_a_fork_runs_again_what_the_change_touches_alone(where: str, tmp_path: Path) -> None:
    context = Context.checked(profile="agent", model=script(tmp_path, *NESTED))
    async with open_store(where) as store:
        runs = Runs(store)
        await last(runs.start(context, "the task", "run"))
        made = len(calls(tmp_path))
        document = await last(runs.fork(context, "run", "answer", Change("0.1", answer="60")))
        assert json.loads(document["output"]) == {**NESTED_ANSWER, "count": 100}
        assert {call["frame"] for call in calls(tmp_path)[made:]} == {"0"}
        made = len(calls(tmp_path))
        document = await last(runs.fork(context, "run", "task", Change("0.0.1", task="another leaf")))
        assert {call["frame"] for call in calls(tmp_path)[made:]} == {"0.0.1"}, "its answer was the same"
        assert json.loads(document["output"]) == NESTED_ANSWER
        assert (await runs.replay(context, "answer")).output == (await runs.result(context, "answer")).output


async def test_the_stream_tells_of_cells_and_of_launches_as_frames(tmp_path: Path) -> None:
    events = [event async for event in agent(tmp_path, *NESTED).astream("the task")]
    ran = [event for event in events if event["event"] == "cell" and event["frame"] == "0"]
    assert [cell["step"] for cell in ran] == [1, 2, 2, 2, 3]
    assert [[each["frame"] for each in cell["launches"]] for cell in ran] == [[], ["0.0", "0.1"], ["0.2"], [], []]
    assert ran[3]["output"] == "['begun', 'left of leaf 0 and leaf 1 with 1'] 42 the rest\n"
    assert ran[4]["finished"]
    assert "finish({'seen'" in ran[4]["code"]
    frames = [event["frame"] for event in events if event["event"] == "frame"]
    assert sorted(frames) == ["0", "0.0", "0.0.0", "0.0.1", "0.1", "0.2"]
    assert sorted(event["frame"] for event in events if event["event"] == "done") == sorted(frames)


def launched(folder: Path, code: str, *rules: dict[str, Any], **settings: Any) -> Any:
    """Return what the root's code, which puts it under ``out``, finishes with."""
    root = {"role": "solve", "depth": 0, "reply": block(f"{code}\nfinish({{'out': out}})")}
    result = agent(folder, root, *rules, **settings).solve("the task")
    assert result.success, (result.status, result.gaps)
    return json.loads(result.output or "")["out"]


TELLS = "out = [r.reason, r.message, r.partial] if isinstance(r, Failure) else r"


@pytest.mark.parametrize(
    ("launch", "settings", "said"),
    [
        ("'The  task. '", {}, "this is your own goal"),
        ("'a part'", {"max_depth": 0}, "no level is left below you (max_depth = 0)"),
        ("'a part'", {"max_children": 0}, "no launch is left (max_children = 0)"),
    ],
)
def test_a_refusal_says_why_and_begins_nothing(
    launch: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    reason, message, partial = launched(tmp_path, f"r = await launch_subagent({launch})\n{TELLS}", **settings)
    assert (reason, partial) == ("refused", None)
    assert message.startswith(said)
    assert len(calls(tmp_path)) == 1


def test_a_goal_of_an_ancestor_is_refused(tmp_path: Path) -> None:
    child = {
        "role": "solve",
        "depth": 1,
        "reply": block(f"r = await launch_subagent('THE TASK')\n{TELLS}\nfinish(out)"),
    }
    out = launched(tmp_path, "out = await launch_subagent('a part')", child)
    assert out[0] == "refused"
    assert "one above you" in out[1]


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("' '", "the goal must be a text"),
        ("3", "the goal must be a text"),
        ("'x', kind='dream'", "there is no kind 'dream'"),
        ("'x', returns='number of things'", "is no type's name"),
        ("'x', returns={'pattern': 'x'}", "pattern of JSON schema is not checked"),
        ("'x', context=open", "no JSON value"),
    ],
)
def test_wrong_use_raises(launch: str, said: str, tmp_path: Path) -> None:
    code = f"try:\n    await launch_subagent({launch})\nexcept (ValueError, TypeError) as error:\n    out = str(error)"
    assert said in launched(tmp_path, code)


def test_only_as_many_children_as_may_be_are_begun(tmp_path: Path) -> None:
    code = (
        "rs = await asyncio.gather(*[launch_subagent('part %d' % i) for i in range(1000)])\n"
        "out = [sum(isinstance(r, Failure) for r in rs), rs[0], rs[4]]"
    )
    child = {"role": "solve", "depth": 1, "reply": block("finish('done')")}
    refused, first, last_one = launched(tmp_path, code, child, max_children=5, code_seconds=30)
    assert (refused, first, last_one) == (995, "done", "done")
    assert len(calls(tmp_path)) == 6


def test_a_limit_of_frames_refuses_the_rest_and_tells_it(tmp_path: Path) -> None:
    code = (
        "rs = await asyncio.gather(*[launch_subagent('part %d' % i) for i in range(4)])\nfinish([str(r) for r in rs])"
    )
    root = {"role": "solve", "depth": 0, "reply": block(code)}
    child = {"role": "solve", "depth": 1, "reply": block("finish('done')")}
    result = agent(tmp_path, root, child, max_frames=3).solve("the task")
    assert result.frames == 3
    assert result.status == "limited", "the answer lacks what was refused"
    first, second, third, fourth = json.loads(result.partial or "")
    assert (first, second) == ("done", "done")
    assert "max_frames = 3 reached" in third
    assert third == fourth


COUNTED = "{'type': 'object', 'required': ['n'], 'properties': {'n': {'type': 'number', 'minimum': 1}}}"


@pytest.mark.parametrize(
    ("returns", "value", "fits"),
    [
        ("'int'", "7", True),
        ("'int'", "'seven'", False),
        ("int", "7", True),
        ("'list[str]'", "['a']", True),
        ("'list[str]'", "['a', 1]", False),
        (
            "{'type': 'object', 'required': ['n'], 'properties': {'n': {'type': 'number', 'minimum': 1}}}",
            "{'n': 2}",
            True,
        ),
        (
            "{'type': 'object', 'required': ['n'], 'properties': {'n': {'type': 'number', 'minimum': 1}}}",
            "{'n': 0}",
            False,
        ),
        ("{'enum': ['a', 'b']}", "'b'", True),
        ("{'anyOf': [{'type': 'null'}, {'type': 'string'}]}", "1", False),
        ("None", "{'any': [1, None, True]}", True),
    ],
)
def test_an_answer_has_the_form_that_was_asked_for(returns: str, value: str, fits: bool, tmp_path: Path) -> None:
    tried = {"role": "solve", "depth": 1, "contains": "It failed", "reply": block("finish(fallback)")}
    child = {"role": "solve", "depth": 1, "reply": block(f"fallback = 0\nfinish({value})")}
    code = f"r = await launch_subagent('a part', returns={returns})\n{TELLS}"
    out = launched(tmp_path, code, tried, child, agent_steps=2)
    if fits:
        assert out == eval(value)
        assert len(calls(tmp_path)) == 2
    else:
        assert len(calls(tmp_path)) == 3, "it was told, and tried again"


def test_an_agent_that_never_finishes_ends_with_what_it_printed(tmp_path: Path) -> None:
    child = {"role": "solve", "depth": 1, "reply": block("print('so far')")}
    code = f"r = await launch_subagent('a part')\n{TELLS}"
    reason, message, partial = launched(tmp_path, code, child, agent_steps=3)
    assert (reason, partial) == ("budget", "so far")
    assert "3 replies (agent_steps)" in message
    alone = agent(tmp_path, child | {"depth": 0}, agent_steps=3).solve("the task")
    assert (alone.status, alone.partial) == ("limited", "so far")
    assert alone.gaps == ["0: it did not finish within its 3 replies (agent_steps)"]


def test_an_agent_near_its_window_is_told_and_then_ended(tmp_path: Path) -> None:
    talks = {"role": "solve", "reply": "thought " * 200 + block("print('y' * 500)")}
    result = agent(tmp_path, talks, agent_tokens=2_500).solve("the task")
    assert result.status == "limited"
    assert result.gaps == ["0: it did not finish within its 2500 tokens of conversation (agent_tokens)"]
    heeds = {"role": "solve", "contains": "Your conversation is nearly full", "reply": block("finish('in time')")}
    assert agent(tmp_path, heeds, talks, agent_tokens=2_500).solve("the task").output == "in time"


def test_a_limit_of_calls_ends_agents_with_what_they_have(tmp_path: Path) -> None:
    child = {"role": "solve", "depth": 1, "reply": block("print('a start')")}
    root = {
        "role": "solve",
        "depth": 0,
        "reply": block("r = await launch_subagent('a part')\nprint(r)\nfinish([r.reason, r.partial])"),
    }
    result = agent(tmp_path, root, child, max_calls=4).solve("the task")
    assert result.usage["calls"] == 4
    assert (result.status, json.loads(result.partial or "")) == ("limited", ["budget", "a start"])
    alone = agent(tmp_path, child | {"depth": 0}, max_calls=1).solve("the task")
    assert alone.gaps[0] == "0: it did not finish before the run had to stop: max_calls = 1 reached"


def test_a_rejected_answer_goes_back_to_the_agent(tmp_path: Path) -> None:
    rules = [
        {"role": "verify", "attempt": 1, "json": {"accepted": False, "feedback": "too short"}},
        {"role": "solve", "contains": "Your answer was rejected: too short", "reply": block("finish('long ' * n)")},
        *by_step("n = 3", "finish('brief')"),
    ]
    result = agent(tmp_path, *rules, verifier=verify.structured()).solve("the task")
    assert result.output == "long long long "
    never = [{"role": "verify", "json": {"accepted": False, "feedback": "no"}}, *rules[1:]]
    result = agent(tmp_path, *never, verifier=verify.structured()).solve("the task")
    assert (result.status, result.gaps) == ("failed", ["0: rejected after 2 attempts: no"])


def add(a: int, b: int = 1) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


def test_tools_are_asynchronous_functions_that_give_values_and_raise(tmp_path: Path) -> None:
    code = (
        "a, b = await asyncio.gather(add(1), add(2, b=3))\n"
        "try:\n    await fail('no luck')\nexcept RuntimeError as error:\n    said = str(error)\n"
        "try:\n    await add(1, 2, 3)\nexcept TypeError as error:\n    wrong = str(error)\n"
        "out = [a['sum'], b, said, wrong]"
    )
    first, second, said, wrong = launched(tmp_path, code, tools=[add, fail])
    assert (first, second) == (2, {"sum": 5})
    assert "no luck" in said
    assert wrong == "add() takes 2 arguments (a, b)"


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("I think the answer is 4.", "no block of code"),
        (block("launch_subagent('x')"), "launch_subagent(…) is not awaited"),
        (block("r = launch_subagent('x') + 1"), "is not awaited"),
        (block("print(add(1))"), "add(…) is not awaited"),
        (block("if x\n  y"), "SyntaxError"),
        (block("1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_fault_is_told_before_or_after_the_code_ran(reply: str, said: str, tmp_path: Path) -> None:
    rules = [
        {"role": "solve", "contains": re.escape(said), "reply": block("finish('mended')")},
        {"role": "solve", "contains": "Left: 25", "reply": reply},
    ]
    assert agent(tmp_path, *rules, tools=[add]).solve("the task").output == "mended"


def test_a_large_context_and_a_large_answer_are_handed_over_whole(tmp_path: Path) -> None:
    rows = "context = ['row %d' % i for i in range(20000)]"
    child = {"role": "solve", "depth": 1, "reply": block("finish({'rows': context[::-1], 'n': len(context)})")}
    code = f"{rows}\nr = await launch_subagent('turn them round', context=context)\nout = [r['n'], r['rows'][0]]"
    assert launched(tmp_path, code, child) == [20_000, "row 19999"]
    assert "row 19999" not in (tmp_path / "calls.jsonl").read_text()


async def test_what_code_does_to_its_budget_changes_no_limit(tmp_path: Path) -> None:
    code = "budget['steps'] = budget['depth'] = 99\nbudget = {'depth': 99}\nr = await launch_subagent('x')\n" + TELLS
    assert launched(tmp_path, code, max_depth=0)[0] == "refused"


async def test_a_session_of_another_version_is_refused_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodes.agent import session

    context = Context.checked(profile="agent", model=script(tmp_path, *NESTED), max_calls=2)
    async with open_store(tmp_path / "runs.db") as store:
        runs = Runs(store)
        monkeypatch.setattr(session, "VERSION", "1.3.0")
        await last(runs.start(context, "the task", "run"))
        monkeypatch.undo()
        more = Context.checked(profile="agent", model=context.model)
        document = await last(runs.resume(more, "run"))
        assert document["status"] == "limited"
        assert "install pydantic-monty==1.3.0 and resume the run" in document["gaps"][0]
        monkeypatch.setattr(session, "VERSION", "1.3.0")
        document = await last(runs.resume(more, "run"))
        assert json.loads(document["output"]) == NESTED_ANSWER


def test_plans_cannot_be_approved_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an agent makes no plans"):
        agent(tmp_path, *NESTED, approve="plan")


async def test_the_deadline_ends_endless_code_and_gives_the_worker_back(tmp_path: Path) -> None:
    rules = {"role": "solve", "reply": block("while True:\n    pass")}
    began = time.monotonic()
    result = await agent(tmp_path, rules, deadline=1, code_seconds=60).asolve("the task")
    assert time.monotonic() - began < 10
    assert (result.status, result.gaps) == ("limited", ["0: deadline = 1.0 s reached"])


async def test_a_raised_limit_goes_on_where_the_agent_ended(where: str, tmp_path: Path) -> None:
    rules = [
        {"role": "solve", "contains": f"n is {n}", "reply": block(f"n = {n + 1}\nprint('n is', n)")} for n in (3, 2, 1)
    ]
    rules = [{"role": "solve", "contains": "n is 4", "reply": block("finish(n)")}, *rules]
    model = script(tmp_path, *rules, {"role": "solve", "reply": block("n = 1\nprint('n is', n)")})
    async with open_store(where) as store:
        runs = Runs(store)
        document = await last(runs.start(Context.checked(profile="agent", model=model, agent_steps=3), "t", "run"))
        assert (document["status"], document["partial"]) == ("limited", "n is 3")
        document = await last(runs.resume(Context.checked(profile="agent", model=model, agent_steps=9), "run"))
        assert (document["output"], document["usage"]["replayed_calls"]) == ("4", 3)
        assert len(calls(tmp_path)) == document["usage"]["calls"] == 5


def test_tools_that_were_used_are_not_used_again_after_a_kill(tmp_path: Path) -> None:
    code = (
        "a = await asyncio.gather(note('one'), note('two'))\nb = await die('here')\nfinish([a, b, await note('three')])"
    )
    script(tmp_path, {"role": "solve", "reply": block(code)})
    settings = json.dumps({"profile": "agent", "tools": ["tests.agents:note", "tests.agents:die"]})
    command = [sys.executable, "-m", "tests.agents", str(tmp_path), settings]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(json.loads(done.stdout)["output"]) == [["noted one", "noted two"], "alive", "noted three"]
    assert sorted((tmp_path / "notes.txt").read_text().split()) == ["one", "three", "two"]


HOSTILE = [
    "import os\nos.system('true')",
    "while True:\n    pass",
    "x = 'a' * (1 << 40)",
    "for _ in range(10**6):\n    print('x' * 1000)",
    "while True:\n    try:\n        await launch_subagent('the task')\n    except BaseException:\n        pass",
    "while True:\n    await add(1)",
    "rs = await asyncio.gather(*[launch_subagent('p%d' % i) for i in range(30_000)])",
    "await _launch(None, None)",
    "await _launch(1, 2, 3, 4, 5, 6, 7)",
    "await _tool('rm', [], {})",
    "await _tool(1, 2, 3)",
    "_finish()",
    "async def launch_subagent(*a):\n    return 1\nasync def f():\n    await f()\nawait f()",
    "await asyncio.gather(*[add(i) for i in range(3000)])",
]


@pytest.mark.parametrize("code", HOSTILE)
def test_hostile_code_is_stopped_and_the_run_goes_on(code: str, tmp_path: Path) -> None:
    rules = [
        *by_step("kept = 'intact'", code, "finish(kept)", depth=0),
        {"role": "solve", "depth": 1, "reply": block("finish('done')")},
    ]
    began = time.monotonic()
    result = agent(tmp_path, *rules, tools=[add], code_seconds=1, max_children=3).solve("the task")
    assert result.output == "intact"
    assert time.monotonic() - began < 20


LIMITS = st.fixed_dictionaries(
    {
        "max_depth": st.integers(0, 3),
        "max_children": st.integers(0, 3),
        "agent_steps": st.integers(1, 4),
        "max_frames": st.integers(1, 30),
        "max_retries": st.integers(1, 3),
    },
    optional={"max_calls": st.integers(1, 40), "agent_tokens": st.integers(1_000, 4_000)},
)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limits=LIMITS)
def test_no_run_passes_its_bound(seed: int, limits: dict[str, Any]) -> None:
    draw, made = random.Random(seed), 0

    def model(prompt: str) -> str:
        nonlocal made
        made += 1
        many = f"*[launch_subagent('part %d of {made}' % i) for i in range({draw.randint(1, 5)})]"
        return draw.choice(
            [
                block(f"rs = await asyncio.gather({many})\nprint(rs)"),
                block(f"rs = await asyncio.gather({many})\nfinish(str(rs))"),
                block(f"for i in range(3):\n    print(await launch_subagent('{made} is %d' % i))"),
                block("print('a' * 900)"),
                block("finish('done')"),
                block("1 / 0"),
                "no code",
                "",
            ]
        )

    def judge(task: str, answer: str, attempt: int) -> Verdict:
        return Verdict(draw.random() < 0.5, "more")

    solver = RecursiveTaskSolver.agent(model, verifier=judge, call_attempts=1, **limits)
    result = solver.solve("the task")
    assert made <= result.bound["calls"]  # type: ignore[index]
    assert result.frames <= result.bound["frames"] <= limits["max_frames"]  # type: ignore[index]
    assert result.usage["calls"] <= limits.get("max_calls", made)
    assert result.status in ("succeeded", "failed", "limited")


def test_two_hundred_subagents_over_three_levels_take_two_workers() -> None:
    command = [sys.executable, "bench/subagents.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        print(line)
        told = json.loads(line)
        assert (told["frames"], told["at_once"], told["output"]) == (211, 196, told["expected"])
        assert told["workers"] <= 2
        assert told["mb"] < 500
