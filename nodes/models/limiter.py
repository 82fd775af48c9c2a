"""Places for calls in flight: so many for a whole run, fewer for a provider that pushes back.

Each provider has a cap that adapts by additive increase and multiplicative decrease, as TCP's congestion window does
(RFC 5681, section 3.1): told "too many" it halves, and each success adds one over itself.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary


class Limiter:
    """Lets at most ``parallel`` calls be in flight over all providers, the longest waiting first.

    Each provider's callers stand in a line of their own. The first of a line is passed over, and keeps its turn, while
    its provider is paused or has as many calls in flight as its cap: it holds no place, and nobody else waits for it.
    Belongs to one event loop, whose clock it reads.
    """

    def __init__(self, parallel: int) -> None:
        self._parallel = self._free = parallel
        self._lines: dict[str, _Line] = {}
        self._turns = count()
        self._begun = 0

    @asynccontextmanager
    async def place(self, provider: str) -> AsyncGenerator[None]:
        """Hold one of the places for calls in flight, during one attempt to call ``provider``."""
        line = self._line(provider)
        await self._wait(line)
        try:
            yield
        finally:
            self._give_back(line)

    def pushed_back(self, provider: str, seconds: float | None) -> None:
        """Take note that an attempt was told "too many", by the task that made it.

        ``seconds`` is what the provider asked to wait, if it did: none of its callers starts before. The cap halves,
        but once for all attempts that had begun before it was halved last.
        """
        line = self._line(provider)
        if seconds and seconds > 0:
            line.paused_until = max(line.paused_until, asyncio.get_running_loop().time() + seconds)
        if line.began_later(asyncio.current_task()):
            line.cap = max(1.0, line.cap / 2)
            line.halved = self._begun

    def succeeded(self, provider: str) -> None:
        """Take note that an attempt gave a reply: the provider's cap grows by one over itself."""
        line = self._line(provider)
        line.cap = min(float(self._parallel), line.cap + 1 / line.cap)
        self._hand_out()

    def waits(self, provider: str) -> float:
        """Return the seconds that a call to ``provider`` would be paused if it came now; 0 for none."""
        line = self._lines.get(provider)
        return max(0.0, line.paused_until - asyncio.get_running_loop().time()) if line else 0.0

    def cap(self, provider: str) -> int:
        """Return how many calls to ``provider`` may be in flight."""
        line = self._lines.get(provider)
        return int(line.cap) if line else self._parallel

    def _line(self, provider: str) -> "_Line":
        if provider not in self._lines:
            self._lines[provider] = _Line(self._parallel)
        return self._lines[provider]

    async def _wait(self, line: "_Line") -> None:
        """Return once a place of ``line`` is held; whoever is cancelled before holds none."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        line.waiting.append((next(self._turns), waiter))
        self._hand_out()
        try:
            number = await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # its turn had come
                self._give_back(line)
            raise
        if task := asyncio.current_task():
            line.begun[task] = number

    def _give_back(self, line: "_Line") -> None:
        self._free += 1
        line.in_flight -= 1
        if any(line.waiting for line in self._lines.values()):  # soon: who gives it back may have been pushed back
            asyncio.get_running_loop().call_soon(self._hand_out)

    def _hand_out(self) -> None:
        """Give the free places to those who may begin, the longest waiting first."""
        while self._free and (ready := [line for line in self._lines.values() if self._ready(line)]):
            line = min(ready, key=lambda line: line.waiting[0][0])
            _, waiter = line.waiting.popleft()
            self._free -= 1
            line.in_flight += 1
            self._begun += 1
            waiter.set_result(self._begun)

    def _ready(self, line: "_Line") -> bool:
        """Whether the first of ``line`` may begin; the end of a pause is another time to look."""
        while line.waiting and line.waiting[0][1].done():  # cancelled
            line.waiting.popleft()
        if not line.waiting or line.in_flight >= int(line.cap):
            return False
        loop = asyncio.get_running_loop()
        if loop.time() >= line.paused_until:
            return True
        if line.alarm is None:
            line.alarm = loop.call_at(line.paused_until, self._wake, line)
        return False

    def _wake(self, line: "_Line") -> None:
        line.alarm = None
        self._hand_out()


class _Line:
    """One provider: who waits for it, with their turns, and how much it takes.

    Attempts are numbered as they begin: ``begun`` has the number of each task's latest, ``halved`` the run's latest
    when the cap was halved last.
    """

    def __init__(self, cap: float) -> None:
        self.cap = float(cap)
        self.in_flight = 0
        self.paused_until = 0.0
        self.halved = 0
        self.begun: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self.waiting: deque[tuple[int, asyncio.Future[int]]] = deque()
        self.alarm: asyncio.TimerHandle | None = None

    def began_later(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the task's attempt began after the cap was halved last; of an unknown attempt, it is assumed."""
        began = self.begun.get(task) if task else None
        return began is None or began > self.halved
