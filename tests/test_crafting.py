"""The crafting world is the one of the paper, the same everywhere, and its player solves its tasks."""

import asyncio
import functools
import json
import statistics
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_monty import FunctionSnapshot, FutureSnapshot, Monty, MontyComplete, NameLookupSnapshot

from frames.errors import UsageError
from worlds.crafting import (
    BINS,
    Game,
    Task,
    World,
    expert_turn,
    generate,
    goal_text,
    play,
    start,
    success,
    tasks,
    tools,
)
from worlds.crafting import task as task_module
from worlds.crafting.player import Cell, Played, code

WORLD = generate()
GOLDEN = "d7b076ed19415eb5deaf89ee46e10522e62f66c2d7e8c1aa5f1fc349f1dc836e"


def tier(item: str) -> int:
    return WORLD.items[item].tier


def played(task: Task, world: World = WORLD, **options: Any) -> Played:
    return asyncio.run(play(Game.of(world, task), goal_text(task), **options))


# the world


def test_counts() -> None:
    assert len(WORLD.items) == 1452
    assert len(WORLD.recipes) == 1402
    assert WORLD.items.keys() - WORLD.recipes.keys() == {i.name for i in WORLD.items.values() if i.tier == 0}
    counts = Counter((item.domain, item.tier) for item in WORLD.items.values())
    domains = {item.domain for item in WORLD.items.values()} - {"several"}
    assert len(domains) == 5
    for domain in domains:
        assert [counts[domain, tier] for tier in range(13)] == [10, *[25] * 11, 3]
    assert [counts["several", tier] for tier in range(13)] == [*[0] * 10, 4, 4, 4]


@pytest.mark.parametrize("seed", [42, 0, 7])
def test_recipes(seed: int) -> None:
    world = generate(seed)
    least = [0, 1, *[2] * 6, *[3] * 4, 4]
    yields = [(), (2, 3, 4), (2, 3), (1, 2), (1, 2), (1, 2), *[(1,)] * 7]
    for recipe in world.recipes.values():
        item = world.items[recipe.item]
        kinds, below = len(recipe.ingredients), [item.tier - world.items[name].tier for name in recipe.ingredients]
        assert least[item.tier] <= kinds <= min(6, least[item.tier] + min(2, item.tier // 3)), item
        assert min(below) >= 1, item
        assert sum(distance > 2 for distance in below) <= (item.tier >= 4), item
        assert set(recipe.ingredients.values()) <= ({1, 2} if item.tier <= 4 else {1}), item
        assert recipe.makes in yields[item.tier], item
        domains = {world.items[name].domain for name in recipe.ingredients}
        assert len(domains) > 1 if item.domain == "several" else domains == {item.domain}, item


def test_all_that_chance_leaves_open_comes_about() -> None:
    several = [r for r in WORLD.recipes.values() if tier(r.item) >= 4]
    distances = Counter(tier(r.item) - tier(name) for r in several for name in r.ingredients)
    assert distances[1] > distances[2] > 5 * max(distances[far] for far in range(3, 13)) > 0
    assert 1.3 < distances[1] / distances[2] < 1.7  # weights 1/2 and 1/3
    assert {len(r.ingredients) for r in WORLD.recipes.values() if tier(r.item) == 12} == {4, 5, 6}
    assert {r.makes for r in WORLD.recipes.values() if tier(r.item) == 1} == {2, 3, 4}


def test_the_world_of_a_seed_is_the_same_everywhere() -> None:
    assert WORLD.digest() == GOLDEN
    assert generate(43).digest() != GOLDEN
    show = "from worlds.crafting import generate, tasks; w = generate(); print(w.digest(), tasks(w, 'hard', seed=3))"
    for hashing in ("1", "2"):
        env = {"PYTHONHASHSEED": hashing}
        said = subprocess.run([sys.executable, "-c", show], env=env, capture_output=True, text=True, check=True).stdout
        assert said.strip() == f"{GOLDEN} {tasks(WORLD, 'hard', seed=3)}"


@pytest.mark.parametrize("seed", [-1, True, "42", 1.5])
def test_a_wrong_seed(seed: Any) -> None:
    with pytest.raises(UsageError, match="whole number"):
        generate(seed)


# tasks


@pytest.mark.parametrize("split", ["training", "validation"])
@pytest.mark.parametrize("name", BINS)
def test_tasks(name: str, split: str) -> None:
    first, last = BINS[name]
    for task in tasks(WORLD, name, split, 100, seed=5):
        assert first <= tier(task.target) <= last
        assert 1 <= task.amount <= (3 if name in ("easy", "medium") else 2)
        needs = WORLD.needs(task.target, task.amount)
        assert needs.keys() <= task.inventory.keys()
        for item, need in needs.items():
            assert tier(item) == 0
            assert need <= task.inventory[item] <= need * 1.5
        distracting = task.inventory.keys() - needs.keys()
        assert 1 <= len(distracting) <= 3
        assert not distracting & {*WORLD.crafts(task.target)}


def test_a_fifth_of_each_tier_is_kept_for_validation() -> None:
    for level in range(1, 13):
        kept, left = (set(task_module.in_split(WORLD, level, split)) for split in ("validation", "training"))
        assert not kept & left
        assert kept | left == {item.name for item in WORLD.items.values() if item.tier == level}
        assert len(kept) == round(len(kept | left) / 5)


def test_tasks_are_as_long_as_the_papers() -> None:
    paper = {"easy": 3.7, "medium": 21.8, "hard": 85.6, "extreme": 176}
    for name, (first, last) in BINS.items():
        targets = [item for item in WORLD.items if first <= tier(item) <= last]
        assert statistics.mean(len(WORLD.crafts(item)) for item in targets) == pytest.approx(paper[name], rel=0.04)


def test_no_target_comes_twice_before_all_have_come() -> None:
    many = [task.target for task in tasks(WORLD, "extreme", "validation", 60)]
    assert len(set(many[:56])) == 56
    assert many[56:] == many[:4]
    assert tasks(WORLD, "easy", seed=1) == tasks(WORLD, "easy", seed=1) != tasks(WORLD, "easy", seed=2)


@pytest.mark.parametrize("wrong", [{"bin": "huge"}, {"split": "test"}, {"count": -1}, {"seed": 0.5}])
def test_wrong_tasks(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        tasks(WORLD, **{"bin": "easy", **wrong})


def test_a_goal_is_read_back() -> None:
    for task in tasks(WORLD, "hard", count=10):
        assert task_module.asked(goal_text(task)) == (task.target, task.amount)
        assert task_module.from_dict(json.loads(json.dumps(task.to_dict()))) == task
    assert task_module.asked('Please craft 12 of "plain blade", then craft 3 of "coal".') == ("plain blade", 12)
    for text in ("", "make me a blade", 'Craft 0 of "plain blade".', f'Craft {"9" * 5000} of "plain blade".'):
        assert task_module.asked(text) is None


# the game


def a_recipe(level: int = 2) -> tuple[str, dict[str, int], int]:
    recipe = next(r for r in WORLD.recipes.values() if tier(r.item) == level)
    return recipe.item, dict(recipe.ingredients), recipe.makes


def test_craft() -> None:
    item, ingredients, makes = a_recipe()
    game = Game(WORLD, {name: 3 * each for name, each in ingredients.items()})
    assert game.craft({n: 2 * each for n, each in ingredients.items()}, (item, 2 * makes)).startswith("Crafted")
    assert game.view_inventory() == {**dict(sorted(ingredients.items())), item: 2 * makes}
    assert game.craft(ingredients, [item, makes]).startswith("Crafted")
    assert game.view_inventory() == {item: 3 * makes}
    assert game.get_info([item]) == [
        {"item": item, "held": 3 * makes, "recipe": {"ingredients": ingredients, "makes": makes}}
    ]


def wrong_crafts() -> list[tuple[Any, Any, str]]:
    item, right, makes = a_recipe()
    first = next(iter(right))
    endless: list[Any] = []
    endless.append(endless)
    return [
        (right, (item, makes + 1), f"ask for {2 * makes}"),
        (right, (item, 0), f"ask for {makes}"),
        (right, (item, -makes), "positive multiple"),
        (right, (item, makes * 10**5000), "positive multiple"),
        (right, (item, True), "the output is an item and its total"),
        (right, (item, float(makes)), "the output is an item and its total"),
        (right, item, "the output is an item and its total"),
        (right, None, "the output is an item and its total"),
        (right, (makes, item), "the output is an item and its total"),
        (right, ("coal", 1), "no recipe"),
        (right, (item[:-1], makes), f"Near to it: {item}"),
        (right, ("x" * 10**6, makes), "There is no item"),
        ({}, (item, makes), "take exactly"),
        ({**right, "coal": 1}, (item, makes), "take exactly"),
        ({**right, first: right[first] + 1}, (item, makes), "take exactly"),
        ({**right, first: float(right[first])}, (item, makes), "take exactly"),
        ({**right, first: 10**5000}, (item, makes), "take exactly"),
        (endless, (item, makes), "take exactly"),
        (None, (item, makes), "take exactly"),
        ({n: 1000 * each for n, each in right.items()}, (item, 1000 * makes), "short of"),
    ]


@pytest.mark.parametrize(("ingredients", "output", "says"), wrong_crafts())
def test_wrong_crafts_say_why_and_change_nothing(ingredients: Any, output: Any, says: str) -> None:
    game = Game(WORLD, dict.fromkeys(a_recipe()[1], 10))
    before = game.to_dict()
    said = game.craft(ingredients, output)
    assert said.startswith("Not crafted: ")
    assert says in said
    assert len(said) < 800
    assert game.to_dict() == before


def test_wrong_questions() -> None:
    game = Game(WORLD, {})
    assert "takes a list" in game.get_info("coal")
    assert "takes a list" in game.get_info(None)
    assert "at most 50" in game.get_info(["coal"] * 51)
    told = game.get_info(["coal", "cole", 3, None])
    assert told[0] == {"item": "coal", "held": 0, "recipe": None}
    assert all("There is no item" in info["error"] for info in told[1:])
    assert "coal" in told[1]["error"]


@pytest.mark.parametrize("inventory", [{"cole": 1}, {"coal": -1}, {"coal": True}, {"coal": "1"}, [], None])
def test_a_wrong_inventory(inventory: Any) -> None:
    with pytest.raises(UsageError, match="inventory"):
        Game(WORLD, inventory)


def test_threads_share_the_inventory() -> None:
    item, ingredients, makes = a_recipe()
    game = Game(WORLD, {name: 1000 * each for name, each in ingredients.items()})
    said = list[str]()

    def work() -> None:
        said.extend(game.craft(ingredients, (item, makes)) for _ in range(400))

    threads = [threading.Thread(target=work) for _ in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert Counter(text.split()[0] for text in said) == {"Crafted": 1000, "Not": 600}
    assert game.view_inventory() == {item: 1000 * makes}


def test_success_is_what_the_inventory_grew_by() -> None:
    item, ingredients, makes = a_recipe()
    game = Game(WORLD, {item: 5, **ingredients})
    goal = goal_text((item, makes))
    began = start(game, goal)
    assert began == 5
    assert success(game, goal, began, "done") is False
    game.craft(ingredients, (item, makes))
    assert success(game, goal, began, "done") is True
    assert success(game, goal_text((item, makes + 1)), began, "done") is False
    for message in (None, "", " \n"):
        assert success(game, goal, began, message) is False
    for words in ("do it", goal_text(("no such thing", 1))):
        assert start(game, words) == 0
        assert success(game, words, 0, "done") is None


def test_tools_are_told_by_signature_and_docstring() -> None:
    given = tools(Game(WORLD, {"coal": 2}))
    assert list(given) == ["craft", "get_info", "view_inventory"]
    assert all(tool.__doc__ and "return" in tool.__annotations__ for tool in given.values())
    assert asyncio.run(given["view_inventory"]()) == {"coal": 2}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_play_keeps_the_books(data: st.DataObject) -> None:
    names = WORLD.crafts(data.draw(st.sampled_from([item for item in WORLD.recipes if tier(item) <= 4])))
    needed = {part for name in names for part in WORLD.recipes[name].ingredients}
    game = Game(WORLD, {item: data.draw(st.integers(0, 12)) for item in sorted(needed)})
    done = list[tuple[str, int]]()
    for _ in range(data.draw(st.integers(0, 12))):
        recipe = WORLD.recipes[data.draw(st.sampled_from(names))]
        crafts = data.draw(st.integers(1, 3))
        exact = {name: each * crafts for name, each in recipe.ingredients.items()}
        before = game.view_inventory()
        if game.craft(exact, (recipe.item, crafts * recipe.makes)).startswith("Crafted"):
            done.append((recipe.item, crafts * recipe.makes))
            after = Counter(game.view_inventory())
            after.subtract(before)
            assert {n: c for n, c in after.items() if c} == {
                **{n: -c for n, c in exact.items()},
                recipe.item: done[-1][1],
            }
        else:
            assert game.view_inventory() == before
        assert all(amount > 0 for amount in game.view_inventory().values())
    state = json.loads(json.dumps(game.to_dict()))
    again = Game.from_dict(WORLD, state)
    assert (again.to_dict(), again.view_inventory()) == (state, game.view_inventory())
    crafted = Counter[str]()
    for item, total in data.draw(st.permutations(done)):  # a journal may hold them in another order
        crafted[item] += total
    rebuilt = Game.from_dict(WORLD, {**state, "crafted": crafted})
    assert rebuilt.view_inventory() == game.view_inventory()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 41}, "seed 42"),
        ({"schema": 2}, "schema 1"),
        ({"start": {"cole": 1}}, "start"),
        ({"crafted": {"coal": 1}}, "cannot be crafted"),
        ({"crafted": {a_recipe()[0]: a_recipe()[2]}}, "used up"),
        ({"crafted": {a_recipe()[0]: a_recipe()[2] + 1}}, "cannot be crafted"),
        ({"crafted": 3}, "crafted"),
    ],
)
def test_a_wrong_state(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Game.from_dict(WORLD, {**Game(WORLD, {}).to_dict(), **change})


# the player


@pytest.mark.parametrize("name", BINS)
def test_alone_it_solves_20_of_each(name: str) -> None:
    for task in tasks(WORLD, name, count=20):
        one = played(task)
        assert one.success
        crafts = [reply for reply, _ in one.history if "await craft(" in reply]
        assert len(crafts) == len(WORLD.crafts(task.target)), "one craft a turn, each item once"


@pytest.mark.parametrize(("name", "most"), [("easy", 20), ("medium", 20), ("hard", 8)])
def test_with_subagents_it_solves_them_in_little_context(name: str, most: int) -> None:
    for task in tasks(WORLD, name, count=most, seed=1):
        root = played(task, max_depth=12, window=4000)
        agents = list(root.all())
        assert all(agent.success for agent in agents), "each is judged on its own target"
        assert max(agent.depth for agent in agents) <= 12
        assert (len(agents) > 1) == (len(WORLD.crafts(task.target)) > 24) or name == "medium"


def test_an_extreme_task_with_fewer_subagents() -> None:
    task = tasks(WORLD, "extreme", count=1)[0]
    root = played(task, max_depth=12, window=6000, expert=functools.partial(expert_turn, alone=48, kept=12))
    assert root.success
    assert len(list(root.all())) > 10


def test_alone_a_hard_task_overflows_a_small_window() -> None:
    hard = [task for task in tasks(WORLD, "hard", count=20) if len(WORLD.crafts(task.target)) > 60]
    assert len(hard) > 10
    assert {played(task, window=4000).reason for task in hard} == {"window"}


def test_the_depth_limit_holds() -> None:
    task = tasks(WORLD, "hard", count=1, seed=1)[0]
    root = played(task, max_depth=1)
    assert {agent.depth for agent in root.all()} == {0, 1}
    assert root.success
    assert played(task, max_depth=12, max_steps=2).reason == "steps"


def test_what_it_cannot_do_it_says() -> None:
    item, *_ = a_recipe(6)
    cases = [("do it", "does not say"), (goal_text(("cole", 1)), "no item"), (goal_text(("coal", 1)), "base item")]
    for goal, says in [*cases, (goal_text((item, 1)), "short of")]:
        for depth in (0, 3):
            root = asyncio.run(play(Game(WORLD, {}), goal, max_depth=depth))
            assert root.success is not True
            assert says in (root.message or "")
            assert len(root.history) < 40


def test_what_subagents_did_not_bring_is_asked_for_again() -> None:
    task = tasks(WORLD, "hard", count=1, seed=1)[0]
    lazy = iter([True])

    def expert(goal: str, history: list[tuple[str, str]], can_launch: bool) -> str:
        if goal != goal_text(task) and not history and next(lazy, False):
            return "I give up.\n\n```python\nfinish('I give up')\n```"
        return expert_turn(goal, history, can_launch)

    root = played(task, max_depth=1, expert=expert)
    assert root.success
    assert sum("launch_subagent(" in reply for reply, _ in root.history) == 2
    assert [child.success for child in root.children].count(False) == 1


def test_its_code_runs_in_a_small_interpreter() -> None:
    """Of Monty, in which host calls pause the code and several may be waited for at once."""
    task = next(t for t in tasks(WORLD, "medium", count=20) if len(WORLD.crafts(t.target)) > 30)
    with Monty(max_processes=8) as pool:  # a worker for each agent that is at work
        root = played(task, max_depth=1, session=lambda: monty(pool))
    assert root.success
    assert 1 < len(root.children) < 8
    assert root.history == played(task, max_depth=1).history


def monty(pool: Monty) -> Cell:
    sessions = list[Any]()

    async def run(block: str, names: dict[str, Any]) -> str:
        printed = list[str]()
        if not sessions:
            sessions.append(pool.checkout().__enter__())
        at = sessions[0].feed_start(block, print_callback=lambda _, text: printed.append(text))
        waiting = dict[int, Any]()
        while not isinstance(at, MontyComplete):
            if isinstance(at, FunctionSnapshot):
                value = names[str(at.function_name)](*at.args, **at.kwargs)
                if asyncio.iscoroutine(value):
                    waiting[at.call_id] = value
                    at = at.resume({"future": ...})
                else:
                    at = at.resume({"return_value": value})
            elif isinstance(at, FutureSnapshot):
                ids = at.pending_call_ids
                values = await asyncio.gather(*(waiting.pop(call) for call in ids))
                at = at.resume({call: {"return_value": value} for call, value in zip(ids, values, strict=True)})
            else:
                assert isinstance(at, NameLookupSnapshot)
                at = at.resume(value=names[at.variable_name])
        if "finish(" in block:
            sessions.pop().__exit__(None, None, None)
        return "".join(printed).rstrip("\n")

    return run


def test_a_reply_is_words_and_a_block() -> None:
    reply = expert_turn(goal_text(("plain blade", 2)), [], False)
    assert code(reply) == "print(await get_info(['plain blade']))"
    assert reply == expert_turn(goal_text(("plain blade", 2)), [], False)


@given(st.lists(st.tuples(st.text(), st.text())), st.booleans(), st.integers(0, 3))
def test_any_history_gets_a_reply(history: list[tuple[str, str]], can_launch: bool, cut: int) -> None:
    lines = ["[{'item': 'plain blade', 'held': 0, 'recipe': {'ingredients': {'coal': 1}, 'makes': 2}}]", "Not crafted"]
    made = [(reply, seen + "\n" + "\n".join(lines)[: cut * 30]) for reply, seen in history]
    assert code(expert_turn(goal_text(("plain blade", 2)), made, can_launch))
