"""A research task over a folder of real documents: the descriptions of the packages installed here."""

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.cli import Cactus

MIT = "Which licence is the package click under, and what is it for?"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a document for each installed package that describes itself."""
    folder = tmp_path_factory.mktemp("packages")
    for package in distributions():
        text = package.read_text("METADATA") or ""
        if len(text) > 1000:
            (folder / f"{package.metadata['Name'].lower()}.md").write_text(text, encoding="utf-8")
    assert len(list(folder.iterdir())) >= 30
    return folder


def test_a_scripted_research_cites_the_documents_of_its_parts(cactus: Cactus, documents: Path) -> None:
    parts = [
        {"id": "web", "task": "Find what httpx is for", "kind": "search", "depends_on": []},
        {"id": "cli", "task": "Find what click is for", "kind": "search", "depends_on": []},
        {"id": "both", "task": "Write how httpx and click fit together", "kind": "write", "depends_on": ["web", "cli"]},
    ]
    look = 'Action: search_documents\nAction Input: {"query": "composable command line interface toolkit"}'
    seen = r"Observation: (?s:.*)\[source: click.md\]"
    answer = "HTTP [0.0: httpx.md], commands [0.1: click.md]"
    rules = [
        {"role": "decompose", "json": {"subtasks": parts}},
        {"role": "atomize", "depth": 1, "json": {"atomic": True}},
        {"role": "solve", "frame": r"0\.0", "contains": r"\[source: httpx.md\]", "reply": "HTTP [source: httpx.md]"},
        {"role": "solve", "frame": r"0\.1", "contains": seen, "reply": "commands [source: click.md]"},
        {"role": "solve", "frame": r"0\.1", "reply": look},
        {"role": "solve", "frame": r"0\.2", "contains": r"(?s)httpx.md.*click.md", "reply": "[0.0] and [0.1] fit"},
        {"role": "aggregate", "contains": r"(?s)httpx.md.*click.md.*fit", "reply": answer},
    ]
    done = cactus("solve", "How do they fit?", "--json", "--docs", str(documents), "--model", cactus.script(*rules))
    assert done.status == 0, done.err
    assert done.document["output"] == answer


def test_a_combination_that_drops_its_citations_gets_them_back(cactus: Cactus, documents: Path) -> None:
    parts = [{"id": name, "task": f"what is {name}", "kind": "search", "depends_on": []} for name in ("httpx", "click")]
    rules = [
        {"role": "decompose", "json": {"subtasks": parts}},
        {"role": "atomize", "depth": 1, "json": {"atomic": True}},
        {"role": "solve", "frame": r"0\.0", "reply": "HTTP [source: httpx.md]"},
        {"role": "solve", "frame": r"0\.1", "reply": "commands [source: click.md]"},
        {"role": "aggregate", "reply": "HTTP and commands"},
    ]
    done = cactus("solve", "t", "--json", "--docs", str(documents), "--model", cactus.script(*rules))
    assert done.document["output"] == "HTTP and commands\n\nSources read: [source: httpx.md], [source: click.md]"


def test_an_embedded_research_cites_documents_that_are_there(cactus: Cactus, documents: Path) -> None:
    pytest.importorskip("xllamacpp")
    done = cactus("solve", MIT, "--json", "--max-depth", "0", "--docs", str(documents), "--model", "local")
    assert done.status == 0, done.err
    cited = re.findall(r"\[source: ([^\]]+)\]", done.document["output"])
    assert any((documents / source).exists() for source in cited), done.document["output"]
