"""The budget of a run: the calls that are kept back, so that what was begun can be answered, checked and combined.

Every frame that was admitted has a share until it ends: to be solved and verified once, or, where it was split, to be
combined and verified once. Whatever else asks a model (whether and how to split, further attempts, further steps)
draws on what is left beyond all shares. Shares follow from the stack alone, so that a resumed run has the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from frames.frame import ChildResult, Frame, Subtask, child_id, is_planned

Asked = tuple[str, str]
"""On whose behalf a model is asked: a frame's id, and a role."""


class Least(NamedTuple):
    """The calls to reckon with for one use of each component; ``solve`` by kind of task."""

    solve: Callable[[str | None], int]
    aggregate: int
    verify: int


class Budget:
    """The shares of one run.

    ``paid`` are the calls that the run's journal holds. They count for a frame that is not split; a combination is
    reckoned with as long as it was not made, or recalled, in this process, for it may be of other answers than before.
    """

    def __init__(self, least: Least, paid: Iterable[Asked] = ()) -> None:
        self._least = least
        self._shares: dict[str, dict[str, int]] = {}
        self._split: set[str] = set()
        self._begun, self._seen = Counter(paid), Counter[Asked]()

    def enter(self, path: Sequence[Frame]) -> None:
        """Bring the shares of the frames of a stack, and of the subtasks that they have planned, up to date."""
        for frame in path:
            if not is_planned(frame) or frame["phase"] == "approve":
                self._shares[frame["id"]] = self._of_task(frame["kind"])
                continue
            self._split.add(frame["id"])
            self._shares[frame["id"]] = self._of_combination(frame)
            self._open(frame, frame["plan"], frame["results"])

    def plan(self, frame: Frame, plan: Sequence[Subtask], given: Sequence[ChildResult] = ()) -> None:
        """Give the subtasks of a plan that was admitted their shares; ``given`` are results that they have already."""
        self._split.add(frame["id"])
        self._shares[frame["id"]] = self._of_closing()
        self._open(frame, plan, given)

    def end(self, frame: str) -> None:
        """Give back the share of a frame that has ended, and those of all below it."""
        self._shares.pop(frame, None)
        if frame in self._split:
            self._split.discard(frame)
            for below in [id_ for id_ in self._shares if id_.startswith(f"{frame}.")]:
                del self._shares[below]

    def begin(self, frame: str, role: str) -> None:
        """Count a call that is begun, or spared by an equal one."""
        self._begun[frame, role] += 1

    def see(self, frame: str, role: str) -> None:
        """Count a call that is begun or recalled in this process."""
        self._seen[frame, role] += 1

    def left(self, frame: str, role: str) -> int:
        """Return how many calls of a frame's share are left for a role."""
        made = self._seen if frame in self._split else self._begun
        return max(0, self._shares.get(frame, {}).get(role, 0) - made[frame, role])

    def kept(self, besides: str = "") -> int:
        """Return how many calls are left of all shares, that of the frame ``besides`` left out."""
        return sum(
            self.left(frame, role) for frame, share in self._shares.items() if frame != besides for role in share
        )

    def needed(self, kinds: Iterable[str | None]) -> int:
        """Return the least calls that a plan of subtasks of these kinds needs, its combination included."""
        return sum(self._of_closing().values()) + sum(sum(self._of_task(kind).values()) for kind in kinds)

    def _open(self, frame: Frame, plan: Sequence[Subtask], results: Sequence[ChildResult]) -> None:
        done = {result["frame"] for result in results}
        for index, subtask in enumerate(plan):
            id_ = child_id(frame, index)
            if id_ in done:
                self.end(id_)
            else:
                self._shares.setdefault(id_, self._of_task(subtask["kind"]))

    def _of_task(self, kind: str | None) -> dict[str, int]:
        return {"solve": self._least.solve(kind), "verify": self._least.verify}

    def _of_closing(self) -> dict[str, int]:
        return {"aggregate": self._least.aggregate, "verify": self._least.verify}

    def _of_combination(self, frame: Frame) -> dict[str, int]:
        """Return what is kept back for a frame's combination: nothing for a second one."""
        if frame["attempt"] > 1 or frame["stale"] is not None or frame["phase"] == "retry":
            return {}
        return {"verify": self._least.verify} if frame["phase"] == "verify" else self._of_closing()
