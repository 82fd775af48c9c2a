"""The inventory that all agents of a task share, and what they can do with it.

A wrong use never raises: it answers with a text that says what was wrong and how it is done, and changes nothing.
"""

import difflib
import threading
from collections.abc import Mapping
from typing import Any, cast

from frames.errors import UsageError
from worlds.crafting.task import Task
from worlds.crafting.world import Recipe, World

MOST_NAMES = 50
"""Items that ``get_info`` tells of at once."""

_SCHEMA = 1
_MOST = 10**18
_HOW = 'craft({"ingredient": amount, ...}, ("item", total))'


class Game:
    """A shared inventory in ``world``; may be used from several threads and tasks at once.

    Its state is what it held at first and the total crafted of each item, so that it is the same in whatever order the
    crafts are made again.
    """

    def __init__(self, world: World, inventory: Mapping[str, int]) -> None:
        self.world = world
        self._lock = threading.Lock()
        self._start = _counts(world, inventory, "inventory")
        self._crafted = dict[str, int]()
        self._held = dict(self._start)

    @classmethod
    def of(cls, world: World, task: Task) -> "Game":
        """Return the game that ``task`` starts with."""
        return cls(world, task.inventory)

    def craft(self, ingredients: object, output: object) -> str:
        """Use up ``ingredients`` and add ``output``, an item and its total; return what happened."""
        if isinstance(wanted := self._wanted(output), str):
            return wanted
        recipe, total = wanted
        crafts = total // recipe.makes
        exact = {name: each * crafts for name, each in recipe.ingredients.items()}
        if ingredients != exact or not _whole(cast("dict[str, object]", ingredients)):
            return f"Not crafted: {total} of {recipe.item!r} take exactly {exact}, not {_short(ingredients)}."
        with self._lock:
            short = {name: need - self._held.get(name, 0) for name, need in exact.items()}
            short = {name: missing for name, missing in short.items() if missing > 0}
            if short:
                return f"Not crafted: for {total} of {recipe.item!r} the inventory is short of {short}."
            self._add(recipe, total)
            return f"Crafted {total} of {recipe.item!r}; the inventory holds {self._held[recipe.item]}."

    def get_info(self, items: object) -> list[dict[str, Any]] | str:
        """Return each item's recipe (none for a base item) and how many there are; a text where that is no list."""
        if not isinstance(items, list | tuple):
            return f'get_info takes a list of items, as in get_info(["coal"]), not {_short(items)}.'
        names = list(cast("list[object]", items))
        if len(names) > MOST_NAMES:
            return f"get_info tells of at most {MOST_NAMES} items at once, not {len(names)}: ask in parts."
        return [self._info(name) for name in names]

    def view_inventory(self) -> dict[str, int]:
        """Return how many there are of each item, by name."""
        with self._lock:
            return {name: amount for name, amount in sorted(self._held.items()) if amount}

    def held(self, item: str) -> int:
        """Return how many there are of ``item``."""
        with self._lock:
            return self._held.get(item, 0)

    def succeeded(self, target: str, amount: int, start: int, message: object) -> bool:
        """Whether an agent that began at ``start`` of ``target`` did its task, ending with ``message``.

        It did if that is not blank and the inventory holds ``amount`` more now than at its start.
        """
        finished = message is not None and bool(str(message).strip())
        return finished and self.held(target) - start >= amount

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        with self._lock:
            start, crafted = sorted(self._start.items()), sorted(self._crafted.items())
        return {"schema": _SCHEMA, "seed": self.world.seed, "start": dict(start), "crafted": dict(crafted)}

    @classmethod
    def from_dict(cls, world: World, data: Mapping[str, Any]) -> "Game":
        """Return the game that ``to_dict`` gave.

        Or that of a task's inventory (``start``) and the summed totals of journaled crafts (``crafted``).
        """
        if data.get("schema") != _SCHEMA or data.get("seed") != world.seed:
            wrote = f"schema {data.get('schema')!r} and seed {data.get('seed')!r}"
            raise UsageError(f"a crafting game of schema {_SCHEMA} and seed {world.seed} is needed, not of {wrote}")
        game = cls(world, _counts(world, data.get("start", {}), "start"))
        for item, total in _counts(world, data.get("crafted", {}), "crafted").items():
            recipe = world.recipes.get(item)
            if recipe is None or total % recipe.makes:
                raise UsageError(f"crafted: {total} of {item!r} cannot be crafted; take what Game.to_dict gave")
            game._add(recipe, total)
        if lacking := [item for item, amount in game._held.items() if amount < 0]:
            raise UsageError(f"crafted: more {lacking[0]!r} is used up than there was; take what Game.to_dict gave")
        return game

    def _add(self, recipe: Recipe, total: int) -> None:
        for name, each in recipe.ingredients.items():
            self._held[name] = self._held.get(name, 0) - each * (total // recipe.makes)
        self._held[recipe.item] = self._held.get(recipe.item, 0) + total
        self._crafted[recipe.item] = self._crafted.get(recipe.item, 0) + total

    def _wanted(self, output: object) -> tuple[Recipe, int] | str:
        """Return the recipe and total that ``output`` asks for, or what is wrong with it."""
        given: object = output
        pair = list(cast("list[object]", given)) if isinstance(given, list | tuple) else []
        if len(pair) != 2 or not isinstance(pair[0], str) or type(pair[1]) is not int:
            return f"Not crafted: the output is an item and its total, {_HOW}, not {_short(output)}."
        item, total = pair[0], pair[1]
        recipe = self.world.recipes.get(item)
        if recipe is None:
            known = item in self.world.items
            return f"Not crafted: {f'{item!r} is a base item and has no recipe.' if known else self._unknown(item)}"
        if not 0 < total <= _MOST or total % recipe.makes:
            more = min(max(recipe.crafts_for(total), 1) * recipe.makes, _MOST // recipe.makes * recipe.makes)
            return (
                f"Not crafted: one craft of {item!r} makes {recipe.makes}, so that the total is a positive multiple "
                f"of {recipe.makes}, not {_short(total)}: ask for {more}."
            )
        return recipe, total

    def _info(self, name: object) -> dict[str, Any]:
        if not isinstance(name, str) or name not in self.world.items:
            return {"item": name if isinstance(name, str) else _short(name), "error": self._unknown(name)}
        recipe = self.world.recipes.get(name)
        told = recipe and {"ingredients": dict(recipe.ingredients), "makes": recipe.makes}
        return {"item": name, "held": self.held(name), "recipe": told}

    def _unknown(self, name: object) -> str:
        near = difflib.get_close_matches(name[:80], self.world.items, 3) if isinstance(name, str) else []
        return f"There is no item {_short(name)}." + (f" Near to it: {', '.join(near)}." if near else "")


def _counts(world: World, given: object, where: str) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}: a mapping of items to amounts is needed, not {_short(given)}")
    counts = dict(cast("Mapping[object, object]", given))
    for item, amount in counts.items():
        if item not in world.items:
            raise UsageError(f"{where}: there is no item {_short(item)} in the world of seed {world.seed}")
        if type(amount) is not int or amount < 0:
            raise UsageError(f"{where}: the amount of {item!r} is a whole number from 0 on, not {_short(amount)}")
    return cast("dict[str, int]", counts)


def _whole(amounts: dict[str, object]) -> bool:
    return all(type(amount) is int for amount in amounts.values())


def _short(value: object) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists in lists without end
        return "what was given"
    return shown if len(shown) <= 200 else f"{shown[:197]}..."
