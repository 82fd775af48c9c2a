"""The journal: what models, tools, programs and people have answered, so that nothing is asked and paid for twice.

An entry is found by the frame, role and attempt that asked, the hash of what was asked, and which of several equal
requests of that step it was. It holds plain JSON values.
"""

import difflib
import hashlib
import json
from typing import Any, Literal, NamedTuple

from typing_extensions import TypedDict

AnswerKind = Literal["call", "tool", "code", "component", "means", "decision", "admission", "cell"]
"""Who answered: a model, a tool, the sandbox, a user's function, the model's own abilities, a person, the limits, or an
agent's session.
"""

Outcome = Literal["answer", "unusable", "fault"]
"""``unusable``: a model's reply that is no answer (refused, cut off, empty) but was paid for; ``fault``: none."""

Origin = Literal["run", "fork", "reuse"]
"""Where the answer comes from: this run, the run that it was forked from, or an equal request."""


class Key(NamedTuple):
    """What an entry is found by. ``request`` is the hash of what was asked, ``position`` counts equal requests."""

    frame: str
    role: str
    attempt: int
    kind: AnswerKind
    request: str
    position: int


class Entry(TypedDict):
    """One answer.

    ``seq`` is its place in the run, ``memo`` the hash by which an equal request finds it (None: none may), ``model``
    and the tokens are a model's; ``asked`` is what the request's hash was made of, ``answer`` what came back.
    """

    key: Key
    seq: int
    outcome: Outcome
    origin: Origin
    memo: str | None
    model: str
    input_tokens: int
    output_tokens: int
    estimated: bool
    asked: Any
    answer: Any


def digest(value: Any) -> str:
    """Return the hash of a JSON value; the order of a mapping's keys does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def difference(before: Any, after: Any) -> str:
    """Return how two requests, or two plans, differ: a unified diff of their texts, line by line."""
    lines = difflib.unified_diff(as_lines(before), as_lines(after), "recorded", "now", lineterm="", n=2)
    return "\n".join(lines)


def as_lines(value: Any) -> list[str]:
    """Return a JSON value as lines of text, the line breaks of its strings kept."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    return text.replace("\\n", "\n").splitlines()
