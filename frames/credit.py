"""Credit: what each instance of trees of agents is worth to training, from their records alone.

Recursive Agent Optimization (arXiv 2605.06639): an instance is rewarded for its own success and, with ``share``, for
the mean success of the subagents that it launched; the mean, so that launching more earns nothing. The baseline is the
mean root reward of the other trees of the same task, shared by a whole tree. Each depth weighs the same.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

Record = Mapping[str, Any]
"""One instance, as ``cactus export --format training`` gives it."""


class Credit(TypedDict):
    """What one instance is worth. ``None``: nothing was decided, or no other tree of its task is there to compare."""

    rollout_id: str
    node_id: str
    reward: float | None
    baseline: float | None
    advantage: float | None
    weight: float


def credited(records: Sequence[Record], share: float = 0.0) -> list[Credit]:
    """Return the credit of each record, in their order; ``share`` is the paper's lambda (0, or 0.4 as a nudge)."""
    weights = depth_weights(records)
    roots = {_tree(record): reward(record, share) for record in records if record["parent_id"] is None}
    found: list[Credit] = []
    for record in records:
        own, base = reward(record, share), baseline(roots, _tree(record))
        found.append(
            Credit(
                rollout_id=record["rollout_id"],
                node_id=record["node_id"],
                reward=own,
                baseline=base,
                advantage=None if own is None or base is None else own - base,
                weight=weights[record["depth"]],
            )
        )
    return found


def reward(record: Record, share: float = 0.0) -> float | None:
    """Return an instance's own success, and ``share`` times the mean success of its immediate children."""
    if record["success"] is None:
        return None
    return float(record["success"]) + share * (record["child_success_mean"] or 0.0)


def baseline(roots: Mapping[tuple[str, str], float | None], tree: tuple[str, str]) -> float | None:
    """Return the mean reward of the roots of the other trees of a task; trees are (group, rollout)."""
    others = [worth for other, worth in roots.items() if other[0] == tree[0] and other != tree and worth is not None]
    return sum(others) / len(others) if others else None


def depth_weights(records: Sequence[Record]) -> dict[int, float]:
    """Return the weight of a record by its depth: all records / the number of depths / the records at that depth."""
    at = Counter(record["depth"] for record in records)
    return {depth: len(records) / len(at) / count for depth, count in at.items()}


def _tree(record: Record) -> tuple[str, str]:
    return record["group_id"], record["rollout_id"]
