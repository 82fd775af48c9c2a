"""A run's events in the forms that other programs read: JSON lines, a Mermaid diagram, training records."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frames.events import json_line
from studio.live import printable
from studio.trajectories import trajectories
from studio.tree import Node, Tree

Events = Sequence[Mapping[str, Any]]

FORMATS = ("jsonl", "mermaid", "training")

_STYLES = {"done": "fill:#d6f5d6,stroke:#2e7d32,color:#111", "failed": "fill:#fbd5d5,stroke:#b71c1c,color:#111"}
_OPEN = "fill:#fff3cd,stroke:#9a6700,color:#111"
_SPLIT = ((0.8, "train"), (0.9, "validation"), (1.0, "test"))


def exported(events: Events, form: str) -> Iterator[str]:
    """Yield the lines of a run's events in ``form``, one of ``FORMATS``."""
    match form:
        case "mermaid":
            yield from mermaid(events)
        case "training":
            yield from map(json_line, training(events))
        case _:
            yield from map(json_line, events)


def mermaid(events: Events) -> Iterator[str]:
    """Yield the tree of frames as a flowchart: solid arrows to subtasks, dashed ones from what they build on."""
    tree, built_on = Tree(), list[tuple[str, str]]()
    for event in events:
        tree.apply(event, event["time"])
        if event["event"] == "plan":
            built_on += _dependencies(event)
    yield "flowchart TD"
    for node in tree.nodes.values():
        yield f'  {_name(node.id)}["{_label(node)}"]'
    yield from (f"  {_name(node.parent)} --> {_name(node.id)}" for node in tree.nodes.values() if node.parent)
    yield from (f"  {_name(a)} -.-> {_name(b)}" for a, b in dict.fromkeys(built_on) if {a, b} <= tree.nodes.keys())
    for node in tree.nodes.values():
        yield f"  style {_name(node.id)} {_STYLES.get(node.state, _OPEN)}"


def _dependencies(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    frames = {subtask["id"]: f"{event['frame']}.{place}" for place, subtask in enumerate(event["subtasks"])}
    for subtask in event["subtasks"]:
        yield from ((frames[name], frames[subtask["id"]]) for name in subtask["depends_on"])


def _name(frame: str) -> str:
    return "f" + frame.replace(".", "_")


def _label(node: Node) -> str:
    kind = f"{node.kind}: " if node.kind else ""
    text = printable(f"{node.id} {kind}{node.task}", 80)
    return "".join(f"#{ord(c)};" if c in '"#<>&`\\[]{}|' else c for c in text)  # Mermaid's own escapes


def training(events: Events) -> Iterator[dict[str, Any]]:
    """Yield a record for each call that this run made: what was asked and said, and what became of it.

    ``verdict`` is that on the answer which the call was part of; a call that judges, or decides how to go on, is
    credited with how its frame ended. ``reward`` is 1 or 0, ``None`` where nothing was decided. ``split`` depends on
    the root task alone, so that runs of one task are never on both sides. A run of agents has a record for each agent
    (``studio.trajectories``).
    """
    about = _About(events)
    if about.run.get("settings", {}).get("profile") == "agent":
        yield from trajectories(events, split(about.run["task"]))
        return
    for event in events:
        if event["event"] == "call" and not event["saved"] and "reply" in event:
            yield about.record(event)


class _About:
    """What became of a run's frames and answers."""

    def __init__(self, events: Events) -> None:
        self.run: Mapping[str, Any] = next((e for e in events if e["event"] == "run"), {"run_id": "", "task": ""})
        self.frames = {e["frame"]: e for e in events if e["event"] == "frame"}
        self.ended = {e["frame"]: e["success"] for e in events if e["event"] == "done"}
        self.verdicts = [e for e in events if e["event"] == "verdict"]
        self.success = next((e["result"]["success"] for e in reversed(events) if e["event"] == "end"), None)

    def record(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a call."""
        frame = self.frames.get(call["frame"], {"task": "", "kind": None, "depth": call["frame"].count(".")})
        verdict = self._verdict(call)
        accepted = verdict["accepted"] if verdict else self.ended.get(call["frame"])
        return {
            "schema": 1,
            "run": self.run["run_id"],
            "root_task": self.run["task"],
            "split": split(self.run["task"]),
            "frame": call["frame"],
            "parent": call["parent"],
            "depth": frame["depth"],
            "kind": frame["kind"],
            "task": frame["task"],
            "role": call["role"],
            "attempt": call["attempt"],
            "model": call["model"],
            "messages": call["messages"],
            "reply": call["reply"],
            "input_tokens": call["input_tokens"],
            "output_tokens": call["output_tokens"],
            "verdict": {"accepted": verdict["accepted"], "feedback": verdict["feedback"]} if verdict else None,
            "reward": None if accepted is None else float(accepted),
            "run_success": self.success,
        }

    def _verdict(self, call: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the first verdict after a call on the attempt that it was part of."""
        if call["role"] not in ("solve", "aggregate"):
            return None
        same = (e for e in self.verdicts if e["frame"] == call["frame"] and e["attempt"] == call["attempt"])
        return next((e for e in same if e["id"] > call["id"]), None)


def split(task: str) -> str:
    """Return the side that a root task's records are on: train (80 %), validation or test (10 % each)."""
    place = int(hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) / 16**8
    return next(name for most, name in _SPLIT if place < most)
