"""The events of a kept run, with what its journal keeps of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from frames.journal import AnswerKind, Entry, Key
from nodes.models.reply import text_of
from nodes.sandbox.run import output_of

Events = list[dict[str, Any]]


def with_answers(events: Iterable[dict[str, Any]], entries: Iterable[Entry]) -> Events:
    """Return ``events``, those of calls with ``messages`` and ``reply``, those of tools with ``output``."""
    by_key = {entry["key"]: entry for entry in entries}
    return [{**event, **_answer(event, by_key)} for event in events]


def _answer(event: Mapping[str, Any], entries: Mapping[Key, Entry]) -> dict[str, Any]:
    match event["event"]:
        case "call" if entry := _entry(event, "call", entries):
            return {"messages": entry["asked"]["messages"], "reply": text_of(entry["answer"]["reply"])}
        case "tool" if entry := _entry(event, "tool", entries):
            return {"output": entry["answer"]["text"]}
        case "tool" if entry := _entry(event, "code", entries):
            return {"output": output_of(entry["answer"])}
        case _:
            return {}


def _entry(event: Mapping[str, Any], kind: AnswerKind, entries: Mapping[Key, Entry]) -> Entry | None:
    frame, role, attempt = event["frame"], event["role"], event["attempt"]
    return entries.get(Key(frame, role, attempt, kind, event["request"], event["position"]))
