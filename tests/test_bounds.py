"""Properties: whatever decomposers and models do, what is paid for stays below the bound and at the limits."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frames.text import estimate_tokens
from graph import RecursiveTaskSolver

PLAN = '{"subtasks": [%s]}'
PARALLEL = 3


class Adversary:
    """A model that splits wherever it can, rejects, refuses, fails and rambles, by the draw of a seed."""

    __name__ = "adversary"

    def __init__(self, seed: int, trouble: float) -> None:
        self.draw, self.trouble = random.Random(seed), trouble
        self.calls = self.tokens = self.largest = self.in_flight = self.most = 0

    def __call__(self, prompt: str) -> str:
        self.calls += 1
        reply = self.reply(prompt)
        size = estimate_tokens(prompt) + estimate_tokens(reply)
        self.tokens, self.largest = self.tokens + size, max(self.largest, size)
        return reply

    def reply(self, prompt: str) -> str:
        if self.draw.random() < self.trouble:
            if self.draw.random() < 0.3:
                raise ValueError("no")
            return self.draw.choice(["", '{"accepted": false, "feedback": "more"}', "REJECT", "{", "[]", "null"])
        part = ", ".join(
            f'{{"id": "{n}", "task": "part {n} of {self.calls}", "kind": "think", "depends_on": []}}' for n in range(5)
        )
        if "subtasks" in prompt:
            return PLAN % part
        return self.draw.choice(['{"atomic": false}', '{"accepted": true, "feedback": ""}', "ACCEPT", "words " * 40])


LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_calls": st.integers(1, 60),
        "max_tokens": st.integers(1, 20_000),
        "max_usd": st.floats(0.001, 0.02),
        "max_frames": st.integers(1, 30),
    },
)


@pytest.mark.parametrize("profile", ["classic", "roma"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), trouble=st.floats(0, 0.6), limits=LIMITS, depth=st.integers(0, 3))
def test_nothing_passes_the_bound_or_a_limit(
    profile: str, seed: int, trouble: float, limits: dict[str, Any], depth: int
) -> None:
    model = Adversary(seed, trouble)
    options: dict[str, Any] = {"max_frames": 60, **limits, "max_depth": depth, "parallel": PARALLEL, "call_attempts": 1}
    prices = {"*": {"input": 1, "output": 1}}
    solver = RecursiveTaskSolver.roma(model, profile=profile, prices=prices, verifier=None, **options)
    result = solver.solve("the task")
    usage = result.usage
    assert result.bound is not None
    assert model.calls <= result.bound["calls"]
    assert result.frames <= result.bound["frames"] <= options["max_frames"]
    assert usage["calls"] <= limits.get("max_calls", model.calls)
    beyond = PARALLEL * model.largest
    assert usage["input_tokens"] + usage["output_tokens"] <= limits.get("max_tokens", 10**9) + beyond
    assert (usage["usd"] or 0) <= limits.get("max_usd", 10**9) + beyond / 1e6
    assert result.status in ("succeeded", "failed", "limited")
    assert usage["repeated_calls"] == 0
