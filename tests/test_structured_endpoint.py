"""Structured output over HTTP: endpoints that take a schema, and those that do not."""

import json
from typing import Any

import pytest

from graph import RecursiveTaskSolver, SolveResult
from tests.servers import OpenAI, OpenAIHandler, serve

REPLIES = {
    "atomic": '{"atomic": false}',
    "subtasks": json.dumps({"subtasks": [
        {"id": "a", "task": "one", "kind": "think", "depends_on": []},
        {"id": "b", "task": "two", "kind": "write", "depends_on": ["a"]},
    ]}),
    "accepted": '{"accepted": true, "feedback": "", "guilty": null}',
}  # fmt: skip


class Formats(OpenAIHandler):
    """Answers by the schema that is asked for; ``refuses`` schemas with 400, or ignores them."""

    def reply(self, state: Any, request: dict[str, Any], behaviour: dict[str, Any]) -> None:
        prompt = request["messages"][-1]["content"]
        schema = request.get("response_format")
        state.schemas.append(schema and schema["json_schema"]["name"])
        if schema and state.way == "refuses":
            self.answer(400, json.dumps({"error": {"message": "response_format is not supported"}}).encode())
            return
        key = next((name for name in REPLIES if f'"{name}"' in prompt), None)
        said = REPLIES[key] if key else "an answer"
        if key == "atomic" and "depth 1" in prompt:
            said = '{"atomic": true}'
        if key and (not schema or state.way == "ignores"):
            said = f"<think>I wonder.</think>\nSure!\n```json\n{said}\n```"
        if key and state.way == "cut" and "subtasks" in prompt:
            super().reply(state, request, {"content": said[:30], "finish": "length"})
            return
        super().reply(state, request, {**behaviour, "content": said})


class Formatted(OpenAI):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.schemas = way, list[Any]()


@pytest.fixture
def solve(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(way: str, **settings: Any) -> tuple[SolveResult, Formatted]:
        state = Formatted(way)
        with serve(Formats, state) as address:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
            monkeypatch.setenv("OPENAI_API_KEY", "x")
            return RecursiveTaskSolver.roma("openai:any", call_attempts=1, **settings).solve("the task"), state

    return run


@pytest.mark.parametrize("way", ["takes", "ignores", "refuses"])
def test_an_endpoint_with_and_without_structured_output_gives_the_same(solve: Any, way: str) -> None:
    result, state = solve(way)
    assert result.success, result.gaps
    assert result.frames == 3
    assert [trace.type for trace in result.traces].count("SOLVED") == 2
    assert {schema for schema in state.schemas if schema} == (
        {"Atomic"} if way == "refuses" else {"Atomic", "Plan", "Judgement"}
    )
    assert result.usage["calls"] == len(state.schemas) - (
        way == "refuses"
    )  # told once, it is not asked by schema again
    assert not result.usage["estimated"]


def test_case_9_a_plan_that_an_endpoint_cuts_is_asked_for_in_other_words_and_then_given_up(solve: Any) -> None:
    result, state = solve("cut")
    assert result.success
    assert result.frames == 1
    assert "length limit" in result.notes[0]
    assert result.usage["by_role"]["decompose"] == {"calls": 2, "input_tokens": 14, "output_tokens": 6, "usd": None}
    assert len(set(state.prompts)) == len(state.prompts)
