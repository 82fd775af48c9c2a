"""Trajectories: one record for each agent of a run, with all that training needs of it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]

_ROLES = {"human": "user", "ai": "assistant", "system": "system"}


def trajectories(events: Sequence[Event], split: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each agent of a run, the root first; ``split`` is the side that the run's task is on.

    ``messages`` are the whole conversation, each request of which began with the one before it. ``token_ids`` and
    ``logprobs`` are null: no engine that was asked gives them. ``success`` is whether the agent's answer was accepted;
    ``success_provider`` says by whom.
    """
    run = next((event for event in events if event["event"] == "run"), None)
    if run is None:
        return
    frames = {event["frame"]: event for event in events if event["event"] == "frame"}
    by_frame: dict[str, list[Event]] = {id_: [] for id_ in frames}
    for event in events:
        if event.get("frame") in by_frame:
            by_frame[event["frame"]].append(event)
    launched = {each["frame"]: cell["step"] for cell in events if cell["event"] == "cell" for each in cell["launches"]}
    ended = {id_: _success(told) for id_, told in by_frame.items()}
    for id_ in sorted(frames, key=lambda id_: [int(part) for part in id_.split(".")]):
        children = [child for child in frames if child.rpartition(".")[0] == id_]
        known = [ended[child] for child in children if ended[child] is not None]
        yield {
            "schema": 1,
            "task_id": _id(run["task"]),
            "group_id": _id(run["task"]),
            "rollout_id": run["run_id"],
            "node_id": id_,
            "parent_id": id_.rpartition(".")[0] or None,
            "depth": frames[id_]["depth"],
            "fork_step": launched.get(id_),
            "split": split,
            "goal": frames[id_]["task"],
            **_said(by_frame[id_]),
            "token_ids": None,
            "logprobs": None,
            "terminal_reason": _terminal(by_frame[id_]),
            "success": ended[id_],
            "success_provider": _provider(run, by_frame[id_]),
            "verdict": _verdict(by_frame[id_]),
            "children": children,
            "child_success_mean": sum(map(float, known)) / len(known) if known else None,
        }


def _id(task: str) -> str:
    return hashlib.sha256(task.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _said(events: Sequence[Event]) -> dict[str, Any]:
    """Return the conversation of an agent, the code that it ran, what that gave, and the tokens that it took."""
    calls = [event for event in events if event["event"] == "call" and event["role"] == "solve" and "reply" in event]
    last = max(calls, key=lambda call: (len(call["messages"]), call["id"]), default=None)
    messages = [{"role": _ROLES.get(each["role"], each["role"]), "content": each["content"]} for each in _of(last)]
    paid = [call for call in calls if not call["saved"]]
    return {
        "messages": [*messages, {"role": "assistant", "content": last["reply"]}] if last else [],
        "policy_version": last["model"] if last else None,
        "cells": [
            {name: event[name] for name in ("step", "code", "output", "error", "launches", "finished")}
            for event in events
            if event["event"] == "cell"
        ],
        "tools": [
            {"tool": event["tool"], "arguments": event["arguments"], "ok": event["ok"], "output": event.get("output")}
            for event in events
            if event["event"] == "tool"
        ],
        "input_tokens": sum(call["input_tokens"] for call in paid),
        "output_tokens": sum(call["output_tokens"] for call in paid),
    }


def _of(call: Event | None) -> Sequence[Mapping[str, Any]]:
    return call["messages"] if call else ()


def _success(events: Sequence[Event]) -> bool | None:
    return next((event["success"] for event in reversed(events) if event["event"] == "done"), None)


def _verdict(events: Sequence[Event]) -> dict[str, Any] | None:
    last = next((event for event in reversed(events) if event["event"] == "verdict"), None)
    return {"accepted": last["accepted"], "feedback": last["feedback"]} if last else None


def _provider(run: Event, events: Sequence[Event]) -> str | None:
    """Return who judged an agent's answer: the run's verifier, or, where there was no answer, the machine."""
    if _success(events) is None:
        return None
    return f"verifier:{run['settings'].get('verifier', 'accept')}" if _verdict(events) else "machine"


def _terminal(events: Sequence[Event]) -> str | None:
    """Return how an agent came to its end: it finished, was rejected, met a limit (by its name), or failed."""
    success, verdict = _success(events), _verdict(events)
    if success is None:
        return None
    if success:
        return "finish"
    limit = next((event["limit"] for event in reversed(events) if event["event"] == "limit"), None)
    return "rejected" if verdict and not verdict["accepted"] and limit is None else limit or "failed"
