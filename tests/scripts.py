"""Scripted models that several tests use."""

from pathlib import Path
from typing import Any

import yaml

HALVES = [
    {"id": "a", "task": "first half of {frame}", "kind": "think"},
    {"id": "b", "task": "second half of {frame}", "kind": "write"},
]
SCRIPT: dict[str, Any] = {
    "log": "calls.jsonl",
    "rules": [
        {"role": "atomize", "depth": 2, "json": {"atomic": True}},
        {
            "role": "decompose",
            "reply": "- first half of {frame}\n- second half of {frame}",
            "json": {"subtasks": HALVES},
        },
        {"role": "solve", "reply": "answer to {task}"},
    ],
    "default": "combined {frame}",
}
"""Two levels of two subtasks each."""

PARTS = [
    {"id": "look", "task": "look it up", "kind": "search"},
    {"id": "think", "task": "think", "kind": "think"},
    {"id": "count", "task": "count", "kind": "code"},
    {"id": "write", "task": "write", "kind": "write", "depends_on": ["look", "count"]},
]
EVERY_KIND: dict[str, Any] = {
    "rules": [
        {"role": "atomize", "depth": 1, "json": {"atomic": True}},
        {"role": "decompose", "json": {"subtasks": PARTS}},
        {"role": "verify", "frame": r"0\.1", "attempt": 1, "json": {"accepted": False, "feedback": "too short"}},
        {"role": "solve", "frame": r"0\.0", "contains": "(?s)Observation: .*60 a minute", "reply": "60 a minute"},
        {
            "role": "solve",
            "frame": r"0\.0",
            "reply": 'Action: search_documents\nAction Input: {"query": "limits"}',
        },
        {"role": "solve", "frame": r"0\.2", "contains": "printed:\n240", "reply": "240"},
        {
            "role": "solve",
            "frame": r"0\.2",
            "reply": "```python\nopen('out.txt', 'w').write('x')\nprint(len(open('sales.csv').read()) * 60)\n```",
        },
    ],
    "default": "text",
}
"""One subtask of each kind: a tool, a program that reads and writes a file, a rejected answer and its retry."""


def every_kind(folder: Path) -> dict[str, Any]:
    """Return the settings of a run by ``EVERY_KIND``, with its files in ``folder``, that stops at its plan."""
    (folder / "docs").mkdir()
    (folder / "docs" / "limits.md").write_text("# Limits\n\n60 a minute", encoding="utf-8")
    (folder / "sales.csv").write_text("a,b\n", encoding="utf-8")
    (folder / "kinds.yaml").write_text(yaml.safe_dump(EVERY_KIND), encoding="utf-8")
    return {
        "model": f"scripted:{folder / 'kinds.yaml'}",
        "docs": str(folder / "docs"),
        "attach": [str(folder / "sales.csv")],
        "inline_chars": 200,
        "max_usd": 1,
        "prices": {"*": {"input": 1, "output": 1}},
        "approve": "plan",
    }
