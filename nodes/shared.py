"""What the branches of a run share: the places for calls in flight, the pauses of providers, and the counts.

The outermost fork makes one and gives it to all that runs below it. Nobody who waits holds a place: neither a
parent for its children, nor a call for its next attempt.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager

from frames.errors import LimitError
from frames.state import Call


class Shared:
    """One run's shared counts and places; ``parallel`` calls are in flight at most, the longest waiting is next.

    ``paid`` are the calls that the run's journal holds already (None: there is no journal, and the state tells);
    ``began`` is when the run began, the time that it did not run left out, in seconds of its clock.
    """

    def __init__(self, parallel: int, paid: Sequence[Call] | None = None, began: float | None = None) -> None:
        self.calls = self.tokens = self.frames = self.in_flight = 0
        self.began = began
        self._journaled = paid is not None
        self.planned: dict[str, int] = {}
        self.made: dict[str, list[Call]] = {}
        self.open: set[str] = set()  # frames that were begun and have not ended
        self.reached: LimitError | None = None
        self._places = asyncio.Semaphore(parallel)
        self._paused_until: dict[str, float] = {}
        self._entered: set[str] = set()
        for call in paid or ():
            self.count(call)

    def enter(self, branch: str, calls: Sequence[Call], frames: int) -> None:
        """Count what the run, or a branch of it, did before this process saw it; each counts once."""
        if branch not in self._entered:
            self._entered.add(branch)
            self.frames += frames
            for call in () if self._journaled else calls:
                self.count(call)

    def count(self, call: Call) -> None:
        """Count a model call that gave a reply."""
        self.calls += 1
        self.tokens += call["input_tokens"] + call["output_tokens"]
        self.made.setdefault(call["frame"], []).append(call)

    @contextmanager
    def under_way(self) -> Generator[None]:
        """Count a call that may yet give a reply, so that calls side by side do not pass a limit together."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def made_below(self, branch: str) -> list[Call]:
        """Return the calls of a frame and all below it, so that those of a branch that was cut off are kept."""
        below = f"{branch}."
        return [
            call for frame, calls in self.made.items() if frame == branch or frame.startswith(below) for call in calls
        ]

    def plan(self, frame: str, subtasks: int) -> None:
        """Count the frames that a plan makes."""
        self.frames += subtasks
        self.planned[frame] = subtasks

    def planned_below(self, branch: str) -> int:
        """Return the frames that plans of a frame, and of all below it, made."""
        return sum(n for frame, n in self.planned.items() if frame == branch or frame.startswith(f"{branch}."))

    @asynccontextmanager
    async def place(self, provider: str) -> AsyncGenerator[None]:
        """Hold one of the places for calls in flight, once the provider's pause is over."""
        while True:
            await self._places.acquire()
            pause = self._pause(provider)
            if pause <= 0:
                break
            self._places.release()
            await asyncio.sleep(pause)
        try:
            yield
        finally:
            self._places.release()

    def pause(self, provider: str, seconds: float) -> None:
        """Let no call to ``provider`` start for ``seconds``: it asked one of its callers to wait."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until[provider] = max(until, self._paused_until.get(provider, 0.0))

    def _pause(self, provider: str) -> float:
        return self._paused_until.get(provider, 0.0) - asyncio.get_running_loop().time()
