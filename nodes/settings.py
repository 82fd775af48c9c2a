"""The settings of a run: plain values with their ranges, from which Studio draws its form."""

import re
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from frames.errors import UsageError

Profile = Literal["classic"]

ROLES = ("atomize", "decompose", "solve", "aggregate", "verify")
"""The roles that a model can play."""

_DEPTH = re.compile(r"depth:(\d+)")


class Settings(BaseModel):
    """What may vary from run to run. Defaults are the ``classic`` seed's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Profile = Field("classic", description="Which of the published systems the machine follows.")
    model: str | None = Field(None, description="Model of every role, as provider:model; scripted:FILE or local.")
    role_models: dict[str, str] = Field(
        default_factory=dict,
        description=f"A model for one role ({', '.join(ROLES)}), as role: provider:model.",
    )
    atomizer: str = Field("depth:3", description="Decides whether a task is solved directly: depth:N or llm.")
    decomposer: Literal["llm"] = Field("llm", description="Splits a task: llm.")
    aggregator: Literal["llm"] = Field("llm", description="Combines the answers of subtasks: llm.")
    verifier: Literal["accept", "llm"] = Field("accept", description="Judges each answer: accept or llm.")
    feedback_on_retry: bool = Field(
        default=False, description="Whether a retry is told why the last answer was rejected."
    )
    max_depth: int = Field(5, ge=0, description="Depth at which every task is solved directly; 0 never splits.")
    max_retries: int = Field(2, ge=1, description="Attempts per atomic task, the first included.")
    max_subtasks: int | None = Field(None, ge=1, description="Most subtasks of one plan.")
    max_frames: int = Field(1000, ge=1, description="Most frames of the whole run.")
    max_calls: int | None = Field(None, ge=1, description="Most model calls of the whole run.")
    max_tokens: int | None = Field(None, ge=1, description="Tokens, in and out, after which no call is made.")
    deadline: float | None = Field(None, gt=0, description="Seconds after which the run ends.")
    call_timeout: float = Field(600, gt=0, description="Seconds that one model call may take.")
    call_attempts: int = Field(5, ge=1, description="Attempts at a call whose transport fails, the first included.")

    @field_validator("atomizer")
    @classmethod
    def _known_atomizer(cls, value: str) -> str:
        if value != "llm" and not _DEPTH.fullmatch(value):
            raise ValueError("must be depth:N (such as depth:3) or llm")
        return value

    @field_validator("role_models")
    @classmethod
    def _known_roles(cls, value: dict[str, str]) -> dict[str, str]:
        for role in value:
            if role not in ROLES:
                raise ValueError(f"has no role {role!r}: roles are {', '.join(ROLES)}")
        return value

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


def _message(settings: type[BaseModel], fault: Any) -> str:
    name = str(fault["loc"][0]) if fault["loc"] else "settings"
    if fault["type"] == "extra_forbidden":
        return f"unknown setting {name!r}: the settings are {', '.join(settings.model_fields)}"
    text = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{name} {text}, not {fault['input']!r}"
