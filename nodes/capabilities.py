"""Capabilities: what agents can do, by weight, and which agent fits a task best.

An agent is a name, a model, the tools it may use, capabilities and instructions. A task requires capabilities; the
agents that have any of them are its chain, the best first, and the next one is asked where one fails.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

CAPABILITIES = (
    "static_analysis",
    "code_review",
    "test_generation",
    "documentation",
    "refactoring",
    "code_generation",
    "integration",
)
"""The capabilities that built-in plans require; agents may have others."""

_INTENTS = {
    "code_review": r"review\w*|audit\w*|inspect\w*|critique\w*",
    "test_generation": r"tests?|testing|test cases?",
    "documentation": r"document|documents|documented|documenting|documentation|docs|docstrings?|readme",
    "refactoring": r"refactor\w*|restructur\w*|simplif(?:y|ies|ied)|clean up",
    "static_analysis": r"analy[sz]e\w*|analysis|lint\w*",
    "code_generation": r"implement\w*|fix(?:es|ed)?|(?:write|create|generate|add|build)\s+(?:an?\s+|the\s+)?(?:code"
    r"|function|class|module|program|script|endpoint|feature|method|command)s?",
}
_INTENT = re.compile("|".join(f"(?P<{name}>\\b(?:{words})\\b)" for name, words in _INTENTS.items()), re.IGNORECASE)
_KEYS = ("name", "model", "tools", "capabilities", "instructions")


def intents(text: str) -> list[str]:
    """Return the capabilities that a task's words ask for, each once, in the order in which they are named."""
    return list(dict.fromkeys(match.lastgroup for match in _INTENT.finditer(text) if match.lastgroup))


@dataclass(frozen=True)
class CapabilitySet:
    """Capabilities by name, each with a weight from 0 (none) to 1 (full)."""

    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def score_match(self, required: Mapping[str, float]) -> float:
        """Return how well it meets ``required``, 0 to 1: the mean of what is there, by the weight of what is needed.

        Nothing required is met by anyone, with 1.
        """
        total = sum(required.values())
        met = sum(weight * self.weights.get(name, 0.0) for name, weight in required.items())
        return met / total if total else 1.0


@dataclass(frozen=True)
class Agent:
    """Who may work on a task.

    ``model`` is a ``provider:model`` (``None``: the run's own), ``tools`` the names of those it may use (``None``: all
    of them), ``instructions`` what stands before each of its tasks.
    """

    name: str
    capabilities: CapabilitySet
    model: str | None = None
    tools: tuple[str, ...] | None = None
    instructions: str = ""


class Match(NamedTuple):
    """An agent, and its score for a task."""

    agent: Agent
    score: float

    @property
    def said(self) -> str:
        """The agent and its score, as traces show them."""
        return f"{self.agent.name} {self.score:.2f}"


def chain(agents: Sequence[Agent], required: Mapping[str, float]) -> list[Match]:
    """Return the agents that have any of what is required, the best first, else in their own order; none for nothing.

    Where nobody has any of it, all are asked in their order.
    """
    if not required or not agents:
        return []
    scored = [Match(agent, agent.capabilities.score_match(required)) for agent in agents]
    fitting = [match for match in scored if match.score > 0] or scored
    return sorted(fitting, key=lambda match: -match.score)


def required_of(frame: Mapping[str, Any]) -> dict[str, float]:
    """Return what a frame's task requires: what its plan says, else what its words ask for, all alike."""
    return frame.get("requires") or dict.fromkeys(intents(str(frame["task"])), 1.0)


def agents_of(given: Sequence[Mapping[str, Any]]) -> list[Agent]:
    """Return the agents that the setting describes; without any, one for each built-in capability.

    Raises:
        ValueError: an agent lacks a name or capabilities, has an unknown key, or a weight out of 0 to 1; names it.
    """
    if not given:
        return [Agent(name, CapabilitySet({name: 1.0})) for name in CAPABILITIES]
    agents = [_agent(entry, index) for index, entry in enumerate(given)]
    for agent in agents:
        if [other.name for other in agents].count(agent.name) > 1:
            raise ValueError(f"has two agents called {agent.name!r}: rename one")
    return agents


def _agent(entry: Mapping[str, Any], index: int) -> Agent:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ValueError(f"agent {index + 1} needs a name on one line")
    for key in entry:
        if key not in _KEYS:
            raise ValueError(f"agent {name!r} has the unknown key {key!r}: keys are {', '.join(_KEYS)}")
    model, instructions = entry.get("model"), entry.get("instructions") or ""
    if (model is not None and not isinstance(model, str)) or not isinstance(instructions, str):
        raise ValueError(f"agent {name!r}: model and instructions must be texts")
    return Agent(name.strip(), _capabilities(entry.get("capabilities"), name), model, _tools(entry, name), instructions)


def _capabilities(given: Any, name: str) -> CapabilitySet:
    known: Any = dict.fromkeys(cast("list[Any]", given), 1.0) if isinstance(given, list) else given
    weights = cast("Mapping[Any, Any]", known if isinstance(known, Mapping) else {})
    if not weights:
        raise ValueError(f"agent {name!r} needs capabilities, such as {{static_analysis: 0.9}}")
    for capability, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise ValueError(f"agent {name!r}: the weight of {capability} must be from 0 to 1, not {weight!r}")
    return CapabilitySet({str(capability): float(weight) for capability, weight in weights.items()})


def _tools(entry: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    given = entry.get("tools")
    if given is None:
        return None
    listed = cast("list[Any]", given) if isinstance(given, list) else [given]
    if not isinstance(given, list) or not all(isinstance(tool, str) for tool in listed):
        raise ValueError(f"agent {name!r}: tools must be a list of tools' names")
    return tuple(listed)
