"""Agents by capability: scores, assignment, and who is asked next where one fails."""

import pytest

from frames.errors import UsageError
from graph import RecursiveTaskSolver
from nodes.capabilities import Agent, CapabilitySet, chain
from nodes.models.scripted import ScriptedChatModel
from nodes.settings import Settings


@pytest.mark.parametrize(
    ("has", "needs", "score"),
    [
        ({"a": 1.0}, {"a": 1.0}, 1.0),
        ({"a": 0.5}, {"a": 0.2}, 0.5),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}, 0.5),
        ({"a": 1.0, "c": 1.0}, {"a": 1.0, "b": 0.25}, 0.8),
        ({}, {"a": 1.0}, 0.0),
        ({}, {}, 1.0),
    ],
)
def test_the_score_is_the_mean_of_what_is_there_by_what_is_needed(has, needs, score):
    assert CapabilitySet(has).score_match(needs) == pytest.approx(score)


def test_the_best_comes_first_and_who_has_nothing_is_not_asked():
    agents = [Agent(name, CapabilitySet({"a": weight})) for name, weight in (("x", 0.3), ("y", 0.9), ("z", 0.0))]
    assert [match.said for match in chain(agents, {"a": 1.0})] == ["y 0.90", "x 0.30"]


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"capabilities": {"a": 1}}, "needs a name"),
        ({"name": "x"}, "needs capabilities"),
        ({"name": "x", "capabilities": {"a": 2}}, "from 0 to 1"),
        ({"name": "x", "capabilities": ["a"], "tool": []}, "unknown key 'tool'"),
    ],
)
def test_a_wrong_agent_is_refused_by_name(agent, said):
    with pytest.raises(UsageError, match=said):
        Settings.checked(profile="adaptive", agents=[agent])


def _agents(tmp_path, first):
    for name, rules in (("one", [first]), ("two", [])):
        (tmp_path / f"{name}.yaml").write_text(f"rules: {rules}\ndefault: 'by {name}'\n")
    return [
        {"name": "one", "model": f"scripted:{tmp_path / 'one.yaml'}", "capabilities": {"code_review": 0.9}},
        {"name": "two", "model": f"scripted:{tmp_path / 'two.yaml'}", "capabilities": {"code_review": 0.4}},
    ]


def _solve(agents, *rules):
    model = ScriptedChatModel.from_script({"rules": [{"role": "atomize", "json": {"atomic": True}}, *rules]})
    return RecursiveTaskSolver.adaptive(model, agents=agents).solve("Review the login flow")


def test_where_a_model_fails_the_next_agent_is_asked(tmp_path):
    result = _solve(_agents(tmp_path, {"role": "solve", "error": "refusal"}))
    assert result.output == "by two"
    assert any("agent one failed" in note for note in result.notes)
    assert [trace.detail for trace in result.traces if trace.type == "SOLVED"] == ["[two 0.40] by two"]


def test_after_its_last_attempt_the_next_agent_takes_over_within_the_bound(tmp_path):
    agents = _agents(tmp_path, {"role": "solve", "reply": "by one"})
    result = _solve(agents, {"role": "verify", "contains": "by one", "json": {"accepted": False, "feedback": "no"}})
    assert result.output == "by two"
    assert [trace.attempt for trace in result.traces if trace.type == "SOLVED"] == [1, 2, 3]
    assert any("the next agent is asked" in note for note in result.notes)
    assert result.usage["calls"] <= result.bound["calls"]


def test_an_agents_tool_that_is_not_there_is_refused():
    agents = [{"name": "one", "tools": ["none"], "capabilities": ["code_review"]}]
    with pytest.raises(UsageError, match="names the tool 'none'"):
        _solve(agents)
