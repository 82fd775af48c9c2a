"""The crafting world (TextCraft-Synth, arXiv 2605.06639): items made of items, up to twelve tiers deep.

``generate`` makes the world of a seed, ``tasks`` draws tasks from it, ``Game`` is the shared inventory with its
actions, ``tools`` and ``success`` give them to an agent and judge it, ``expert_turn`` is a scripted player.
"""

from worlds.crafting.expert import expert_turn
from worlds.crafting.game import Game
from worlds.crafting.player import play
from worlds.crafting.task import BINS, Task, asked, goal_text, tasks
from worlds.crafting.toolbox import start, success, tools
from worlds.crafting.world import Item, Recipe, World, generate

__all__ = [
    "BINS",
    "Game",
    "Item",
    "Recipe",
    "Task",
    "World",
    "asked",
    "expert_turn",
    "generate",
    "goal_text",
    "play",
    "start",
    "success",
    "tasks",
    "tools",
]
