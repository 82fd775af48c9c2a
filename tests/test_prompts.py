"""Golden files of the rendered prompts; ``UPDATE_GOLDEN=1`` writes them anew."""

import os
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from nodes.prompt import render

GOLDEN = Path(__file__).parent / "golden"
TASK = "Compare {{ REST }} & <gRPC>\nfor a public API"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "atomize": ("atomize", {"task": TASK, "depth": 1}),
    "decompose": ("decompose", {"task": TASK, "depth": 0, "max_subtasks": None}),
    "decompose_at_most_3": ("decompose", {"task": TASK, "depth": 0, "max_subtasks": 3}),
    "decompose_at_most_1": ("decompose", {"task": TASK, "depth": 0, "max_subtasks": 1}),
    "verify": ("verify", {"task": TASK, "result": "An answer.\n", "attempt": 2}),
    "aggregate": (
        "aggregate",
        {"task": TASK, "results": [{"task": "one", "answer": "first\nanswer"}, {"task": "two", "answer": "second"}]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_is_as_it_was(name: str) -> None:
    role, values = CASES[name]
    path, prompt = GOLDEN / f"{name}.txt", render(role, **values)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(prompt + "\n", encoding="utf-8")
    assert prompt + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("role", ["atomize", "decompose", "verify", "aggregate"])
def test_a_missing_value_is_an_error(role: str) -> None:
    with pytest.raises(UndefinedError):
        render(role)
