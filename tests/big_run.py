"""The events of a run of thousands of frames, made without running any: for the report's tests and benchmark."""

import heapq
import itertools
import random
from collections.abc import Iterator
from typing import Any

KINDS = ("search", "think", "write", "code")
PLACES = 8


class _Clock:
    """Hands out places for calls, ``PLACES`` at once, and says when each ends."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._free = [0.0] * PLACES

    def call(self, after: float) -> tuple[float, float]:
        """Return when a call that is asked for at ``after`` ends, and its seconds, what it waited included."""
        free = max(after, heapq.heappop(self._free))
        end = free + self._random.lognormvariate(0, 0.6)
        heapq.heappush(self._free, end)
        return end, end - after


def big_run(frames: int, *, seed: int = 7, prompt: int = 1500) -> list[dict[str, Any]]:
    """Return the events of a run of ``frames`` frames, five to a plan, each call's prompt of ``prompt`` characters.

    Every 40th leaf fails, every 25th has a rejected answer, every 60th a pause.
    """
    clock, told = _Clock(seed), list[tuple[float, int, dict[str, Any]]]()
    order = itertools.count()
    words = random.Random(seed)

    def tell(time: float, event: str, frame: str, **rest: Any) -> None:
        parent = frame.rpartition(".")[0] or None
        told.append((time, next(order), {"event": event, "frame": frame, "parent": parent, **rest}))

    def call(frame: str, role: str, after: float, attempt: int = 1) -> float:
        tell(after, "step", frame, role=role, attempt=attempt)
        end, seconds = clock.call(after)
        text = " ".join(words.choice(_WORDS) for _ in range(prompt // 6))
        tell(
            end, "call", frame, role=role, attempt=attempt, model="made:up", input_tokens=prompt // 4, output_tokens=90,
            estimated=False, usd=0.0004, seconds=seconds, saved=False, request="0" * 32, position=0,
            messages=[{"role": "human", "content": f"{role} of {frame}: {text}"}], reply=f"{text[:300]} [{frame}]",
        )  # fmt: skip
        return end

    children = _shape(frames)
    for number, (frame, below) in enumerate(children.items()):
        kind = KINDS[number % 4] if frame != "0" else None
        # a frame begins once its parent is planned; the order of times is mended by the sort below
        began = 0.5 * frame.count(".") + 0.01 * number
        tell(
            began,
            "frame",
            frame,
            task=f"Look into part {number}: {words.choice(_WORDS)}",
            depth=frame.count("."),
            kind=kind,
        )
        end = call(frame, "atomize", began)
        if below:
            end = call(frame, "decompose", end)
            tell(end, "plan", frame, subtasks=_plan(below, number))
            continue
        if number % 60 == 0:
            tell(end, "wait", frame, role="solve", seconds=1.5, reason="429 Too Many Requests")
        rejected = number % 25 == 0
        for attempt in (1, 2) if rejected else (1,):
            end = call(frame, "solve", end, attempt)
            tell(end, "answer", frame, role="solve", attempt=attempt, answer=f"Found {number} [{frame}]")
            tell(
                end,
                "verdict",
                frame,
                attempt=attempt,
                accepted=attempt == 2 or not rejected,
                feedback="" if attempt == 2 or not rejected else "too short",
            )
        tell(end, "done", frame, success=number % 40 != 0)
    latest = max(time for time, _, _ in told)
    for frame in [frame for frame, below in reversed(children.items()) if below]:
        latest = call(frame, "aggregate", latest)
        tell(latest, "answer", frame, role="aggregate", attempt=1, answer=f"All of {frame}: [{children[frame][0]}]")
        tell(latest, "done", frame, success=True)
    return [*_numbered(told, frames)]


def _shape(frames: int) -> dict[str, list[str]]:
    """Return each frame with those below it, five a plan, level by level."""
    children: dict[str, list[str]] = {"0": []}
    queue = ["0"]
    for parent in queue:
        for place in range(5):
            if len(children) == frames:
                return children
            child = f"{parent}.{place}"
            children[parent].append(child)
            children[child] = []
            queue.append(child)
    return children


def _plan(below: list[str], number: int) -> list[dict[str, Any]]:
    names = "abcde"
    return [
        {
            "id": names[place],
            "task": f"Look into {child}",
            "kind": KINDS[(number + place) % 4],
            "depends_on": [names[place - 1]] if place in (2, 4) else [],
        }
        for place, child in enumerate(below)
    ]


def _numbered(told: list[tuple[float, int, dict[str, Any]]], frames: int) -> Iterator[dict[str, Any]]:
    epoch = 1_790_000_000
    told.sort(key=lambda entry: entry[:2])
    settings = {"profile": "roma", "model": "made:up", "parallel": PLACES}
    first = {
        "event": "run", "run_id": "big", "task": "Look into everything", "session": 1, "settings": settings,
        "bound": {"frames": frames, "calls": 6 * frames, "steps": 8 * frames},
    }  # fmt: skip
    result = {
        "schema": 1, "run_id": "big", "status": "succeeded", "success": True,
        "output": "All of it [0.0], see frame 0.1.",
        "partial": None, "gaps": ["0.0.0: rejected after 2 attempts: too short"], "notes": [], "traces": [],
        "duration_ms": 0, "frames": frames, "bound": first["bound"], "usage": {},
    }  # fmt: skip
    whole = [
        (0.0, first),
        *((time, event) for time, _, event in told),
        (told[-1][0], {"event": "end", "result": result}),
    ]
    for number, (time, event) in enumerate(whole, 1):
        yield {"schema": 1, "id": number, "time": epoch + time, **event}


_WORDS = [
    "tariff",
    "ledger",
    "harbour",
    "invoice",
    "signal",
    "ballast",
    "coolant",
    "margin",
    "freight",
    "turbine",
    "archive",
    "protocol",
    "quota",
    "sample",
    "vessel",
    "gradient",
    "filter",
    "anchor",
    "bearing",
    "census",
]
