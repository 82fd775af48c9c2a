"""The docs do what they say: their Python runs, their commands exist, the seed's example works line for line."""

import re
import shlex
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodes.settings import Settings
from tests.cli import Cactus

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


TESTED_ELSEWHERE = re.compile("--decide|--approve|--max-usd|^dev|--from-trace|--upload")
"""In tests of their own, for they end otherwise than with an answer, or need a server or a trace."""

PLAN = [{"id": name, "task": f"part {name}", "kind": "think"} for name in "abc"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_runs(page: Path) -> None:
    namespace: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), namespace)  # the docs' own code


def test_the_seeds_example(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(blocks(ROOT / "README.md", "python")[0], "README.md", "exec"), namespace)
    verdicts = iter(["REJECT too short", *["ACCEPT"] * 99])
    result = namespace["solve"](
        lambda prompt: "an answer", lambda prompt: "- one half\n- other half", lambda prompt: next(verdicts)
    )
    assert result.success
    assert [trace.attempt for trace in result.traces if trace.type == "SOLVED"] == [1, 2, 1, 1, 1]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "DECOMPOSED 2 sub-tasks: one half; other half"
    assert "    VERIFIED REJECTED: too short" in lines
    assert namespace["length_check"]()("t", "short", 1) == (False, "Too short on attempt 1")


def commands() -> list[tuple[str, str]]:
    lines = [(page.name, line) for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    found = [(page, re.search(r"(?:^|[|/] ?(?:bin/)?)cactus ([^#>]*)", line)) for page, line in lines]
    lines_ = [(page, match[1].strip()) for page, match in found if match]
    return [(page, line) for page, line in lines_ if not TESTED_ELSEWHERE.search(line)]


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_are_understood(
    page: str, line: str, cactus: Cactus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "task.md").write_text("a task")
    (tmp_path / "tasks.jsonl").write_text(blocks(ROOT / "docs" / "evaluate.md", "json")[0])
    (tmp_path / "sales.csv").write_text("region,sales")
    for folder in ("docs", "handbook", "manuals"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text("a page")
    (tmp_path / "in").write_text("a task")
    stdin = (tmp_path / "in").open()
    monkeypatch.setattr("sys.stdin", stdin)
    cactus("solve", "t", "--run-id", "20261130-101500-1a2b", "--model", cactus.script(default="ACCEPT"))
    split = {"role": "decompose", "json": {"subtasks": PLAN}}
    atomic = [{"role": "atomize", "depth": 0, "json": {"atomic": False}}, {"role": "atomize", "json": {"atomic": True}}]
    model = cactus.script(split, *atomic, default="ACCEPT")
    if "tariffs" in line or page == "exact-runs.md":
        cactus("solve", "t", "--run-id", "tariffs", "--model", model)
        cactus(
            "solve", "t", "--run-id", "offers", "--model", model, "--max-calls", "3"
        ) if "resume offers" in line else ""
    if page == "terminal.md":
        (tmp_path / "offers.yaml").write_text(yaml.safe_dump({"rules": [], "default": "ACCEPT"}))
        cactus("solve", "t", "--run-id", "offers", "--model", model)
    if page == "agent.md":
        model = cactus.script(default="```python\nfinish('done')\n```")
        cactus("solve", "t", "--profile", "agent", "--run-id", "stock", "--model", model)
    monkeypatch.setenv("CACTUS_MODEL", model)
    known = {"local": model, "openai:gpt-5-mini": model, "solve=openai:gpt-5": f"solve={model}"}
    args = [known.get(argument, argument) for argument in shlex.split(line)]
    with stdin:
        assert cactus(*args).status == 0, line


def test_the_python_of_exact_runs(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(blocks(ROOT / "docs" / "exact-runs.md", "python")[0], "exact-runs.md", "exec"), namespace)
    from nodes.models.scripted import ScriptedChatModel

    atomic = [{"role": "atomize", "depth": 0, "json": {"atomic": False}}, {"role": "atomize", "json": {"atomic": True}}]
    rules = [{"role": "decompose", "json": {"subtasks": PLAN}}, *atomic]
    model = ScriptedChatModel.from_script({"rules": rules, "default": "yes"})
    result = namespace["changed"](model, tmp_path / "runs.db", "the task")
    assert result.success
    assert result.usage["calls"] == 1  # the combination; its verdict on the same text is shared


def test_the_python_of_agent(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "agent.md", "python"):
        exec(compile(block, "agent.md", "exec"), namespace)
    from graph import RecursiveTaskSolver
    from nodes.models.scripted import ScriptedChatModel

    def model(*codes: tuple[str, str]) -> ScriptedChatModel:
        rules = [{"role": "solve", "task": task, "reply": f"```python\n{code}\n```"} for task, code in codes]
        return ScriptedChatModel.from_script({"rules": rules})

    total = "stocks = [await stock('bolt'), await stock('nut')]\nfinish(sum(map(int, stocks)))"
    assert namespace["counted"](model((".", total)), tmp_path / "runs.db").output == "52"
    launched = "rows = await launch_subagent('sum it', context={'rows': [1, 2, 3, 4]}, returns='int')\nfinish(rows)"
    codes = ("Add up", "finish(sum(context))"), ("sum it", namespace["agent_code"]), (".", launched)
    assert RecursiveTaskSolver.agent(model(*codes)).solve("the task").output == "10"


async def test_the_python_of_events(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(blocks(ROOT / "docs" / "events.md", "python")[0], "events.md", "exec"), namespace)
    from frames import events
    from nodes.models.scripted import ScriptedChatModel

    model = ScriptedChatModel.from_script({"rules": [], "default": "yes"})
    live = await namespace["watched"](model, tmp_path / "runs.db", "the task")
    assert live[-1]["result"]["success"]
    kinds = {typing.get_args(kind.__annotations__["event"])[0] for kind in typing.get_args(events.Event)}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "events.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == kinds, "the page names every kind of event"


def test_the_bound_in_get_started(cactus: Cactus) -> None:
    said = cactus("bound", "--max-depth", "2").out
    assert said in (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")


def test_every_setting_is_in_the_table_of_get_started() -> None:
    text = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert set(Settings.model_fields) == {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_models_pages_script_is_a_script(tmp_path: Path) -> None:
    from nodes.models.scripted import ScriptedChatModel

    path = tmp_path / "s.yaml"
    path.write_text(blocks(ROOT / "docs" / "models.md", "yaml")[0])
    ScriptedChatModel.from_file(path)


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
