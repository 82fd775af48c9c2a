"""Golden files of the rendered prompts; ``UPDATE_GOLDEN=1`` writes them anew."""

import os
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError

from nodes.prompt import render

GOLDEN = Path(__file__).parent / "golden"
TASK = "Compare {{ REST }} & <gRPC>\nfor a public API"
ONE = {"frame": "0.0", "task": "one", "answer": "first\nanswer", "failed": None}
TWO = {"frame": "0.1", "task": "two", "answer": "", "failed": "rejected after 2 attempts"}
FILE = {"name": "t.csv", "size": 12, "preview": "day,sales\n1,2"}
PASSAGE = {"source": "guide.md", "title": "Limits", "text": "60 a minute"}


MEANS = ["search: documents in a folder", "code and search: the file t.csv"]


class Tool:
    name, args, description = "search_documents", {"query": {}, "limit": {}}, "Search.\nReturns passages."


ROMA: dict[str, dict[str, Any]] = {
    "atomize": {"task": TASK, "depth": 1, "known": [ONE], "means": ["search: documents in a folder"]},
    "plan": {
        "task": TASK,
        "depth": 1,
        "max_subtasks": 5,
        "known": [ONE, TWO],
        "means": MEANS,
        "fault": "subtask 'a' is blank",
    },
    "think": {"task": TASK},
    "draft": {"task": TASK},
    "revise": {"task": TASK, "draft": "A draft."},
    "read": {"task": TASK, "passages": [PASSAGE]},
    "search": {"task": TASK, "passages": [PASSAGE], "tools": [Tool], "native": False, "steps": 6},
    "code": {"task": TASK, "files": [FILE], "steps": 6},
    "aggregate": {"task": TASK, "results": [ONE], "missing": [TWO], "tokens": 2000, "feedback": "no figures"},
    "condense": {"task": TASK, "text": "[0.0] one\nfirst", "tokens": 400},
    "verify": {"task": TASK, "result": "An answer.\n", "attempt": 2, "results": [ONE, TWO]},
}
"""The prompts of the roma profile, each with everything that may be in it."""

LEFT = {"steps": 3, "depth": 1, "children": 2, "tokens": 900, "calls": 7}
AGENT: dict[str, dict[str, Any]] = {
    "system": {"tools": [Tool], "launches": True},
    "goal": {"goal": TASK, "context": '{"rows": [1]}', "cut": True, "returns": '{"type": "integer"}'},
    "budget": {**LEFT, "near": True},
}
"""The prompts of the agent profile, each with everything that may be in it."""

ADAPTIVE: dict[str, dict[str, Any]] = {
    "investigate": {"task": TASK, "listing": "a.py\nb.py", "tools": [Tool], "native": False, "steps": 8},
    "per_file": {"task": TASK, "files": ["1: x"], "tools": [Tool], "native": False, "steps": 6, "example": "a.py:12"},
    "cross_file": {"task": TASK, "tools": [Tool], "native": False, "steps": 6},
}
"""Those of the adaptive profile, likewise."""

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
    **{f"roma_{name}": (f"roma/{name}", values) for name, values in ROMA.items()},
    **{f"adaptive_{name}": (f"adaptive/{name}", values) for name, values in ADAPTIVE.items()},
    "judge": ("judge", {"task": TASK, "expected": "gRPC", "answer": "An answer."}),
    **{f"agent_{name}": (f"agent/{name}", values) for name, values in AGENT.items()},
    "agent_system_alone": ("agent/system", {"tools": [], "launches": False}),
    "agent_goal_alone": ("agent/goal", {"goal": TASK, "context": None, "cut": False, "returns": None}),
    "agent_budget_last": ("agent/budget", {**LEFT, "steps": 1, "calls": None, "near": False}),
    "roma_plan_first": ("roma/plan", {**ROMA["plan"], "known": [], "means": [], "fault": None}),
    "roma_verify_leaf": ("roma/verify", {**ROMA["verify"], "results": []}),
    "roma_search_native": ("roma/search", {**ROMA["search"], "native": True, "passages": []}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_prompt_is_as_it_was(name: str) -> None:
    role, values = CASES[name]
    path, prompt = GOLDEN / f"{name}.txt", render(role, **values)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(prompt + "\n", encoding="utf-8")
    assert prompt + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "role", ["atomize", "decompose", "verify", "aggregate", "judge", *(f"roma/{name}" for name in ROMA)]
)
def test_a_missing_value_is_an_error(role: str) -> None:
    with pytest.raises(UndefinedError):
        render(role)
