"""Kills a run at every write of its journal and its checkpoints, and goes on with it: ``python -m tests.killing``.

Each run is worked on by a forked process, which ends itself by SIGKILL at its n-th event: each write is two, right
before and right after. Arguments: WHERE (a folder or a postgresql:// address), a script's path, settings as JSON, and
of how many points one is tried (1: all). Prints one JSON line: the points, the requests that were answered more than
once, the most of one run, and each way in which a result differed.
"""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graph.runs import Runs
from graph.store import open_store
from nodes.context import Context

TASK = "the task"
COMPARED = ("status", "output", "gaps", "traces", "frames", "events")


def killing(store: Any, at: int) -> None:
    """End this process by SIGKILL at its ``at``-th event: each write is two, before and after."""
    count = 0

    def event() -> None:
        nonlocal count
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        async def run(*args: Any, **options: Any) -> Any:
            event()
            result = await function(*args, **options)
            event()
            return result

        return run

    store.write = watched(store.write)
    store.saver.aput = watched(store.saver.aput)
    store.saver.aput_writes = watched(store.saver.aput_writes)


async def work(where: str, settings: dict[str, Any], run_id: str, at: int | None, goes_on: bool) -> dict[str, Any]:
    async with open_store(where) as store:
        if at is not None:
            killing(store, at)
        runs, context = Runs(store), Context.checked(**settings)
        started = await store.find(run_id) is not None
        events = runs.resume(context, run_id) if goes_on and started else runs.start(context, TASK, run_id)
        document: dict[str, Any] = {}
        async for event in events:
            document = event.get("result", document)
        return {**document, "events": told(await runs.events(run_id))}


def told(events: list[dict[str, Any]]) -> list[str]:
    """Return what a run told, whenever that was, in no order; and a word where its ids have a gap."""
    timeless = ({k: v for k, v in event.items() if k not in ("id", "time", "seconds")} for event in events)
    gaps = [event["id"] for event in events] != list(range(1, len(events) + 1))
    within = [event for event in timeless if event["event"] not in ("run", "end")]
    return sorted(json.dumps(event) for event in within) + ["a gap"] * gaps


def in_a_fork(*args: Any) -> dict[str, Any] | None:
    """Return what a forked process gave; ``None`` where it was killed."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        with os.fdopen(into, "w") as pipe:
            json.dump(asyncio.run(work(*args)), pipe)
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return None
    return json.loads(text)


def answered(log: Path) -> Counter[tuple[Any, ...]]:
    """Return how often each request was answered since the log was read last."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    log.write_text("")
    return Counter((line["frame"], line["role"], line["attempt"], line["request"]) for line in lines)


def main(where: str, script: str, given: str, stride: str = "1") -> None:
    log = Path(script).with_name("calls.jsonl")
    settings = {"model": f"scripted:{script}", **json.loads(given)}
    place = where if "://" in where else str(Path(where) / "runs.db")
    whole = in_a_fork(place, settings, "whole", None, False)
    assert whole
    calls = sum(answered(log).values())
    differs, repeats, most, at = [], 0, 0, 0
    while in_a_fork(place, settings, f"run-{at}", at, False) is None:
        document = in_a_fork(place, settings, f"run-{at}", None, True)
        again = sum(count - 1 for count in answered(log).values())
        repeats, most = repeats + again, max(most, again)
        if document is None or document["usage"]["repeated_calls"]:
            differs.append([at, "repeated"])
        else:
            differs += [[at, name] for name in COMPARED if document[name] != whole[name]]
        at += int(stride)
    print(
        json.dumps({"calls": calls, "points": at // int(stride), "repeats": repeats, "most": most, "differs": differs})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
