"""The game's actions as tools of an agent, and the judge of what it and its subagents did."""

from collections.abc import Awaitable, Callable
from typing import Any

from worlds.crafting.game import Game
from worlds.crafting.task import asked


def tools(game: Game) -> dict[str, Callable[..., Awaitable[Any]]]:
    """Return ``game``'s actions by name, as async functions whose signatures and docstrings tell a model their use."""

    async def craft(ingredients: dict[str, int], output: tuple[str, int]) -> str:
        """Craft an item.

        As in craft({"coal": 2, "iron ore": 1}, ("plain blade", 2)): give exactly the recipe's ingredients, times the
        number of crafts, and the item with the total that they make, a multiple of what one craft makes. Returns what
        happened; a wrong use changes nothing.
        """
        return game.craft(ingredients, output)

    async def get_info(items: list[str]) -> list[dict[str, Any]] | str:
        """Tell of up to 50 items, their recipes and how many there are.

        As in get_info(["plain blade", "coal"]). Returns for each {"item", "held": how many the inventory holds,
        "recipe": {"ingredients": {item: amount}, "makes": how many one craft gives}}; the recipe is None for a base
        item, which cannot be crafted, and {"item", "error"} for what is no item.
        """
        return game.get_info(items)

    async def view_inventory() -> dict[str, int]:
        """Return what the inventory holds, item to amount. All agents of the task share it."""
        return game.view_inventory()

    return {"craft": craft, "get_info": get_info, "view_inventory": view_inventory}


def start(game: Game, goal: str) -> int:
    """Return how many of its goal's target there are as an agent begins; ``success`` needs it."""
    wanted = asked(goal)
    return game.held(wanted[0]) if wanted else 0


def success(game: Game, goal: str, began: int, message: object) -> bool | None:
    """Whether an agent did what its ``goal`` asks; for the root and for subagents alike, each on its own target.

    ``began`` is what ``start`` gave as the agent began, ``message`` what it finished with (None where it did not). None
    where the goal names no item of the world in the words of ``goal_text``, so that nothing can be measured.
    """
    wanted = asked(goal)
    if wanted is None or wanted[0] not in game.world.items:
        return None
    return game.succeeded(*wanted, began, message)
