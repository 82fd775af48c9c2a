"""Change: what a fork of a run does otherwise, at one frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frames.frame import ChildResult, Frame, Subtask, child, child_id, child_result


@dataclass(frozen=True)
class Change:
    """Another task, answer or models for ``frame``; ``models``, by role, are those of all frames below it too."""

    frame: str
    task: str | None = None
    answer: str | None = None
    models: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def models_for(self, frame: str, role: str, kind: str | None) -> Sequence[str] | None:
        """Return the models that play ``role`` here; ``None`` where that is not changed."""
        if frame != self.frame and not frame.startswith(f"{self.frame}."):
            return None
        return self.models.get(f"{role}.{kind}") or self.models.get(role)

    def plan(self, parent: Frame, plan: list[Subtask]) -> list[Subtask]:
        """Return the plan of ``parent`` with the changed task."""
        return [
            Subtask({**subtask, "task": self.task}) if self.task and child_id(parent, index) == self.frame else subtask
            for index, subtask in enumerate(plan)
        ]

    def given(self, parent: Frame, plan: list[Subtask]) -> list[ChildResult]:
        """Return the result that is given in place of work on one of the subtasks."""
        planned = Frame({**parent, "plan": plan})
        return [
            child_result(Frame({**child(planned, index), "answer": self.answer}))
            for index in range(len(plan))
            if self.answer is not None and child_id(parent, index) == self.frame
        ]
