"""A scripted player of the crafting world: what a model would reply in the next turn, from what it has seen alone.

Alone, it asks for all recipes below its target and crafts them one a turn, so that a long task makes a long history.
With subagents, it looks a little way down. What it can see to the bottom of it crafts as if alone; otherwise it hands
out, one subagent an ingredient, all at once, and then crafts. Replies are a sentence and a block of plain Python that
small interpreters run as well.
"""

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from worlds.crafting.task import asked, goal_text

_BATCH = 8
"""Recipes that it asks for in a turn, alone."""

_MOST_FAILURES = 2
"""Crafts that may fail for want of something before it gives up; others share the inventory."""

_CRAFTED = re.compile(r"^Crafted (\d+) of '([^'\n]+)'", re.MULTILINE)
_SHORT = re.compile(r"^Not crafted: for \d+ of '[^'\n]+' the inventory is short of (\{[^}\n]*\})", re.MULTILINE)

_LOOK = """\
known = {{}}
todo = [{target!r}]
while todo and len(known) < {most}:
    for info in await get_info(todo[:40]):
        known[info["item"]] = info
    todo = []
    for info in list(known.values()):
        if info.get("recipe"):
            for part in info["recipe"]["ingredients"]:
                if part not in known and part not in todo:
                    todo.append(part)
shown = list(known)
if todo:
    shown = shown[:{kept}]
    parts = []
    for name in shown:
        if known[name]["recipe"]:
            parts += list(known[name]["recipe"]["ingredients"])
    for name in parts:
        if name not in known:
            known[name] = (await get_info([name]))[0]
        if name not in shown and not known[name]["recipe"]:
            shown.append(name)
print([known[name] for name in shown])"""

_LAUNCH = """\
import asyncio
answers = await asyncio.gather(
{launches}
)
for answer in answers:
    print(str(answer)[:200])"""

Recipe = tuple[dict[str, int], int]
"""Ingredients, and how many a craft makes."""


@dataclass(slots=True)
class _Seen:
    """What an agent knows from the observations so far."""

    recipes: dict[str, Recipe | None] = field(default_factory=dict[str, Recipe | None])
    errors: list[str] = field(default_factory=list[str])
    crafted: set[str] = field(default_factory=set[str])
    failures: int = 0
    launched: bool = False


def expert_turn(
    goal: str, history: Sequence[tuple[str, str]], can_launch: bool, *, alone: int = 24, kept: int = 1
) -> str:
    """Return the reply of the next turn: words and a block of Python.

    ``goal`` is in the words of ``goal_text``; ``history`` holds each earlier reply with the observation it got;
    ``can_launch`` says whether subagents may be started. With them, an agent looks at about ``alone`` items; what goes
    farther down it hands out, and keeps the crafts of the ``kept`` items nearest its target for itself. With 1, every
    ingredient that must be crafted is a subagent's; with more there are fewer subagents, as what several of the kept
    items need is asked for once. The same input gives the same reply.
    """
    wanted = asked(goal)
    if wanted is None:
        return _finish("The goal does not say what to craft.")
    target, amount = wanted
    seen = _read(history)
    if target in seen.crafted:
        return _finish(f"Crafted {amount} of {target!r}.")
    if seen.errors:
        return _finish(f"Failed: {seen.errors[0]}")
    if target in seen.recipes and seen.recipes[target] is None:
        return _finish(f"Failed: {target!r} is a base item.")
    if can_launch and target not in seen.recipes and not history:
        code = _LOOK.format(target=target, most=alone, kept=kept)
        return _reply("I look at the recipe and what lies below it.", code)
    unknown = _unknown(seen.recipes, target)
    if unknown and not seen.launched:
        if can_launch and target in seen.recipes:
            return _launch({part: count for part, count in _wanted(seen, target, amount).items() if part in unknown})
        return _reply("I need these recipes.", f"print(await get_info({unknown[:_BATCH]!r}))")
    if short := _short(history[-1][1]):
        if not (can_launch and seen.failures <= _MOST_FAILURES and short.keys() <= {*unknown}):
            return _finish(f"Failed: the inventory is short of {short}.")
        return _launch(short)
    following = next(name for name in _bottom_up(seen.recipes, target) if name not in seen.crafted)
    return _craft(following, _wanted(seen, target, amount)[following], seen.recipes)


def _wanted(seen: _Seen, target: str, amount: int) -> dict[str, int]:
    """Return how many of each item ``amount`` of ``target`` take, as far down as recipes are known."""
    wanted = {target: amount}
    for name in reversed(_bottom_up(seen.recipes, target)):
        ingredients, makes = _known(seen.recipes, name)
        for part, each in ingredients.items():
            wanted[part] = wanted.get(part, 0) + each * -(-wanted[name] // makes)
    return wanted


def _launch(parts: dict[str, int]) -> str:
    launches = [f"    launch_subagent({goal_text((part, count))!r})," for part, count in parts.items()]
    return _reply("Each of these is a task of its own.", _LAUNCH.format(launches="\n".join(launches)))


def _craft(item: str, amount: int, recipes: dict[str, Recipe | None]) -> str:
    ingredients, makes = _known(recipes, item)
    crafts = -(-amount // makes)
    exact = {part: each * crafts for part, each in ingredients.items()}
    return _reply(f"Now I craft {item}.", f"print(await craft({exact!r}, {(item, crafts * makes)!r}))")


def _finish(message: str) -> str:
    return _reply("That is all.", f"finish({message!r})")


def _reply(words: str, code: str) -> str:
    return f"{words}\n\n```python\n{code}\n```"


def _read(history: Sequence[tuple[str, str]]) -> _Seen:
    seen = _Seen()
    for reply, observation in history:
        seen.launched = seen.launched or "    launch_subagent(" in reply
        for info in _infos(observation):
            if "error" in info:
                seen.errors.append(str(info["error"]))
            else:
                recipe = info["recipe"]
                seen.recipes[info["item"]] = recipe and (recipe["ingredients"], recipe["makes"])
        seen.crafted.update(found[2] for found in _CRAFTED.finditer(observation))
        seen.failures += bool(_short(observation))
    return seen


def _infos(observation: str) -> list[dict[str, Any]]:
    """Return what ``get_info`` told, from lines that are lists of it."""
    found = list[dict[str, Any]]()
    for line in observation.splitlines():
        if line.startswith("[{'item': "):
            try:
                found += _told(line)
            except (ValueError, SyntaxError):  # the observation was cut
                continue
    return found


def _told(line: str) -> list[dict[str, Any]]:
    try:
        return json.loads(line.replace("'", '"').replace("None", "null"))  # as a literal it takes ten times as long
    except json.JSONDecodeError:  # quotes within a text
        return cast("list[dict[str, Any]]", ast.literal_eval(line))


def _short(observation: str) -> dict[str, int]:
    found = _SHORT.search(observation)
    return cast("dict[str, int]", ast.literal_eval(found[1])) if found else {}


def _known(recipes: dict[str, Recipe | None], item: str) -> Recipe:
    recipe = recipes[item]
    assert recipe  # noqa: S101
    return recipe


def _unknown(recipes: dict[str, Recipe | None], target: str) -> list[str]:
    """Return the items below ``target`` of which nothing is known yet, nearest first."""
    queue, found = [target], dict[str, None]()
    reached = {target}
    for name in queue:
        if name not in recipes:
            found[name] = None
        elif recipe := recipes[name]:
            new = [part for part in recipe[0] if part not in reached]
            reached.update(new)
            queue += new
    return list(found)


def _bottom_up(recipes: dict[str, Recipe | None], target: str) -> list[str]:
    order = dict[str, None]()

    def visit(name: str) -> None:
        recipe = recipes.get(name)
        if recipe is None or name in order:
            return
        for part in recipe[0]:
            visit(part)
        order[name] = None

    visit(target)
    return list(order)
