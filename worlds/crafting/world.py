"""The crafting world of a seed: items in domains and tiers, and the recipes that make them of lower ones.

Counts, tiers, amounts, yields and weights are those of the paper's published world (arXiv 2605.06639). What it leaves
open is chosen here, and told in docs/crafting.md.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TypeVar

from frames.errors import UsageError
from worlds.crafting.names import ADJECTIVES, CROSS, DOMAINS, words

TIERS = 12
"""The highest tier; tier 0 is the base, which is not crafted."""

PER_TIER = dict.fromkeys(range(1, TIERS), 25) | {TIERS: 3}
"""Crafted items a domain and tier; 1,402 recipes leave 3 a domain in the last tier."""

CROSS_TIERS = (10, 11, 12)
SEVERAL = "several"
"""The domain of items that are made of several domains' items."""

_CANDIDATES = 11
"""Items of a tier that an ingredient is drawn from; with eleven, tasks are as long as the paper's."""

_MOST_INGREDIENTS = 6
_FAR_FROM = 4
"""The tier from which on a recipe may reach farther down than two tiers."""

_WHOLE = math.lcm(*range(1, TIERS + 2))
"""What weights are parts of: an ingredient's is this over its distance in tiers plus one."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """A kind of thing: its name, domain and tier (0 is the base)."""

    name: str
    domain: str
    tier: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one craft of ``item`` uses up (ingredient to amount) and how many it ``makes``."""

    item: str
    ingredients: Mapping[str, int]
    makes: int

    def crafts_for(self, amount: int) -> int:
        """Return how often it must be crafted for at least ``amount``."""
        return -(-amount // self.makes)


@dataclass(frozen=True, slots=True)
class World:
    """All items by name, and the recipes of those that can be crafted; in order of tiers within a domain."""

    seed: int
    items: Mapping[str, Item]
    recipes: Mapping[str, Recipe]

    def crafts(self, item: str) -> list[str]:
        """Return the distinct items to craft for ``item``, ingredients before what they are used in, itself last."""
        found = dict[str, None]()

        def visit(name: str) -> None:
            recipe = self.recipes.get(name)
            if recipe is None or name in found:
                return
            for ingredient in recipe.ingredients:
                visit(ingredient)
            found[name] = None

        visit(item)
        return list(found)

    def needs(self, item: str, amount: int) -> dict[str, int]:
        """Return the base items that ``amount`` of ``item`` take if every craft made a single one."""
        wanted = {item: amount}
        for name in reversed(self.crafts(item)):
            for ingredient, each in self.recipes[name].ingredients.items():
                wanted[ingredient] = wanted.get(ingredient, 0) + each * wanted[name]
        return {name: wanted[name] for name in self.items if name in wanted and name not in self.recipes}

    def digest(self) -> str:
        """Return the SHA-256 of the whole world, as hexadecimal digits."""
        whole = [*map(asdict, self.items.values())], [*map(asdict, self.recipes.values())]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def generate(seed: int = 42) -> World:
    """Return the world of ``seed``: the same on every machine and Python version."""
    if type(seed) is not int or seed < 0:
        raise UsageError(f"a crafting world's seed is a whole number from 0 on, not {seed!r}")
    draw = Draw(seed)
    items, recipes = dict[str, Item](), dict[str, Recipe]()
    domains = {domain: list[list[str]]() for domain in DOMAINS}
    for domain, (base, nouns) in DOMAINS.items():
        names = iter(draw.shuffled([f"{a} {n}" for a in words(ADJECTIVES) for n in words(nouns)]))
        tiers = domains[domain]
        tiers.append(words(base))
        for tier, count in PER_TIER.items():
            row = [next(names) for _ in range(count)]
            recipes |= {name: _recipe(draw, name, tier, tiers) for name in row}
            tiers.append(row)
        items |= {name: Item(name, domain, tier) for tier, row in enumerate(tiers) for name in row}
    together = [[name for tiers in domains.values() for name in tiers[tier]] for tier in range(TIERS + 1)]
    for name, tier in _cross():
        recipes[name] = _of_several(draw, name, tier, together, items)
        items[name] = Item(name, SEVERAL, tier)
    return World(seed, items, recipes)


class Draw:
    """Draws from a seed, made of ``random()`` alone: the only method that Python promises not to change."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1."""
        return int(self._random.random() * count)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``."""
        return low + self.below(high - low + 1)

    def shuffled(self, given: Sequence[T]) -> list[T]:
        """Return ``given`` in another order."""
        rest = list(given)
        return [rest.pop(self.below(len(rest))) for _ in given]

    def weighted(self, pool: Sequence[tuple[T, int]]) -> int:
        """Return a place in ``pool``, by the weights there."""
        left = self.below(sum(weight for _, weight in pool))
        for place, (_, weight) in enumerate(pool):
            left -= weight
            if left < 0:
                return place
        raise AssertionError("the weights add up")


def _cross() -> Iterator[tuple[str, int]]:
    names = words(CROSS)
    each = len(names) // len(CROSS_TIERS)
    return ((name, CROSS_TIERS[place // each]) for place, name in enumerate(names))


def _of_several(draw: Draw, name: str, tier: int, tiers: Sequence[Sequence[str]], items: Mapping[str, Item]) -> Recipe:
    while True:
        recipe = _recipe(draw, name, tier, tiers[:tier])
        if len({items[ingredient].domain for ingredient in recipe.ingredients}) > 1:
            return recipe


def _recipe(draw: Draw, name: str, tier: int, tiers: Sequence[Sequence[str]]) -> Recipe:
    pool = list[tuple[str, int]]()
    for distance in range(1, min(tier, 2) + 1):
        drawn = draw.shuffled(tiers[tier - distance])[:_CANDIDATES]
        pool += [(item, _WHOLE // (distance + 1)) for item in drawn]
    if tier >= _FAR_FROM:
        far = draw.below(tier - 2)
        pool.append((tiers[far][draw.below(len(tiers[far]))], _WHOLE // (tier - far + 1)))
    count = min(_least_ingredients(tier) + draw.between(0, min(2, tier // 3)), _MOST_INGREDIENTS)
    chosen = [pool.pop(draw.weighted(pool))[0] for _ in range(count)]
    most = 2 if tier <= 4 else 1
    return Recipe(name, {item: draw.between(1, most) for item in chosen}, draw.between(*_yields(tier)))


def _least_ingredients(tier: int) -> int:
    return 1 if tier == 1 else 2 if tier <= 7 else 3 if tier <= 11 else 4


def _yields(tier: int) -> tuple[int, int]:
    return (2, 4) if tier == 1 else (2, 3) if tier == 2 else (1, 2) if tier <= 5 else (1, 1)
