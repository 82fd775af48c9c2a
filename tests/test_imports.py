"""Imports run one way, and the core is quick to import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["frames", "nodes", "graph", "studio"]


def modules(file: Path) -> list[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]


def imported(file: Path) -> set[str]:
    return {name.split(".")[0] for name in modules(file)}


@pytest.mark.parametrize("folder", ORDER)
def test_imports_run_one_way(folder: str) -> None:
    above = set(ORDER[ORDER.index(folder) + 1 :])
    for file in (ROOT / folder).rglob("*.py"):
        assert not imported(file) & above, file


def test_worlds_stand_alone() -> None:
    for file in (ROOT / "worlds").rglob("*.py"):
        ours = {name for name in modules(file) if name.split(".")[0] in ORDER}
        assert ours <= {"frames.errors"}, file
    for folder in ORDER[:-1]:
        for file in (ROOT / folder).rglob("*.py"):
            assert "worlds" not in imported(file), file


def test_the_pure_core_knows_langgraph_in_one_module() -> None:
    users = [file.name for file in (ROOT / "frames").rglob("*.py") if imported(file) & {"langgraph", "langchain_core"}]
    assert users == ["channels.py"]


FOREIGN = ["nodes/tools/load.py", "nodes/tools/run.py"]
"""Where code of others is called that may raise anything: a tool's module, and a tool (docs/adr/0005)."""


def test_broad_excepts_stand_at_the_frames_boundary_alone() -> None:
    found = [
        f"{file.relative_to(ROOT)}"
        for folder in [*ORDER, "worlds"]
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id == "Exception"))
    ]
    assert sorted(found) == sorted([*FOREIGN, "nodes/fork.py", "nodes/step.py"])


def test_the_core_adds_less_than_a_second_to_langgraphs_import() -> None:
    code = (
        "import time, langgraph.graph, langgraph.checkpoint.memory, langchain_core.language_models\n"
        "began = time.process_time()\nimport graph\nprint(time.process_time() - began)"
    )
    fastest = min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(2))
    assert fastest < 1
