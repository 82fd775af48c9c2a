"""The append-only channels of the state: the one module that knows LangGraph's beta ``DeltaChannel``.

A delta channel stores a step's writes and not the whole value, so that a checkpoint does not grow with the
work done. A snapshot of the whole value is stored now and then, so that a stack is rebuilt quickly; a list that
only grows is stored as deltas alone, for snapshots of it would add up to the square of its length.
"""

from collections.abc import Sequence
from typing import Any

from langgraph.channels import DeltaChannel

from frames.frame import Frame
from frames.stack import fold

STACK_SNAPSHOT_EVERY = 200
LIST_SNAPSHOT_EVERY = 1_000_000


def append(value: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """Return ``value`` with the entries of every write behind it."""
    return [*value, *(entry for write in writes for entry in write)]


def stack_channel() -> Any:
    """The channel of the stack: nodes write operations, readers see frames."""
    return DeltaChannel(fold, list[Frame], snapshot_frequency=STACK_SNAPSHOT_EVERY)


def append_channel() -> Any:
    """The channel of a list that only grows."""
    return DeltaChannel(append, list[Any], snapshot_frequency=LIST_SNAPSHOT_EVERY)
