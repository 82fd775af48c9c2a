"""What the branches of a run share: the places for calls in flight, how providers push back, and the counts.

The outermost fork makes one and gives it to all that runs below it. Nobody who waits holds a place: neither a
parent for its children, nor a call for its next attempt.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType

from frames.errors import LimitError
from frames.state import Call
from nodes.budget import Budget
from nodes.models.limiter import Limiter
from nodes.models.transport import is_transport, retry_after, status_of

_PUSHES = (429, 503, 529)
"""What a provider answers that has too much to do."""


class Shared:
    """One run's shared counts and places; ``parallel`` calls are in flight at most, the longest waiting is next.

    ``paid`` are the calls that the run's journal holds already (None: there is no journal, and the state tells);
    ``began`` is when the run began, the time that it did not run left out, in seconds of its clock;
    ``cost`` says what a call costs, where dollars are counted. ``budget`` keeps calls back, where they are limited.
    """

    def __init__(
        self,
        parallel: int,
        paid: Sequence[Call] | None = None,
        began: float | None = None,
        cost: Callable[[Call], float | None] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.calls = self.tokens = self.frames = self.in_flight = self.failed = 0
        self.began = began
        self.usd = 0.0
        self.budget = budget
        self._cost = cost
        self._journaled = paid is not None
        self.planned: dict[str, int] = {}
        self.made: dict[str, list[Call]] = {}
        self.open: set[str] = set()  # frames that were begun and have not ended
        self.reached: LimitError | None = None
        self.limiter = Limiter(parallel)
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
        self.usd += self._cost(call) or 0 if self._cost else 0
        self.tokens += call["input_tokens"] + call["output_tokens"]
        self.made.setdefault(call["frame"], []).append(call)

    @contextmanager
    def under_way(self) -> Generator[Callable[[Call], None]]:
        """Count a call that may yet give a reply, so that calls side by side do not pass a limit together.

        Yields what counts the reply, from then on instead of the call.
        """
        self.in_flight += 1
        replied = False

        def count(call: Call) -> None:
            nonlocal replied
            replied = True
            self.in_flight -= 1
            self.count(call)

        try:
            yield count
        finally:
            if not replied:  # it failed, and was made all the same
                self.in_flight -= 1
                self.failed += 1

    def made_below(self, branch: str) -> list[Call]:
        """Return the calls of a frame and all below it, so that those of a branch that was cut off are kept."""
        below = f"{branch}."
        return [
            call for frame, calls in self.made.items() if frame == branch or frame.startswith(below) for call in calls
        ]

    def plan(self, frame: str, subtasks: int) -> None:
        """Count the frames that a plan, or a further part of one, makes."""
        self.frames += subtasks
        self.planned[frame] = self.planned.get(frame, 0) + subtasks

    def end(self, frame: str) -> None:
        """Give back what was kept for a frame that has ended."""
        if self.budget:
            self.budget.end(frame)

    def planned_below(self, branch: str) -> int:
        """Return the frames that plans of a frame, and of all below it, made."""
        return sum(n for frame, n in self.planned.items() if frame == branch or frame.startswith(f"{branch}."))

    def place(self, provider: str) -> "_Place":
        """Return the place for one attempt at a call, to be held while it is made."""
        return _Place(self.limiter, provider)


class _Place:
    """A place for one attempt at a call; the provider's limiter is told what became of it."""

    def __init__(self, limiter: Limiter, provider: str) -> None:
        self._limiter, self._provider = limiter, provider
        self._held = limiter.place(provider)

    async def __aenter__(self) -> None:
        await self._held.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if fault is None:
            self._limiter.succeeded(self._provider)
        elif status_of(fault) in _PUSHES and is_transport(fault):
            self._limiter.pushed_back(self._provider, retry_after(fault))
        await self._held.__aexit__(kind, fault, trace)
