"""The bound, against the dearest of all trees."""

import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frames.limits import Bound, Costs, Shape, bound

shapes = st.builds(
    Shape,
    depth=st.integers(0, 3),
    split_depth=st.integers(0, 3),
    subtasks=st.integers(1, 3),
    attempts=st.integers(1, 3),
    frames=st.integers(1, 45),
)
costs = st.builds(Costs, **dict.fromkeys(("atomize", "decompose", "solve", "aggregate", "verify"), st.integers(0, 1)))


def dearest(shape: Shape, cost: Costs, depth: int = 0) -> dict[int, tuple[int, int]]:
    """Return the most calls and steps of a subtree at ``depth``, for each number of its frames that can be."""
    may_split = depth < shape.depth and depth < shape.split_depth
    begun = (cost.atomize if depth < shape.depth else 0) + (cost.decompose if may_split else 0)
    steps = 3 * shape.attempts - 1
    best = {1: (begun + shape.attempts * (cost.solve + cost.verify), 1 + may_split + steps)}
    if not may_split:
        return best
    child = dearest(shape, cost, depth + 1)
    trees = {1: (begun + cost.aggregate + cost.verify, 4)}
    for _ in range(shape.subtasks or 0):
        trees = grown(trees, child, shape.frames)
        for frames, most in trees.items():
            best[frames] = pointwise(best.get(frames, most), most)
    return best


def grown(
    trees: dict[int, tuple[int, int]], child: dict[int, tuple[int, int]], most: int
) -> dict[int, tuple[int, int]]:
    """Return ``trees`` with one child more."""
    larger: dict[int, tuple[int, int]] = {}
    for frames, (calls, steps) in trees.items():
        for more, (its_calls, its_steps) in child.items():
            if frames + more <= most:
                together = (calls + its_calls, steps + its_steps)
                larger[frames + more] = pointwise(larger.get(frames + more, together), together)
    return larger


def pointwise(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return max(left[0], right[0]), max(left[1], right[1])


@given(shapes, costs)
@example(Shape(depth=1, split_depth=1, subtasks=3, attempts=1, frames=2), Costs(atomize=1, verify=1))
def test_the_bound_is_never_below_the_dearest_tree(shape: Shape, cost: Costs) -> None:
    trees, found = dearest(shape, cost), bound(shape, cost)
    assert found["frames"] == max(trees)
    assert found["calls"] >= max(calls for calls, _ in trees.values())
    assert found["steps"] >= max(steps for _, steps in trees.values())


@given(shapes, costs)
def test_the_bound_is_exact_where_the_frame_limit_does_not_bind(shape: Shape, cost: Costs) -> None:
    shape = replace(shape, frames=1000)
    assert bound(shape, cost)["calls"] == max(calls for calls, _ in dearest(shape, cost).values())


@given(shapes, costs, st.sampled_from(["depth", "split_depth", "subtasks", "attempts", "frames"]))
def test_the_bound_is_monotone_in_the_shape(shape: Shape, cost: Costs, name: str) -> None:
    assert covers(bound(replace(shape, **{name: getattr(shape, name) + 1}), cost), bound(shape, cost))


@given(shapes, costs, st.sampled_from(["atomize", "decompose", "solve", "aggregate", "verify"]))
def test_the_bound_is_monotone_in_the_costs(shape: Shape, cost: Costs, name: str) -> None:
    assert covers(bound(shape, replace(cost, **{name: getattr(cost, name) + 1})), bound(shape, cost))


@given(shapes, costs, st.integers(1, 50))
def test_no_limit_of_subtasks_covers_every_limit_and_max_calls_holds(shape: Shape, cost: Costs, most: int) -> None:
    assert covers(bound(replace(shape, subtasks=None), cost), bound(shape, cost))
    assert bound(replace(shape, calls=most), cost)["calls"] == min(most, bound(shape, cost)["calls"])


def covers(larger: Bound, smaller: Bound) -> bool:
    return all(larger[name] >= smaller[name] for name in ("frames", "calls", "steps"))


@pytest.mark.parametrize(("depth", "subtasks"), [(40, None), (10**6, None), (10**6, 20)])
def test_large_values_are_computed_quickly(depth: int, subtasks: int | None) -> None:
    shape = Shape(depth=depth, split_depth=depth, subtasks=subtasks, attempts=5, frames=10**6)
    started = time.perf_counter()
    found = min((bound(shape, Costs(1, 1, 1, 1, 1)) for _ in range(3)), key=lambda each: each["calls"])
    assert (time.perf_counter() - started) / 3 < 0.01
    assert found["frames"] == 10**6
