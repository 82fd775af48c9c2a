"""The adaptive profile: look first, a pass over each file found, one integration behind them all."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from frames.findings import INTEGRATION, Findings, FindingsError, FoundFile, findings_of, grouped, plan_from
from frames.plan import check_graph, order
from graph import RecursiveTaskSolver, always_accept
from nodes.change import Change
from nodes.decompose import Intent
from nodes.mentions import mentioned
from nodes.models.local import available
from nodes.models.scripted import ScriptedChatModel
from nodes.tools.tree import Tree
from tests.cli import Cactus

TASK = "Review this package for error handling; cite file and line"


def spec(name: str) -> Path:
    found = find_spec(name)
    assert found
    assert found.origin
    return Path(found.origin).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of an installed package of 30 files or more."""
    folder = tmp_path / "package"
    shutil.copytree(spec("rich"), folder, ignore=shutil.ignore_patterns("__pycache__"))
    assert len(list(folder.rglob("*.py"))) >= 30
    return folder


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a small tree with sources, tests, a configuration and a readme."""
    texts = {
        "src/app.py": "import db\n\ntry:\n    db.open()\nexcept Exception:\n    pass\n",
        "src/db.py": "def open():\n    raise OSError('no')\n",
        "tests/test_app.py": "def test_app():\n    assert True\n",
        "pyproject.toml": "[project]\nname = 'shop'\n",
        "README.md": "# Shop\n",
    }
    for name, text in texts.items():
        (tmp_path / "shop" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shop" / name).write_text(text)
    return tmp_path / "shop"


def script(*rules: dict[str, Any], **top: Any) -> ScriptedChatModel:
    return ScriptedChatModel.from_script({"rules": list(rules), **top})


def paths(findings: Findings) -> list[str]:
    return [file.path for file in findings.files]


# --- the seed's examples


def test_files_named_in_the_text_are_found_without_a_root():
    found = mentioned(
        "Review `src/app.py` and lib/util.ts against https://example.org/x.py, e.g. in Node.js 3.11.", None
    )
    assert paths(found) == ["src/app.py", "lib/util.ts"]
    assert found.source == "text"


def test_one_pass_a_file_and_one_integration_that_depends_on_all():
    plan = plan_from("Review", Findings((FoundFile("a.py", "x"), FoundFile("b.py"))), 20)
    assert [entry["id"] for entry in plan] == ["per_file_0", "per_file_1", INTEGRATION]
    assert [entry["depends_on"] for entry in plan] == [[], [], ["per_file_0", "per_file_1"]]
    assert [entry.get("requires") for entry in plan] == [
        {"static_analysis": 1},
        {"static_analysis": 1},
        {"integration": 1},
    ]
    check_graph(plan, [{"id": "0", "task": "Review"}], None)
    assert order(plan)[-1] == 2


def test_no_file_no_pass_and_no_integration():
    assert plan_from("Review", Findings(), 20) == []


def test_findings_are_immutable_and_json():
    found = findings_of({"files": ["a.py", {"path": "b.py", "why": "w", "lines": [1, 9]}], "observations": ["o"]})
    assert findings_of(json.loads(json.dumps(found.plain()))) == found
    assert found.files[1].lines == "1-9"
    with pytest.raises(AttributeError):
        found.files = ()  # type: ignore[misc]
    for wrong, said in ((["a"], "list"), ({"files": "a.py"}, "files"), ({"files": [{"why": "w"}]}, "file 1")):
        with pytest.raises(FindingsError, match=said):
            findings_of(wrong)


@pytest.mark.parametrize(
    ("task", "requires"),
    [
        ("Review the login flow", ["code_review"]),
        ("Write tests, then document it", ["test_generation", "documentation"]),
        ("Document it and review it", ["documentation", "code_review"]),
        ("Say hello", []),
    ],
)
@pytest.mark.parametrize("most", [None, 2, 10])
def test_the_intent_rule_chains_what_is_asked_in_the_order_in_which_it_is_named(
    task: str, requires: list[str], most: int | None
):
    plan = Intent(most)(task, 0)
    assert [list(entry["requires"]) for entry in plan] == [[name] for name in requires]
    assert [entry["depends_on"] for entry in plan] == [[], *[[name] for name in requires[:-1]]][: len(plan)]
    assert Intent(most)(task, 1) == []


@pytest.mark.parametrize(
    ("most", "requires"),
    [
        (1, [["code_review", "test_generation", "documentation"]]),
        (2, [["code_review"], ["test_generation", "documentation"]]),
        (3, [["code_review"], ["test_generation"], ["documentation"]]),
    ],
)
def test_of_too_many_intents_the_last_subtask_has_the_rest(most: int, requires: list[list[str]]):
    assert [list(entry["requires"]) for entry in Intent(most)("Review, test and document it", 0)] == requires


@pytest.mark.parametrize(("files", "most"), [(1, 20), (20, 20), (21, 20), (99, 7), (1000, 20), (5, 1)])
def test_many_files_are_grouped_and_none_is_dropped(files: int, most: int):
    found = [FoundFile(f"{number}.py") for number in range(files)]
    groups = grouped(found, most)
    assert [file for group in groups for file in group] == found
    assert len(groups) == min(files, most)
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


# --- what a task implies


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Do the tests cover it?", ["tests/test_app.py"]),
        ("Is the config right?", ["pyproject.toml"]),
        ("Mend the readme.", ["README.md"]),
        ("What does the build need?", ["pyproject.toml"]),
        ("Review this package.", ["src/app.py", "src/db.py"]),
        ("Review app.py and the tests.", ["src/app.py", "tests/test_app.py"]),
        ("Look through src/ for bugs.", ["src/app.py", "src/db.py"]),
        ("Compare REST and/or gRPC.", []),
    ],
)
def test_names_that_a_task_implies_are_looked_up_below_the_root(shop: Path, task: str, expected: list[str]):
    assert sorted(paths(mentioned(task, Tree(shop)))) == sorted(expected)


def test_what_is_not_there_or_outside_is_left_out_with_a_word(shop: Path):
    (shop.parent / "secret.py").write_text("x")
    found = mentioned("Review none.py, ../secret.py and src/app.py", Tree(shop))
    assert paths(found) == ["src/app.py"]
    assert {each.what: each.why for each in found.left_out} == {
        "none.py": "no such file or directory",
        "../secret.py": "outside the root",
    }


# --- whole runs


def work(prompt: str) -> str:
    return f"an answer of {len(prompt)}"


def test_without_a_model_findings_and_plan_are_the_same_in_every_run(shop: Path):
    async def events() -> str:
        solver = RecursiveTaskSolver.adaptive(work, root=shop, investigator="text")
        told = [event async for event in solver.astream("Review src/app.py and the tests")]
        kept = [event for event in told if event["event"] in ("findings", "plan")]
        return json.dumps([{k: v for k, v in event.items() if k not in ("id", "time")} for event in kept])

    first, second = asyncio.run(events()), asyncio.run(events())
    assert first == second
    assert json.loads(first)[0]["files"][0]["path"] == "src/app.py"


LOOKS = [
    {
        "role": "investigate",
        "contains": "Observation",
        "json": {"files": [{"path": "console.py", "why": "raises"}, {"path": "../etc/passwd"}], "observations": ["o"]},
        "reply": '{"files": [{"path": "console.py", "why": "raises"}, {"path": "text.py"}, {"path": "../x"}]}',
    },
    {"role": "investigate", "reply": 'Action: search_files\nAction Input: {"text": "except "}'},
]


async def test_a_model_looks_at_the_disk_and_a_pass_goes_over_each_file(package: Path):
    model = script(
        *LOOKS,
        {"role": "solve", "frame": r"0\.0", "contains": r"1: import", "reply": "console.py:7 is bare"},
        {"role": "solve", "frame": r"0\.1", "reply": "text.py:3 is fine"},
        {"role": "solve", "frame": r"0\.2", "contains": r"console\.py:7", "reply": "Mend console.py:7 first."},
    )
    solver = RecursiveTaskSolver.adaptive(model, root=package)
    events = [event async for event in solver.astream(TASK)]
    [found] = [event for event in events if event["event"] == "findings"]
    assert [file["path"] for file in found["files"]] == ["console.py", "text.py"]
    assert found["left_out"] == [{"what": "../x", "why": "outside the root"}]
    result = events[-1]["result"]
    assert result["output"] == "Mend console.py:7 first."
    assert result["usage"]["calls"] <= result["bound"]["calls"]
    assert "aggregate" not in result["usage"]["by_role"]
    solved = [trace["detail"] for trace in result["traces"] if trace["type"] == "SOLVED"]
    assert [detail.partition("]")[0] for detail in solved] == ["[static_analysis 1.00"] * 2 + ["[integration 1.00"]
    began = {event["frame"]: place for place, event in enumerate(events) if event["event"] == "frame"}
    ended = {event["frame"]: place for place, event in enumerate(events) if event["event"] == "done"}
    assert began["0.2"] > max(ended["0.0"], ended["0.1"])


async def test_an_entry_that_cannot_be_read_is_left_out_and_the_others_stay(shop: Path):
    files = [{"path": ""}, {"path": "src/app.py", "why": "raises"}, 7, {"path": "src/db.py", "why": ["w"]}]
    reply = json.dumps({"files": files, "observations": [{"note": "x"}, "small"]})
    solver = RecursiveTaskSolver.adaptive(script({"role": "investigate", "reply": reply}, default="ok"), root=shop)
    [found] = [event async for event in solver.astream("Review src") if event["event"] == "findings"]
    assert [file["path"] for file in found["files"]] == ["src/app.py"]
    assert found["observations"] == ["small"]
    assert [each["what"] for each in found["left_out"]] == [
        "entry 1 of files",
        "entry 3 of files",
        "entry 4 of files",
        "entry 1 of observations",
    ]


async def test_a_whole_package_is_in_the_passes_each_file_once(package: Path):
    model = script({"role": "investigate", "reply": "It is all about errors, I think."}, default="text")
    solver = RecursiveTaskSolver.adaptive(model, root=package, max_files=6, window=20_000)
    events = [event async for event in solver.astream(TASK)]
    [plan] = [event for event in events if event["event"] == "plan"]
    inside = [path for subtask in plan["subtasks"][:-1] for path in subtask["files"]]
    expected = sorted(file.relative_to(package).as_posix() for file in package.rglob("*.py"))  # noqa: ASYNC240
    assert sorted(inside) == expected
    assert len(plan["subtasks"]) == 7
    result = events[-1]["result"]
    assert result["success"]
    assert result["output"].startswith("text\n\nPlaces named by the passes: ")
    assert result["usage"]["calls"] <= result["bound"]["calls"]
    assert result["frames"] <= result["bound"]["frames"]


def test_a_failed_integration_leaves_the_passes_to_be_combined(shop: Path):
    rejected = {"role": "verify", "frame": r"0\.2", "json": {"accepted": False, "feedback": "no"}}
    model = script(rejected, {"role": "aggregate", "reply": "combined"}, default="text")
    result = RecursiveTaskSolver.adaptive(model, root=shop).solve("Review this package")
    assert result.output == "combined"
    assert any(gap.startswith("0.2: rejected") for gap in result.gaps)


def test_a_cited_line_that_is_not_there_is_noted(shop: Path):
    model = script(
        {"role": "investigate", "reply": '{"files": ["src/app.py", "src/db.py"]}'},
        {"role": "solve", "frame": r"0\.0", "reply": "app.py:5 swallows it, app.py:4-77 too"},
        {"role": "solve", "frame": r"0\.1", "reply": "src/db.py:2 raises"},
        {"role": "solve", "frame": r"0\.2", "reply": "Mend src/app.py:6, src/db.py:3 and src/none.py:9."},
        default="ACCEPT",
    )
    result = RecursiveTaskSolver.adaptive(model, root=shop).solve("Review this package")
    assert result.output == "Mend src/app.py:6, src/db.py:3 and src/none.py:9."
    assert [note for note in result.notes if "cited" in note] == [
        "0.0: app.py:4-77 is cited, and that file has 6 lines",
        "0.2: src/db.py:3 is cited, and that file has 2 lines",
    ]


def test_none_found_is_solved_as_in_roma():
    model = script({"role": "atomize", "json": {"atomic": True}}, {"role": "solve", "reply": "hello"})
    result = RecursiveTaskSolver.adaptive(model).solve("Say hello")
    assert result.output == "hello"
    assert result.frames == 1


def test_intent_plans_without_a_model_and_without_files():
    result = RecursiveTaskSolver.adaptive(
        work,
        decomposer=Intent(10),
        atomizer=lambda task, depth: depth > 0,
        verifier=always_accept(),
        aggregator=lambda task, results: " | ".join(result["answer"] for result in results),
    ).solve("Review the login flow, then test it")
    solved = [trace.detail.partition("]")[0] for trace in result.traces if trace.type == "SOLVED"]
    assert solved == ["[code_review 1.00", "[test_generation 1.00"]


@pytest.mark.parametrize("reply", ["I would rather not", "{", '{"subtasks": [{"id": "a"}]}'])
def test_where_no_plan_of_the_models_can_be_followed_the_tasks_words_plan(reply: str):
    model = script(
        {"role": "investigate", "json": {"files": []}},
        {"role": "decompose", "reply": reply},
        {"role": "atomize", "depth": 0, "json": {"atomic": False}},
        {"role": "atomize", "json": {"atomic": True}},
        default="text",
    )
    solver = RecursiveTaskSolver.adaptive(model, verifier=always_accept())
    result = solver.solve("Review the login flow, then test it")
    assert result.success
    [note] = [note for note in result.notes if "plan refused" in note]
    assert note.startswith("0: plan refused: ")
    assert note.endswith("; planned by what the task's words ask for")
    solved = [trace.detail.partition("]")[0] for trace in result.traces if trace.type == "SOLVED"]
    assert solved == ["[code_review 1.00", "[test_generation 1.00"]
    assert result.usage["by_role"]["decompose"]["calls"] == 2
    assert result.usage["calls"] <= result.bound["calls"]


def test_a_users_function_investigates_and_is_not_called_again(shop: Path, tmp_path: Path):
    calls: list[str] = []

    async def look(task: str) -> Findings:
        calls.append(task)
        return Findings((FoundFile("src/db.py", "opens"),))

    with RecursiveTaskSolver.adaptive(
        work, investigator=look, verifier=always_accept(), root=shop, db=tmp_path / "r.db"
    ) as solver:
        result = solver.solve("Look", run_id="one")
        assert result.success, result.gaps
        assert result.traces[0].detail.startswith("2 sub-tasks: In src/db.py (opens)")
        assert solver.replay("one").output == result.output
    assert calls == ["Look"]


def test_single_shot_stays_available(shop: Path):
    split = {"role": "decompose", "json": {"subtasks": [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]}}
    model = script(split, {"role": "atomize", "depth": 1, "json": {"atomic": True}}, default="text")
    solver = RecursiveTaskSolver.adaptive(model, root=shop, investigator="off")
    result = solver.solve("Review this package")
    assert "investigate" not in result.usage["by_role"]
    assert [trace.detail for trace in result.traces if trace.type == "DECOMPOSED"] == ["2 sub-tasks: one; two"]


# --- nothing is done twice


@pytest.fixture
def rules(tmp_path: Path, shop: Path) -> Path:
    """Return a script whose investigator looks with a tool and finds two files."""
    files = [{"path": "src/app.py", "why": "raises"}, {"path": "src/db.py"}]
    looks = [
        {"role": "investigate", "contains": "Observation", "reply": json.dumps({"files": files})},
        {"role": "investigate", "reply": 'Action: list_files\nAction Input: {"folder": "src"}'},
    ]
    path = tmp_path / "script.yaml"
    path.write_text(
        yaml.safe_dump({"log": "calls.jsonl", "rules": looks, "default": "found at src/app.py:5 in {frame}"})
    )
    return path


def test_a_run_killed_at_any_write_goes_on_and_asks_and_reads_nothing_anew(
    where: str, rules: Path, shop: Path, tmp_path: Path
):
    settings = {"profile": "adaptive", "root": str(shop), "parallel": 2}
    place, stride = (where if "://" in where else str(tmp_path)), 5
    command = [sys.executable, "-m", "tests.killing", place, str(rules), json.dumps(settings), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["points"] * stride > told["calls"]
    assert not told["differs"]
    assert told["most"] <= 2, "more than the calls in flight were made again"


def test_a_replay_reads_no_file_and_a_fork_of_one_pass_asks_it_and_the_integration_alone(
    rules: Path, shop: Path, tmp_path: Path
):
    model = ScriptedChatModel.from_file(rules)
    with RecursiveTaskSolver.adaptive(model, root=shop, db=tmp_path / "f.db") as solver:
        before = solver.solve("Review src", run_id="one")
        shop.rename(tmp_path / "gone")
        assert solver.replay("one").output == before.output
        (tmp_path / "gone").rename(shop)
        after = solver.fork("one", Change("0.1", answer="src/db.py:2 raises"), new_id="two")
    assert after.success
    asked = {frame for frame, usage in after.usage["by_frame"].items() if usage["calls"]}
    assert asked == {"0.2"}


def test_the_command_line_looks_below_a_root(cactus: Cactus, shop: Path):
    looks = {"role": "investigate", "json": {"files": [{"path": "src/app.py"}]}, "reply": '{"files": ["src/app.py"]}'}
    model = cactus.script(looks, default="see src/app.py:5")
    done = cactus("solve", "Review it", "--profile", "adaptive", "--root", str(shop), "--model", model)
    assert (done.status, done.out) == (0, "see src/app.py:5\n")
    assert "0 1 file found (model)" in done.err
    assert "0.0 assigned to static_analysis (1.00)" in done.err
    wrong = cactus("solve", "Review it", "--profile", "adaptive", "--root", "none", "--model", model)
    assert (wrong.status, "there is no folder none" in wrong.err) == (2, True)


def test_the_intent_rule_is_a_setting(cactus: Cactus):
    asked = ["solve", "Review the login flow, then test it", "--profile", "adaptive", "-c", "decomposer=intent"]
    atomic = {"role": "atomize", "depth": 1, "json": {"atomic": True}}
    model = cactus.script(atomic, {"role": "atomize", "json": {"atomic": False}}, default="ACCEPT")
    result = cactus(*asked, "--model", model, "--json").document
    assert result["success"], result["gaps"]
    assert "decompose" not in result["usage"]["by_role"]
    assert result["frames"] == 3


def test_an_edited_plan_keeps_its_passes(cactus: Cactus, shop: Path):
    files = ["src/app.py", "src/db.py", "tests/test_app.py", "pyproject.toml", "README.md"]
    looks = {"role": "investigate", "reply": json.dumps({"files": files})}
    model = cactus.script(looks, {"role": "solve", "task": "In ", "reply": "see it"}, default="all is well")
    run = ["--profile", "adaptive", "--root", str(shop), "--model", model, "--approve", "plan", "--run-id", "edited"]
    asked = cactus("solve", "Review it", *run, "--json").document
    plan = asked["pending"][0]["plan"]
    assert len(plan) == 6
    kept = [{name: each[name] for name in ("id", "task", "depends_on")} for each in plan if each["id"] != "per_file_4"]
    kept[-1]["depends_on"] = [each["id"] for each in kept[:-1]] + ["mine"]
    kept[0]["files"] = ["src/app.py", "src/db.py"]
    kept.append({"id": "mine", "task": "Read the readme", "files": ["README.md"]})
    Path("plan.yaml").write_text(yaml.safe_dump(kept))
    done = cactus("resume", "edited", "--decide", "0=@plan.yaml")
    assert done.status == 0, done.err
    events = [json.loads(line) for line in cactus("export", "edited").out.splitlines()]
    edited = next(event["subtasks"] for event in events if event["event"] == "plan")
    assert [each["tier"] for each in edited] == [*["per_file"] * 4, "cross_file", "per_file"]
    assert [each["files"] for each in edited[:2] + edited[5:]] == [files[:2], files[1:2], files[4:]]
    assert {each["requires"]["integration"] for each in edited if each["tier"] == "cross_file"} == {1}
    read = [json.loads(event["arguments"])["path"] for event in events if event["event"] == "tool"]
    assert sorted(read) == sorted([*files[:2], *files[1:]])


def test_an_edited_pass_has_paths(cactus: Cactus, shop: Path):
    looks = {"role": "investigate", "reply": '{"files": ["src/app.py"]}'}
    run = ["--profile", "adaptive", "--root", str(shop), "--model", cactus.script(looks, default="x")]
    cactus("solve", "Review it", *run, "--approve", "plan", "--run-id", "edited")
    Path("plan.yaml").write_text("[{id: per_file_0, task: x, files: src/app.py}]")
    done = cactus("resume", "edited", "--decide", "0=@plan.yaml")
    assert (done.status, "files of subtask 'per_file_0' is no list of paths" in done.err) == (2, True)


def test_the_investigation_is_within_the_bound(cactus: Cactus):
    def calls(*args: str) -> int:
        return json.loads(cactus("bound", "--profile", "adaptive", "--max-depth", "1", "--json", *args).out)["calls"]

    assert calls("-c", "investigate_steps=9") - calls("-c", "investigate_steps=4") == 5
    assert calls("-c", "max_files=30") > calls("-c", "max_files=20") > calls("-c", "investigator=off")


@pytest.mark.skipif(
    not (available() and os.environ.get("CACTUS_SLOW")), reason="takes minutes: set CACTUS_SLOW, and install the model"
)
def test_the_embedded_model_reviews_an_installed_package(cactus: Cactus, package: Path):
    more = ["-c", "max_files=2", "-c", "window=1000", "--json", "--deadline", "600"]
    done = cactus("solve", TASK, "--profile", "adaptive", "--root", str(package), "--model", "local", *more)
    assert done.status == 0, done.err
    assert done.document["frames"] >= 3
    assert any(trace["detail"].startswith("[integration 1.00]") for trace in done.document["traces"])
    assert done.document["usage"]["calls"] <= done.document["bound"]["calls"]
    assert ".py:" in done.document["output"]
