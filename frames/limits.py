"""Limits of a run, and the bound on frames, calls and steps that its settings imply.

The bound is computed before anything is spent. It counts the worst case: every task is split as far as it may
be, every answer is rejected until the last attempt.
"""

from dataclasses import dataclass

from typing_extensions import TypedDict

DIRECTLY = "; solved directly"
"""How a gap ends that says why a frame was not split, though it has an answer."""


@dataclass(frozen=True)
class Costs:
    """Most model calls that one use of each component makes: 0 for plain code, 1 for a model.

    ``condense`` is what combining adds for each child.
    """

    atomize: int = 0
    decompose: int = 1
    solve: int = 1
    aggregate: int = 1
    verify: int = 0
    condense: int = 0


class Bound(TypedDict):
    """The most that a run can need. ``steps`` are supersteps of the graph: one checkpoint each."""

    frames: int
    calls: int
    steps: int


@dataclass(frozen=True)
class Shape:
    """What bounds the tree of frames.

    ``depth`` is the depth at which every task is solved directly, ``split_depth`` the one from which no
    atomizer lets a task be split (``depth`` where it depends on the task), ``subtasks`` the most of one plan
    (``None``: no limit but ``frames``). ``combines`` are the attempts at a combination; ``sends_back``: whether a
    rejected one may have a child solved anew, once.
    """

    depth: int
    split_depth: int
    subtasks: int | None
    attempts: int
    frames: int
    calls: int | None = None
    combines: int = 1
    sends_back: bool = False


def bound(shape: Shape, costs: Costs) -> Bound:
    """Return the most frames, model calls and steps that a run of this shape can need."""
    levels = min(shape.depth, shape.split_depth)
    fan_out = shape.frames if shape.subtasks is None else shape.subtasks
    frames = min(_full_tree(levels, fan_out, shape.frames), max(shape.frames, 1))
    calls = _calls_of_frames(frames, levels, shape, costs)
    calls = min(calls, _calls_of_tree(levels, fan_out, shape, costs, calls))
    if shape.calls is not None:
        calls = min(calls, shape.calls)
    again = 3 + 3 * shape.combines if shape.combines > 1 else 0
    return Bound(frames=frames, calls=calls, steps=frames * (2 + 3 * shape.attempts + again))


def agents_bound(shape: Shape, costs: Costs, replies: int) -> Bound:
    """Return the most that a run of agents can need, each of which replies ``replies`` times at most.

    Of ``shape``, ``subtasks`` are the subagents of one agent. A stop for subagents is a step, and so is the fork; each
    stop begins one at least.
    """
    fan_out = shape.frames if shape.subtasks is None else shape.subtasks
    frames = min(_full_tree(shape.depth, fan_out, shape.frames), max(shape.frames, 1))
    calls = frames * (replies * costs.solve + shape.attempts * costs.verify)
    if shape.calls is not None:
        calls = min(calls, shape.calls)
    ending, stops = 2, 2
    return Bound(frames=frames, calls=calls, steps=1 + frames * (replies + ending + stops + 2 * shape.attempts))


def _full_tree(levels: int, fan_out: int, most: int) -> int:
    """Frames of the full tree, counted no further than ``most``."""
    total, level = 1, 1
    for _ in range(levels):
        level *= fan_out
        total += level
        if total >= most or not level:
            break
    return total


def _leaf(depth: int, shape: Shape, costs: Costs) -> int:
    """Most calls of a frame that is solved directly at ``depth``."""
    attempts = shape.attempts * (costs.solve + costs.verify)
    asked = costs.atomize if depth < shape.depth else 0
    split = costs.decompose if depth < min(shape.depth, shape.split_depth) else 0
    return asked + split + attempts


def _inner(children: int, shape: Shape, costs: Costs) -> int:
    """Most calls of a frame that is split into ``children``, theirs not counted."""
    combined = shape.combines * (costs.aggregate + costs.condense * children + costs.verify)
    return costs.atomize + costs.decompose + combined + children * _sent_back(shape, costs)


def _sent_back(shape: Shape, costs: Costs) -> int:
    """Most calls of a child that is solved anew: all of a plan's may be, the guilty one and those that build on it."""
    return costs.solve + costs.verify if shape.sends_back and shape.combines > 1 else 0


def _calls_of_frames(frames: int, levels: int, shape: Shape, costs: Costs) -> int:
    """Most calls of any tree of ``frames`` frames: each costs what the dearest kind of frame costs."""
    leaf = max(_leaf(0, shape, costs), _leaf(levels, shape, costs))
    if frames == 1 or levels == 0:
        return leaf * frames
    inner = _inner(0, shape, costs)
    each = shape.combines * costs.condense + _sent_back(shape, costs)
    children = (frames - 1) * each  # each frame but the root is one child
    return max(inner + (frames - 1) * max(leaf, inner) + children, leaf)


def _calls_of_tree(levels: int, fan_out: int, shape: Shape, costs: Costs, most: int) -> int:
    """Most calls of any tree of this depth and fan-out, of however many frames, counted no further than ``most``."""
    calls = _leaf(levels, shape, costs)
    for depth in reversed(range(levels)):
        calls = max(_leaf(depth, shape, costs), _inner(fan_out, shape, costs) + fan_out * calls)
        if calls >= most:
            break
    return calls
