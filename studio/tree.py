"""A running solve as a tree: frames by id, built from events. It draws nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frames.text import one_line


@dataclass
class Node:
    """One frame. ``state`` is running, done or failed; ``planned`` are the texts of its subtasks.

    ``began`` is when the step under way did, ``made`` and ``ended`` when the frame did, in seconds; ``tool`` is the one
    used last in the step. ``tokens`` and ``usd`` are what it and all below it have spent, ``usd`` ``None`` where the
    price of a call is unknown.
    """

    id: str
    task: str
    parent: str | None
    began: float
    state: str = "running"
    role: str = "atomize"
    attempt: int = 1
    answer: str | None = None
    note: str | None = None
    kind: str | None = None
    tool: str | None = None
    made: float = 0
    ended: float | None = None
    tokens: int = 0
    usd: float | None = 0
    planned: list[str] = field(default_factory=list[str])
    children: list[str] = field(default_factory=list[str])


@dataclass
class Tree:
    """The frames so far, those being worked on (``working``; ``active`` is the latest), and the counts."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    active: str | None = None
    working: set[str] = field(default_factory=set[str])
    done: int = 0
    calls: int = 0
    tokens: int = 0
    usd: float | None = 0

    def apply(self, event: Mapping[str, Any], now: float) -> None:
        """Take one event in; ``now`` is in seconds. A kind that is not known changes nothing."""
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler:
            handler(event, now)

    def rest(self) -> None:
        """Take it that nobody works on any frame: the session has ended, or its process was killed."""
        self.working.clear()

    def path(self) -> list[str]:
        """Return the ids from the root to each frame that is worked on, or was last, in the order of the tree."""
        ends = self.working or {self.active} - {None}
        split = [end.split(".") for end in ends if end]
        ids = {tuple(parts[: depth + 1]) for parts in split for depth in range(len(parts))}
        return [".".join(parts) for parts in sorted(ids, key=lambda parts: [int(part) for part in parts])]

    def pending(self, frame: str) -> list[tuple[str, str]]:
        """Return the id and the task of each planned subtask of ``frame`` that has not begun."""
        planned = ((f"{frame}.{index}", task) for index, task in enumerate(self.nodes[frame].planned))
        return [(child, task) for child, task in planned if child not in self.nodes]

    def _node(self, frame: str, now: float) -> Node:
        """Return a frame; one begun before a resume was never announced, so it and its parents are made here."""
        node = self.nodes.get(frame)
        if node is None:
            parent = frame.rpartition(".")[0] or None
            node = self.nodes[frame] = Node(frame, "", parent, now, made=now)
            if parent is not None:
                self._node(parent, now).children.append(frame)
        return node

    def _on_frame(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        node.task, node.began, node.made, node.kind = event["task"], now, now, event.get("kind")
        self._work_on(event["frame"])

    def _on_step(self, event: Mapping[str, Any], now: float) -> None:
        self._work_on(event["frame"])
        node = self._node(event["frame"], now)
        at: Node | None = node
        while at and at.state != "running":  # gone on with, or done anew, and with it all above it
            at.state, at.ended, self.done = "running", None, self.done - 1
            at = self.nodes.get(at.parent or "")
        self._waited(node)
        node.role, node.attempt, node.began, node.tool = event["role"], event["attempt"], now, None

    def _on_plan(self, event: Mapping[str, Any], now: float) -> None:
        self._node(event["frame"], now).planned = [subtask["task"] for subtask in event["subtasks"]]
        self.working.discard(event["frame"])

    def _on_cell(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        node.tool = f"step {event['step']}{' failed' if event['error'] else ''}"
        if event["launches"]:
            self.working.discard(event["frame"])

    def _on_plan_refused(self, event: Mapping[str, Any], now: float) -> None:
        self._node(event["frame"], now).note = f"plan refused: {event['reason']}"

    def _on_answer(self, event: Mapping[str, Any], now: float) -> None:
        self._node(event["frame"], now).answer = one_line(event["answer"], 200)

    def _on_verdict(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        node.note = None if event["accepted"] else f"rejected: {one_line(event['feedback'], 100)}"

    def _on_wait(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        node.note = f"waiting {event['seconds']:.1f} s: {one_line(event['reason'], 100)}"

    def _on_call(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        if not event.get("saved"):
            self._spend(node, event["input_tokens"] + event["output_tokens"], event.get("usd"))
        self._waited(node)

    @staticmethod
    def _waited(node: Node) -> None:
        if node.note and node.note.startswith("waiting"):
            node.note = None

    def _spend(self, node: Node, tokens: int, usd: float | None) -> None:
        """Count a call for its frame, all above it, and the whole."""
        self.calls += 1
        at: Node | None = node
        while at:
            at.tokens += tokens
            at.usd = None if at.usd is None or usd is None else at.usd + usd
            at = self.nodes.get(at.parent or "")
        self.tokens += tokens
        self.usd = None if self.usd is None or usd is None else self.usd + usd

    def _on_tool(self, event: Mapping[str, Any], now: float) -> None:
        failed = "" if event["ok"] else " failed"
        self._node(event["frame"], now).tool = f"{event['tool']}{failed}"

    def _on_done(self, event: Mapping[str, Any], now: float) -> None:
        node = self._node(event["frame"], now)
        node.state, node.ended = "done" if event["success"] else "failed", now
        self.done += 1
        self.working.discard(event["frame"])

    def _work_on(self, frame: str) -> None:
        self.active = frame
        self.working.add(frame)
