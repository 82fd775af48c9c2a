"""The append-only channels of the state: the one module that knows LangGraph's beta ``DeltaChannel``.

A delta channel stores a step's writes and not the whole value, so that a checkpoint does not grow with the
work done. LangGraph can store a snapshot of the whole value now and then; here it never does by a channel's own
count, for the snapshots of a stack that collects its children's answers, or of a list, add up to the square of
the work. (Its own limit remains: one snapshot in 5,000 steps.)
"""

from collections.abc import Sequence
from typing import Any, Self

from langgraph.channels import DeltaChannel

from frames.frame import Frame
from frames.stack import fold

SNAPSHOT_EVERY = 1_000_000


class _Delta(DeltaChannel[Any]):
    """A delta channel whose copies share its value.

    LangGraph copies every channel after every step; reducers and nodes never change a value in place, so the
    list behind it need not be copied.
    """

    def copy(self) -> Self:
        new = object.__new__(type(self))
        new.key, new.typ = self.key, self.typ
        new.reducer, new.snapshot_frequency, new.value = self.reducer, self.snapshot_frequency, self.value
        return new


def append(value: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """Return ``value`` with the entries of every write behind it."""
    return [*value, *(entry for write in writes for entry in write)]


def stack_channel() -> Any:
    """The channel of the stack: nodes write operations, readers see frames."""
    return _Delta(fold, list[Frame], snapshot_frequency=SNAPSHOT_EVERY)


def append_channel() -> Any:
    """The channel of a list that only grows."""
    return _Delta(append, list[Any], snapshot_frequency=SNAPSHOT_EVERY)
