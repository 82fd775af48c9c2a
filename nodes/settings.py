"""The settings of a run: plain values with their ranges, from which Studio draws its form."""

import re
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from frames.errors import UsageError
from frames.frame import KINDS, Frame
from nodes.capabilities import Agent, Match, agents_of, chain, required_of
from nodes.models.prices import check_prices

Profile = Literal["classic", "roma", "adaptive", "agent"]

ROLES = ("atomize", "investigate", "decompose", "solve", "aggregate", "verify")
"""The roles that a model can play."""

MODEL_ROLES = (*ROLES, *(f"solve.{kind}" for kind in KINDS))
"""The roles, and solving by kind of task: what a model can be named for."""

PROFILE_DEFAULTS: dict[str, dict[str, Any]] = {
    "classic": {},
    "roma": {
        "atomizer": "llm",
        "verifier": "llm",
        "feedback_on_retry": True,
        "max_subtasks": 5,
        "on_failure": "partial",
        "reuse": "run",
    },
    "adaptive": {
        "atomizer": "llm",
        "verifier": "llm",
        "feedback_on_retry": True,
        "max_subtasks": 5,
        "on_failure": "partial",
        "reuse": "run",
    },
    "agent": {
        "feedback_on_retry": True,
        "max_depth": 6,
        "on_failure": "partial",
    },
}
"""Where a profile's defaults differ from those of ``classic``."""

_DEPTH = re.compile(r"depth:(\d+)")


def _seen_at(*nodes: str) -> dict[str, Any]:
    """Return what has Studio show a setting at ``nodes`` of the drawing too."""
    return {"langgraph_nodes": list(nodes)}


class Settings(BaseModel):
    """What may vary from run to run. Defaults are the profile's: the ``classic`` seed's, or ``PROFILE_DEFAULTS``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Field("classic", description="Which of the published systems the machine follows.")
    model: str | None = Field(None, description="Model of every role, as provider:model; scripted:FILE or local.")
    role_models: dict[str, list[str]] = Field(
        {},
        description=f"Models for one role ({', '.join(MODEL_ROLES)}): the first that replies answers.",
    )
    atomizer: str = Field(
        "depth:3",
        description="Decides whether a task is solved directly: depth:N or llm.",
        json_schema_extra={"pattern": rf"^(llm|{_DEPTH.pattern})$", **_seen_at("atomize")},
    )
    investigator: Literal["llm", "text", "off"] = Field(
        "llm",
        description="Looks before an adaptive task is split: llm, text (its own words alone) or off (single-shot).",
        json_schema_extra=_seen_at("investigate"),
    )
    decomposer: Literal["llm", "intent"] = Field(
        "llm",
        description="Splits a task: llm, or, in adaptive, intent (by what its words ask for).",
        json_schema_extra=_seen_at("decompose"),
    )
    aggregator: Literal["llm"] = Field(
        "llm",
        description="Combines the answers of subtasks: llm.",
        json_schema_extra={"enum": ["llm"], **_seen_at("aggregate")},
    )
    verifier: Literal["accept", "llm"] = Field(
        "accept", description="Judges each answer: accept or llm.", json_schema_extra=_seen_at("verify")
    )
    feedback_on_retry: bool = Field(
        default=False,
        description="Whether a retry is told why the last answer was rejected.",
        json_schema_extra=_seen_at("retry"),
    )
    max_depth: int = Field(5, ge=0, description="Depth at which every task is solved directly; 0 never splits.")
    max_retries: int = Field(2, ge=1, description="Attempts per atomic task, the first included.")
    max_subtasks: int | None = Field(None, ge=1, description="Most subtasks of one plan.")
    max_frames: int = Field(1000, ge=1, description="Most frames of the whole run.")
    max_calls: int | None = Field(None, ge=1, description="Most model calls of the whole run.")
    max_tokens: int | None = Field(None, ge=1, description="Tokens, in and out, after which no call is made.")
    max_usd: float | None = Field(None, gt=0, description="US dollars, after which no call is made.")
    prices: dict[str, dict[str, float]] = Field(
        {},
        description="US dollars for a million tokens by model (provider:model, * for any): input and output.",
    )
    deadline: float | None = Field(None, gt=0, description="Seconds after which the run ends.")
    parallel: int = Field(8, ge=1, description="Most model calls in flight, over the whole tree (classic: one).")
    on_failure: Literal["fail", "partial"] = Field(
        "fail", description="What a failed subtask does: fail ends its branch, partial goes on without it."
    )
    approve: Literal["off", "plan"] = Field(
        "off", description="Whether a person is asked about every plan.", json_schema_extra=_seen_at("approve")
    )
    max_revisions: int = Field(
        5, ge=0, description="Rejections by a person after which a task is solved without a plan."
    )
    reuse: Literal["off", "run", "all"] = Field(
        "off", description="Replies to the same request that are used again: none, the run's, or all runs'."
    )
    max_steps: int = Field(6, ge=1, description="Most model calls of one attempt at a search or code task.")
    revise: bool = Field(default=True, description="Whether a written text is revised once against its task.")
    window: int = Field(100_000, ge=1_000, description="Tokens that a prompt may have; more is combined in a tree.")
    answer_tokens: int = Field(2_000, ge=100, description="Tokens that a combined answer below the root may have.")
    inline_chars: int = Field(
        16_000, ge=200, description="Characters from which a result is kept as an artifact, outside the prompts."
    )
    root: str | None = Field(None, description="A folder whose files the run may list, search and read.")
    investigate_steps: int = Field(
        8, ge=1, description="Most model calls of an investigation.", json_schema_extra=_seen_at("investigate")
    )
    max_files: int = Field(
        20, ge=1, description="Most passes over files in one plan; more files are grouped, each in one pass."
    )
    agents: list[dict[str, Any]] = Field(
        [], description="Agents of adaptive runs: name, model, tools, capabilities (by weight) and instructions."
    )
    docs: str | None = Field(None, description="A folder of documents to search: text, Markdown, HTML, PDF.")
    attach: list[str] = Field([], description="Files that the run may read, as artifacts.")
    tools: list[str] = Field([], description="LangChain tools by dotted name, for search tasks.")
    mcp_servers: dict[str, dict[str, Any]] = Field({}, description="MCP servers by name: command and args, or url.")
    tool_timeout: float = Field(120, gt=0, description="Seconds that one tool call may take.")
    code_seconds: float = Field(10, gt=0, description="Seconds that one program of a code task may run.")
    agent_steps: int = Field(
        25, ge=1, description="Most model calls of one agent: its replies.", json_schema_extra=_seen_at("act")
    )
    agent_tokens: int = Field(
        32_000,
        ge=1_000,
        description="Tokens of one agent's conversation: near it, it must finish or delegate.",
        json_schema_extra=_seen_at("act"),
    )
    max_children: int = Field(
        20, ge=0, description="Most subagents that one agent may launch.", json_schema_extra=_seen_at("act")
    )
    cell_workers: int = Field(2, ge=1, description="Processes that run the code of agents, over the whole tree.")
    call_timeout: float = Field(600, gt=0, description="Seconds that one model call may take.")
    call_attempts: int = Field(5, ge=1, description="Attempts at a call whose transport fails, the first included.")

    @field_validator("atomizer")
    @classmethod
    def _known_atomizer(cls, value: str) -> str:
        if value != "llm" and not _DEPTH.fullmatch(value):
            raise ValueError("must be depth:N (such as depth:3) or llm")
        return value

    @model_validator(mode="after")
    def _without_plans(self) -> Self:
        if self.profile == "agent" and self.approve != "off":
            raise ValueError("approve: an agent makes no plans that a person could decide on; leave it out")
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_profile(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        given = cast("dict[str, Any]", values)
        return {**PROFILE_DEFAULTS.get(str(given.get("profile")), {}), **given}

    @field_validator("attach", "tools", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("investigator", "approve", "reuse", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # what YAML makes of the word

    @field_validator("agents")
    @classmethod
    def _known_agents(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        agents_of(value)
        return value

    @field_validator("prices", mode="before")
    @classmethod
    def _parted_prices(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {model: _price(price) for model, price in cast("dict[str, Any]", value).items()}

    @field_validator("prices")
    @classmethod
    def _known_prices(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        check_prices(value)
        return value

    @field_validator("role_models", mode="before")
    @classmethod
    def _known_roles(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        models = {role: _fallbacks(given) for role, given in cast("dict[str, Any]", value).items()}
        for role, given in models.items():
            if role not in MODEL_ROLES:
                raise ValueError(f"has no role {role!r}: roles are {', '.join(MODEL_ROLES)}")
            if not given:
                raise ValueError(f"names no model for {role!r}")
        return models

    @property
    def named_agents(self) -> list[Agent]:
        """The agents that adaptive tasks are assigned to."""
        return agents_of(self.agents)

    def agents_for(self, frame: Frame) -> list[Match]:
        """Return the agents that may work on a frame's task, the best first; of the built-in ones the best alone.

        None where the task requires no capability: it is worked on as in ``roma``.
        """
        matches = chain(self.named_agents, required_of(frame))
        return matches if self.agents else matches[:1]

    @property
    def forks(self) -> bool:
        """Whether subtasks are worked on side by side."""
        return self.profile != "classic" and self.parallel > 1

    @property
    def combines_again(self) -> bool:
        """Whether a rejected combination is tried again; the ``classic`` seed ends its branch."""
        return self.profile != "classic"

    @property
    def atomizer_depth(self) -> int | None:
        """The N of ``depth:N``; ``None`` where a model decides."""
        found = _DEPTH.fullmatch(self.atomizer)
        return int(found[1]) if found else None

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Return the settings.

        Raises:
            UsageError: a value is out of its range or unknown; the message names it and what is allowed.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise UsageError("; ".join(_message(cls, fault) for fault in error.errors())) from error


def _price(given: Any) -> Any:
    """Return a price that is given as ``IN/OUT`` as a mapping."""
    first, slash, second = given.partition("/") if isinstance(given, str) else ("", "", "")
    return {"input": first, "output": second} if slash else given


def _fallbacks(given: Any) -> Any:
    """Return the list of models that a role is given: as a list, or as a text with commas."""
    return [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else given


def _message(settings: type[BaseModel], fault: Any) -> str:
    if not fault["loc"]:  # what several settings say together
        return str(fault["msg"]).removeprefix("Value error, ")
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"unknown setting {name!r}: the settings are {', '.join(settings.model_fields)}"
    text = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{name} {text}, not {fault['input']!r}"
