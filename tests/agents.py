"""Scripted agents that several tests use; ``python -m tests.agents FOLDER SETTINGS`` begins or resumes a run by one."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import yaml


def block(code: str) -> str:
    """Return a reply that runs ``code``."""
    return f"Next.\n```python\n{code}\n```"


def script(folder: Path, *rules: dict[str, Any], **top: Any) -> str:
    """Return the model, by its name, that replies by ``rules``, and logs its calls in ``folder``."""
    path = folder / "agent.yaml"
    path.write_text(yaml.safe_dump({"log": "calls.jsonl", "rules": list(rules), **top}), encoding="utf-8")
    return f"scripted:{path}"


def by_step(*codes: str, **where: Any) -> list[dict[str, Any]]:
    """Return rules by which an agent runs ``codes`` one after another; ``where`` are the rules' conditions."""
    rules = [
        {"role": "solve", "contains": f"Left: {25 - nth} repl", **where, "reply": block(code)}
        for nth, code in enumerate(codes)
    ]
    return rules[::-1]  # a conversation has the lines of earlier steps too


NESTED: list[dict[str, Any]] = [
    *by_step(
        "seen = ['begun']\ncount = 40",
        "a, b = await asyncio.gather(\n"
        "    launch_subagent('the left half', context={'n': 1}), launch_subagent('the right half', returns='int'))\n"
        "seen.append(a)\ncount += b\nc = await launch_subagent('the rest of ' + a)\nprint(seen, count, c)",
        "finish({'seen': seen, 'count': count, 'rest': c})",
        depth=0,
    ),
    *by_step(
        "x = context['n']\nleaves = [launch_subagent('leaf %d' % i, context=i) for i in range(2)]\n"
        "parts = await asyncio.gather(*leaves)",
        "finish('left of ' + ' and '.join(parts) + ' with ' + str(x))",
        frame=r"0\.0",
    ),
    *by_step("y = 1\nwhile y < 2:\n    y += 1", "finish(y)", frame=r"0\.1"),
    *by_step("finish('leaf ' + str(context))", depth=2),
    *by_step("finish('the rest')", frame=r"0\.2"),
]
"""Subagents side by side, one of which launches two more, and then one that depends on them: seven frames."""

NESTED_ANSWER = {"seen": ["begun", "left of leaf 0 and leaf 1 with 1"], "count": 42, "rest": "the rest"}


def note(word: str) -> str:
    """Write a word down."""
    with Path("notes.txt").open("a") as file:
        file.write(f"{word}\n")
    return f"noted {word}"


def die(where: str) -> str:
    """End the process, the first time."""
    if not Path(where).exists():
        Path(where).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def main(folder: str, settings: str) -> None:
    """Begin the run in a folder, or go on with it, and print its result."""
    from tests.killing import work

    os.chdir(folder)
    given = {"model": "scripted:agent.yaml", **json.loads(settings)}
    print(json.dumps(asyncio.run(work("runs.db", given, "run", None, goes_on=True))))


if __name__ == "__main__":
    main(*sys.argv[1:])
