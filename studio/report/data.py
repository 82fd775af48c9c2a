"""What a report holds of a run: an index of its events, and their long texts in compressed chunks beside it.

The index is read when the page opens; a chunk when a text of it is looked at, so that a run of thousands of frames
opens at once.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from frames.errors import UsageError
from frames.events import EVENTS_SCHEMA

HEAD = 300
"""Characters of a text that the index keeps; the whole of a longer one is in a chunk."""

CHUNK = 1_000_000
"""Characters of JSON after which a chunk is closed."""

_LATER = ("messages", "reply", "output")
_DROPPED = {"schema", "parent", "request", "position", "event", "run_id"}
_OF_RESULT = {"traces", "run_id", "schema"}


class Data(NamedTuple):
    """An index and its chunks: JSON, gzipped, as base64."""

    index: str
    chunks: list[str]


def data_of(events: Sequence[Mapping[str, Any]]) -> Data:
    """Return the data of a run's events, the first first.

    Raises:
        UsageError: the events are of a later release.
    """
    if any(event.get("schema", EVENTS_SCHEMA) > EVENTS_SCHEMA for event in events):
        raise UsageError("the run was saved by a later release: update Cactus to read it")
    texts = [_texts(event) for event in events]
    places, chunks = dict[int, list[int]](), list[str]()
    for chunk, content in _chunked(events, texts):
        chunks.append(packed(content))
        places |= {place: [len(chunks) - 1, offset] for offset, place in enumerate(chunk)}
    last = max((place for place, event in enumerate(events) if event["event"] == "end"), default=-1)
    rows = [_row(event, places.get(place), whole=place == last) for place, event in enumerate(events)]
    run_id = next((event["run_id"] for event in events if event["event"] == "run"), "")
    return Data(packed(json.dumps({"run_id": run_id, "events": rows}, separators=(",", ":"))), chunks)


def packed(text: str) -> str:
    """Return ``text`` gzipped, as base64: the same text, the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _texts(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of an event is looked at later: its messages and replies, and each long text."""
    later = {name: event[name] for name in _LATER if name in event}
    long = {name: text for name, text in event.items() if isinstance(text, str) and len(text) > HEAD}
    plan = event.get("subtasks", [])
    if any(len(subtask["task"]) > HEAD for subtask in plan):
        long["subtasks"] = plan
    return later | long


def _chunked(events: Sequence[Mapping[str, Any]], texts: Sequence[dict[str, Any]]) -> Iterator[tuple[list[int], str]]:
    """Yield the places of the events in each chunk, and its JSON; the texts of a frame stand side by side."""
    chunk, parts, size = list[int](), list[str](), 0
    for place in sorted(range(len(events)), key=lambda place: _path(events[place])):
        if not texts[place]:
            continue
        part = json.dumps(texts[place], separators=(",", ":"))
        chunk.append(place)
        parts.append(part)
        size += len(part)
        if size >= CHUNK:
            yield chunk, f"[{','.join(parts)}]"
            chunk, parts, size = [], [], 0
    if chunk:
        yield chunk, f"[{','.join(parts)}]"


def _path(event: Mapping[str, Any]) -> list[int]:
    return [int(part) for part in event.get("frame", "0").split(".")]


def _row(event: Mapping[str, Any], place: list[int] | None, *, whole: bool) -> dict[str, Any]:
    """Return what the index keeps of an event: ``e`` is its kind, ``at`` the chunk and place of its long texts.

    The result of the last session is kept ``whole`` but for its traces, of those before their status.
    """
    row: dict[str, Any] = {"e": event["event"]} | ({"at": place} if place else {})
    for name, value in event.items():
        if name in _DROPPED or name in _LATER:
            continue
        if name == "result":
            row[name] = _result(value) if whole else {"status": value["status"]}
        elif name == "subtasks":
            row[name] = [{**subtask, "task": subtask["task"][:HEAD]} for subtask in value]
        else:
            row[name] = value[:HEAD] if isinstance(value, str) else value
    return row


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    usage = {name: value for name, value in result.get("usage", {}).items() if name != "by_frame"}
    return {name: value for name, value in result.items() if name not in _OF_RESULT} | {"usage": usage}
