"""The log of a run's events: each is given its id and time once, and kept no later than the step that told it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from frames.events import EVENTS_SCHEMA
from frames.journal import digest

_KEPT_ELSEWHERE = {"call": ("messages", "reply"), "tool": ("output",)}
"""What the journal keeps of a kind of event: it is told with the event, and joined to a kept one when that is read."""

SESSION = ("run", "end")
"""The events that begin and end a session's work on a run."""

Kept = tuple[int, str, dict[str, Any]]
"""An event as it is kept: its id, its key, and itself."""


class Book(Protocol):
    """Where the events of a run are kept."""

    async def append(self, events: Sequence[Kept]) -> None:
        """Keep events; what is written to the run's database after this is kept no earlier than they are."""
        ...


class EventLog:
    """The events of one run, over all its sessions.

    An event's key is what it says and the turn of the frame at which it is told: a step that is done over, because
    its process was killed or the run is worked through again from its journal, tells nothing anew.

    Args:
        kept: the events that earlier sessions have left.
        book: takes new ones; without it they are told alone.
        clock: seconds since the epoch.
        replays: whether nothing new may be told: what is, is collected in ``strange``.
    """

    def __init__(
        self,
        kept: Iterable[Kept] = (),
        book: Book | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        replays: bool = False,
    ) -> None:
        self._known = {key: (id_, event) for id_, key, event in kept}
        self._last = max((id_ for id_, _ in self._known.values()), default=0)
        self._book, self._clock, self._replays = book, clock, replays
        self._unsaved: list[Kept] = []
        self._turn = asyncio.Lock()
        self._told: set[str] = set()
        self.strange: list[dict[str, Any]] = []

    @property
    def sessions(self) -> int:
        """How many sessions have begun work on the run."""
        return sum(event["event"] == "run" for _, event in self._known.values())

    @property
    def empty(self) -> bool:
        """Whether it holds nothing: a run that was saved before there were logs, or has not begun."""
        return not self._known

    def tell(self, turn: str, event: Mapping[str, Any], counts: dict[str, int]) -> dict[str, Any] | None:
        """Return ``event`` with its id, time and parent; ``None`` where an earlier session told it.

        ``turn`` says at which turn of its frame it is told, ``counts`` those told at that turn so far.
        """
        left_out = _KEPT_ELSEWHERE.get(event["event"], ())
        said = {name: value for name, value in event.items() if name not in left_out}
        key = digest([turn, said])[:16]
        counts[key] = position = counts.get(key, 0) + 1
        key = f"{key}-{position}" if position > 1 else key
        self._told.add(key)
        if key in self._known:
            return None
        if self._replays:
            self.strange.append(said)
            return None
        self._last += 1
        head: dict[str, Any] = {"schema": EVENTS_SCHEMA, "id": self._last, "time": self._clock()}
        if frame := event.get("frame"):
            head["parent"] = frame.rpartition(".")[0] or None
        self._known[key] = self._last, {"event": event["event"]}  # no more of it is looked at again
        if self._book:
            self._unsaved.append((self._last, key, {**head, **said}))
        return {**head, **event}

    async def flush(self) -> None:
        """Have the book keep what was told since the last time."""
        if self._book is None:
            return
        async with self._turn:  # in the order of their ids, so that a killed process leaves no gap
            if unsaved := list(self._unsaved):
                await self._book.append(unsaved)
                del self._unsaved[: len(unsaved)]

    def untold(self) -> list[dict[str, Any]]:
        """Return the kept events that were not told again, those of sessions aside."""
        untold = [event for key, (_, event) in self._known.items() if key not in self._told]
        return [event for event in untold if event["event"] not in SESSION]
