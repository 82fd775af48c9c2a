"""A running solve as a tree: frames by id, built from events. It draws nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frames.text import one_line


@dataclass
class Node:
    """One frame. ``state`` is running, done or failed; ``planned`` are the texts of its subtasks."""

    id: str
    task: str
    parent: str | None
    began: float
    state: str = "running"
    role: str = "atomize"
    attempt: int = 1
    answer: str | None = None
    note: str | None = None
    planned: list[str] = field(default_factory=list[str])
    children: list[str] = field(default_factory=list[str])


@dataclass
class Tree:
    """The frames so far, the one being worked on (``active``), and the counts."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    active: str | None = None
    done: int = 0
    calls: int = 0
    tokens: int = 0

    def apply(self, event: Mapping[str, Any], now: float) -> None:
        """Take one event in; ``now`` is in seconds. A kind that is not known changes nothing."""
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler:
            handler(event, now)

    def path(self) -> list[str]:
        """Return the ids from the root to the active frame."""
        if self.active is None:
            return []
        parts = self.active.split(".")
        return [".".join(parts[: depth + 1]) for depth in range(len(parts))]

    def _on_frame(self, event: Mapping[str, Any], now: float) -> None:
        frame, parent = event["frame"], event["parent"]
        self.nodes[frame] = Node(frame, event["task"], parent, now)
        if parent in self.nodes:
            self.nodes[parent].children.append(frame)
        self.active = frame

    def _on_step(self, event: Mapping[str, Any], now: float) -> None:
        self.active = event["frame"]
        node = self.nodes.get(event["frame"])
        if node:
            node.role, node.attempt, node.began = event["role"], event["attempt"], now

    def _on_plan(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002  # every handler's form
        self.nodes[event["frame"]].planned = list(event["subtasks"])

    def _on_plan_refused(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        self.nodes[event["frame"]].note = f"plan refused: {event['reason']}"

    def _on_answer(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        self.nodes[event["frame"]].answer = one_line(event["answer"], 200)

    def _on_verdict(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        node = self.nodes[event["frame"]]
        node.note = None if event["accepted"] else f"rejected: {one_line(event['feedback'], 100)}"

    def _on_wait(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        node = self.nodes[event["frame"]]
        node.note = f"waiting {event['seconds']:.1f} s: {one_line(event['reason'], 100)}"

    def _on_call(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        self.calls += 1
        self.tokens += event["input_tokens"] + event["output_tokens"]
        node = self.nodes[event["frame"]]
        if node.note and node.note.startswith("waiting"):
            node.note = None

    def _on_done(self, event: Mapping[str, Any], now: float) -> None:  # noqa: ARG002
        node = self.nodes[event["frame"]]
        node.state = "done" if event["success"] else "failed"
        self.done += 1
