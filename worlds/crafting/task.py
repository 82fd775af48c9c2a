"""Tasks of the crafting world, by how deep their target lies, and the words in which they are put to an agent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from frames.errors import UsageError
from worlds.crafting.world import TIERS, Draw, World

Split = Literal["training", "validation"]

BINS: dict[str, tuple[int, int]] = {"easy": (2, 3), "medium": (4, 6), "hard": (7, 9), "extreme": (10, 12)}
"""The first and last tier of each bin's targets."""

_KEPT = 5
"""One of so many items of a tier is kept for validation."""

_GOAL = 'Craft {amount} of "{target}".'
_ASKED = re.compile(r'craft (\d{1,18}) of "([^"\n]+)"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """What to craft, how many of it, and what the inventory holds at first."""

    bin: str
    target: str
    amount: int
    inventory: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the task as plain JSON values."""
        inventory = dict(self.inventory)
        return {"bin": self.bin, "target": self.target, "amount": self.amount, "inventory": inventory}


def tasks(world: World, bin: str, split: str = "validation", count: int = 20, seed: int = 0) -> list[Task]:  # noqa: A002
    """Return ``count`` tasks of a ``bin``, the same for the same ``seed``.

    Every item of the bin is as likely a target, and none comes twice before all have come.
    """
    if bin not in BINS:
        raise UsageError(f"bin: there is no {bin!r}; choose one of {', '.join(BINS)}")
    if split not in ("training", "validation"):
        raise UsageError(f"split: there is no {split!r}; choose training or validation")
    if type(count) is not int or count < 0 or type(seed) is not int or seed < 0:
        raise UsageError("count and seed are whole numbers from 0 on")
    first, last = BINS[bin]
    draw = Draw(seed * len(BINS) * 2 + [*BINS].index(bin) * 2 + (split == "training"))
    targets = draw.shuffled([item for tier in range(first, last + 1) for item in in_split(world, tier, split)])
    return [_task(world, bin, targets[place % len(targets)], draw) for place in range(count)]


def in_split(world: World, tier: int, split: str) -> list[str]:
    """Return the items of a ``tier`` that are kept for validation, or those that are left to train on."""
    row = Draw(world.seed * (TIERS + 1) + tier).shuffled([i.name for i in world.items.values() if i.tier == tier])
    kept = round(len(row) / _KEPT)
    return row[:kept] if split == "validation" else row[kept:]


def asked(goal: str) -> tuple[str, int] | None:
    """Return the target and amount that a ``goal`` names first, in the words of ``goal_text``; none without them."""
    found = _ASKED.search(goal)
    return (found[2], int(found[1])) if found and int(found[1]) else None


def goal_text(task: Task | tuple[str, int]) -> str:
    """Return what an agent is asked, for a task or for a target and an amount; ``asked`` reads it back."""
    target, amount = (task.target, task.amount) if isinstance(task, Task) else task
    return _GOAL.format(amount=amount, target=target)


def from_dict(data: Mapping[str, Any]) -> Task:
    """Return the task that ``to_dict`` gave."""
    inventory = data.get("inventory")
    target, amount = data.get("target"), data.get("amount")
    if not isinstance(inventory, dict) or not isinstance(target, str) or type(amount) is not int:
        raise UsageError("a crafting task has a target, an amount and an inventory; write it with Task.to_dict")
    return Task(str(data.get("bin", "")), target, amount, cast("dict[str, int]", inventory))


def _task(world: World, bin_: str, target: str, draw: Draw) -> Task:
    amount = draw.between(1, 3 if bin_ in ("easy", "medium") else 2)
    needs = world.needs(target, amount)
    inventory = {item: need + draw.below(need // 2 + 1) for item, need in needs.items()}
    used = {*needs, *world.crafts(target)}
    others = [item.name for item in world.items.values() if item.tier == 0 and item.name not in used]
    if len(others) < 3:  # a target of several domains may need nearly all of the base
        others = [item.name for item in world.items.values() if item.tier == 1 and item.name not in used]
    distracting = draw.shuffled(others)[: draw.between(1, 3)]
    return Task(bin_, target, amount, inventory | {item: draw.between(1, 10) for item in distracting})
