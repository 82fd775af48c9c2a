"""Structured replies: read from a model's own structured output, or from whatever text it wrote instead.

Models wrap JSON in prose, in a code fence, behind a reasoning block, and leave a comma behind the last entry. All
of that is read; half an object is not.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import BaseModel, Field

from nodes.models.reply import Reply

_REASONING = re.compile(r"<(think|thinking|reasoning|thought)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_REASONING = re.compile(r"\A.*</(?:think|thinking|reasoning|thought)>", re.DOTALL | re.IGNORECASE)
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_TRUE, _FALSE = {"yes", "true", "atomic", "simple"}, {"no", "false", "not", "complex", "composite"}


class Atomic(BaseModel):
    """Whether the task can be done in one go."""

    atomic: bool = Field(description="Whether one person could do the task in one go, without splitting it.")


class PlannedSubtask(BaseModel):
    """One subtask of a plan."""

    id: str = Field(description="A short name, unique within the plan.")
    task: str = Field(description="The instruction, which names its subject in full.")
    kind: Literal["search", "think", "write", "code"] = Field(description="What sort of work it is.")
    depends_on: list[str] = Field(description="Ids of the subtasks whose results it needs; empty for none.")


class Plan(BaseModel):
    """Subtasks that are apart from one another and together make up the task."""

    subtasks: list[PlannedSubtask] = Field(description="The subtasks; empty where the task is better done in one go.")


class SeenFile(BaseModel):
    """A file that the task touches."""

    path: str = Field(description="The path, exactly as it is listed.")
    why: str = Field(description="Why the task touches it, in a few words.")


class Investigation(BaseModel):
    """What was found before a task is split."""

    files: list[SeenFile] = Field(description="The files that the task touches, the most important first.")
    observations: list[str] = Field(description="What else is worth knowing before the task is split.")


class Judgement(BaseModel):
    """Whether an answer is accepted."""

    accepted: bool = Field(description="Whether the answer is right and complete.")
    feedback: str = Field(description="What is wrong and how to mend it; empty where it is accepted.")
    guilty: str | None = Field(description="Id of the one result that is at fault, such as 0.2; null for none.")


def without_reasoning(text: str) -> str:
    """Return ``text`` without a reasoning block, also one whose beginning the endpoint cut off."""
    return _END_OF_REASONING.sub("", _REASONING.sub("", text), count=1).strip()


def read_object(reply: Reply, *keys: str) -> dict[str, Any] | None:
    """Return the object of a reply that has one of ``keys``: the model's own, or the last one in its text."""
    if reply.parsed is not None:
        return reply.parsed
    fitting = [found for found in objects(without_reasoning(reply.text)) if any(key in found for key in keys)]
    return fitting[-1] if fitting else None


def read_list(reply: Reply) -> list[Any] | None:
    """Return the list of objects that a reply's text is, where it is one."""
    value = _loaded(_unfenced(without_reasoning(reply.text)))
    if not isinstance(value, list):
        return None
    entries = cast("list[Any]", value)
    return entries if all(isinstance(entry, dict) for entry in entries) else None


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in ``text``, the outermost ones, in order."""
    start = text.find("{")
    while start >= 0:
        end = _end(text, start)
        value = _loaded(text[start:end]) if end else None
        if isinstance(value, dict):
            yield cast("dict[str, Any]", value)
            start = text.find("{", cast("int", end))
        else:
            start = text.find("{", start + 1)


def says(text: str) -> bool | None:
    """Return what a text says whose first word is yes or no, or means as much; ``None`` for neither."""
    words = re.findall(r"[a-z]+", without_reasoning(text).lower()[:200])
    first = words[0] if words else ""
    return True if first in _TRUE else False if first in _FALSE else None


def truth(value: Any) -> bool | None:
    """Return the truth that a JSON value means, a text such as "yes" too; ``None`` for none."""
    return value if isinstance(value, bool) else says(value) if isinstance(value, str) else None


def _unfenced(text: str) -> str:
    fenced = re.search(r"```[\w-]*\s*\n(.*?)```", text, re.DOTALL)
    return fenced[1].strip() if fenced else text


def _end(text: str, start: int) -> int | None:
    """Return where the object that begins at ``start`` ends; ``None`` where it does not."""
    depth, quote, position = 0, "", start
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character == '"':
            quote = character
        elif character in "{[":
            depth += 1
        elif character in "}]":
            depth -= 1
            if not depth:
                return position + 1
        position += 1
    return None


def _loaded(text: str) -> Any:
    """Return what ``text`` holds as JSON, or as the Python that models take for it; ``None`` for neither."""
    for candidate in (text, _COMMA.sub(lambda match: match[1] or "", text)):
        try:
            return json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
