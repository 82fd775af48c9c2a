"""The limiter of calls in flight, on an event loop whose clock leaps: no test waits for real."""

import asyncio
import contextlib
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.models.limiter import Limiter


class Clock(selectors.DefaultSelector):
    """Leaps to the next timer instead of waiting; a wait for nothing, which would never end, is an error."""

    now = 0.0
    looks = 0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits, and nobody wakes them"
        self.now += max(0.0, timeout)
        self.looks += 1
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def clocked(scenario: Callable[[], Coroutine[Any, Any, Any]]) -> Loop:
    """Run ``scenario`` and return its loop."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())
        return runner.get_loop()  # type: ignore[return-value]


def now() -> float:
    return asyncio.get_running_loop().time()


def looks() -> int:
    """Return how often the loop has looked for what is ready: its rounds."""
    return asyncio.get_running_loop().clock.looks  # type: ignore[attr-defined,no-any-return]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Calls:
    """Makes calls through a limiter and keeps who is in flight, in which order they began, and when."""

    def __init__(self, limiter: Limiter) -> None:
        self.limiter = limiter
        self.in_flight: Counter[str] = Counter()
        self.began: list[tuple[str, float]] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, then: Callable[[str], None] = lambda provider: None) -> asyncio.Task[None]:
        """Start a call whose name begins with its provider's letter; ``then`` is done in its task once it ends."""
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self.call(name, then))
        return self.tasks[name]

    async def call(self, name: str, then: Callable[[str], None]) -> None:
        provider = name[0]
        async with self.limiter.place(provider):
            self.began.append((name, now()))
            self.in_flight[provider] += 1
            try:
                await self.ends[name].wait()
            finally:
                self.in_flight[provider] -= 1
        then(provider)

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
        await settle()

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.began]


def too_many(limiter: Limiter, seconds: float | None = None) -> Callable[[str], None]:
    return lambda provider: limiter.pushed_back(provider, seconds)


def test_no_more_calls_than_parallel_are_in_flight_and_the_longest_waiting_is_next() -> None:
    async def scenario() -> None:
        calls = Calls(Limiter(2))
        for name in ("a1", "b1", "a2", "b2", "c1"):
            calls.start(name)
        await settle()
        assert calls.order == ["a1", "b1"]
        await calls.end("b1")
        assert calls.order == ["a1", "b1", "a2"]
        await calls.end("a1", "a2", "b2", "c1")
        assert calls.order == ["a1", "b1", "a2", "b2", "c1"]

    clocked(scenario)


def test_a_push_halves_the_cap_of_its_provider_alone_down_to_one() -> None:
    async def scenario() -> None:
        limiter = Limiter(10)
        caps: list[int] = []
        for _ in range(5):
            async with limiter.place("a"):
                limiter.pushed_back("a", None)
            caps.append(limiter.cap("a"))
        assert caps == [5, 2, 1, 1, 1]
        assert limiter.cap("b") == 10
        assert limiter.waits("a") == 0

    clocked(scenario)


@pytest.mark.parametrize("together", [2, 16])
def test_a_burst_counts_once_whenever_its_calls_end(together: int) -> None:
    async def scenario() -> None:
        limiter = Limiter(16)
        calls = Calls(limiter)
        burst = [f"a{n}" for n in range(together)]
        for name in burst:
            calls.start(name, too_many(limiter))
        await settle()
        await calls.end(burst[0])
        later = calls.start("a-later", too_many(limiter))
        await calls.end(*burst[1:])
        assert limiter.cap("a") == 8
        await calls.end("a-later")  # it began after the provider had pushed back, which was not enough
        assert later.done()
        assert limiter.cap("a") == 4

    clocked(scenario)


def test_the_cap_grows_by_one_for_as_many_successes_as_it_is_and_no_further_than_parallel() -> None:
    async def scenario() -> None:
        limiter = Limiter(4)
        for _ in range(2):
            async with limiter.place("a"):
                limiter.pushed_back("a", None)
        caps = [limiter.cap("a")]
        for _ in range(9):
            limiter.succeeded("a")
            caps.append(limiter.cap("a"))
        assert caps == [1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
        for _ in range(50):
            limiter.succeeded("a")
        assert limiter.cap("a") == 4

    clocked(scenario)


def test_growth_lets_the_next_begin() -> None:
    async def scenario() -> None:
        limiter = Limiter(2)
        calls = Calls(limiter)
        limiter.pushed_back("a", None)
        calls.start("a1")
        calls.start("a2")
        await settle()
        assert calls.order == ["a1"]
        limiter.succeeded("a")
        await settle()
        assert calls.order == ["a1", "a2"]
        await calls.end("a1", "a2")

    clocked(scenario)


def test_all_callers_of_a_provider_pause_and_nobody_elses_do() -> None:
    async def scenario() -> None:
        limiter = Limiter(4)
        calls = Calls(limiter)
        limiter.pushed_back("a", 5)
        limiter.pushed_back("a", 3)  # the longer pause holds
        limiter.pushed_back("a", None)
        assert (limiter.waits("a"), limiter.waits("b")) == (5, 0)
        tasks = [calls.start(name) for name in ("a1", "b1", "a2", "b2")]
        for end in calls.ends.values():
            end.set()
        await asyncio.sleep(1)
        assert limiter.waits("a") == 4
        await asyncio.gather(*tasks)
        assert calls.began == [("b1", 0), ("b2", 0), ("a1", 5), ("a2", 5)]
        assert limiter.waits("a") == 0

    loop = clocked(scenario)
    assert loop.clock.looks < 50  # it sleeps through the pause


def test_who_is_next_pauses_though_the_place_was_given_back_before_the_push() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        calls = Calls(limiter)
        first, second = calls.start("a1", too_many(limiter, 3)), calls.start("a2")
        await settle()
        await calls.end("a1", "a2")
        await asyncio.gather(first, second)
        assert calls.began == [("a1", 0), ("a2", 3)]

    clocked(scenario)


def test_a_pause_that_grows_while_one_waits_is_kept() -> None:
    async def scenario() -> None:
        limiter = Limiter(4)
        calls = Calls(limiter)
        limiter.pushed_back("a", 2)
        task = calls.start("a1")
        await asyncio.sleep(1)
        limiter.pushed_back("a", 4)
        calls.ends["a1"].set()
        await task
        assert calls.began == [("a1", 5)]

    clocked(scenario)


@pytest.mark.parametrize("seconds", [None, 0, -1])
def test_without_retry_after_there_is_no_pause(seconds: float | None) -> None:
    async def scenario() -> None:
        limiter = Limiter(4)
        limiter.pushed_back("a", seconds)
        async with limiter.place("a"):
            assert (now(), limiter.cap("a"), limiter.waits("a")) == (0, 2, 0)

    clocked(scenario)


def test_callers_that_their_provider_holds_up_do_not_hold_up_others() -> None:
    async def scenario() -> None:
        limiter = Limiter(2)
        calls = Calls(limiter)
        limiter.pushed_back("a", None)
        limiter.pushed_back("b", 60)
        for name in ("a1", "a2", "a3", "b1", "b2", "c1", "c2"):
            calls.start(name)
        await settle()
        assert calls.order == ["a1", "c1"]
        await calls.end("c1")
        assert calls.order == ["a1", "c1", "c2"]
        await calls.end("a1")
        assert calls.order == ["a1", "c1", "c2", "a2"]
        await calls.end("a2", "a3", "c2", "b1", "b2")
        await asyncio.gather(*calls.tasks.values())
        assert calls.order[-2:] == ["b1", "b2"]

    clocked(scenario)


def test_who_is_cancelled_while_waiting_or_just_as_the_turn_comes_leaks_no_place() -> None:
    async def scenario() -> None:
        calls = Calls(Limiter(1))
        tasks = {name: calls.start(name) for name in ("a1", "a2", "a3", "a4")}
        await settle()
        tasks["a2"].cancel()  # while it waits
        await settle()
        tasks["a1"].cancel()
        await asyncio.sleep(0)  # the place is given back
        await asyncio.sleep(0)  # and given to the third, which has not seen it yet
        tasks["a3"].cancel()
        await settle()
        assert calls.order == ["a1", "a4"]
        await calls.end("a4")
        ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in ended] == [True, True, True, False]

    clocked(scenario)


def test_a_call_that_fails_gives_its_place_back() -> None:
    async def scenario() -> None:
        limiter = Limiter(1)
        for _ in range(3):
            with contextlib.suppress(ValueError):
                async with limiter.place("a"):
                    raise ValueError
        async with asyncio.timeout(1), limiter.place("b"):
            pass

    clocked(scenario)


CALL = st.fixed_dictionaries(
    {
        "provider": st.sampled_from("abc"),
        "start": st.integers(0, 20),
        "takes": st.integers(0, 5),
        "told": st.lists(st.sampled_from([None, 0, 1, 7]), max_size=3),  # the pushes before the call succeeds
        "cancelled": st.none() | st.integers(0, 30),
    }
)


class Crowd:
    """Makes calls that are pushed back and cancelled at random, and checks at each beginning what always holds."""

    def __init__(self, parallel: int) -> None:
        self.parallel, self.limiter = parallel, Limiter(parallel)
        self.in_flight: Counter[str] = Counter()
        self.line: dict[str, list[object]] = {provider: [] for provider in "abc"}
        self.paused: dict[str, float] = dict.fromkeys("abc", 0.0)
        self.pushed: dict[str, int] = dict.fromkeys("abc", -9)
        self.due: dict[object, int] = {}

    async def call(self, made: dict[str, Any]) -> None:
        await asyncio.sleep(made["start"])
        for seconds in made["told"]:
            await self.attempt(made)
            self.paused[made["provider"]] = max(self.paused[made["provider"]], now() + (seconds or 0))
            self.pushed[made["provider"]] = looks()
            self.limiter.pushed_back(made["provider"], seconds)
        await self.attempt(made)
        self.limiter.succeeded(made["provider"])

    async def attempt(self, made: dict[str, Any]) -> None:
        provider, me = made["provider"], object()
        line = self.line[provider]
        line.append(me)
        try:
            async with self.limiter.place(provider):
                self.check_beginning(provider, me)
                line.remove(me)
                self.in_flight[provider] += 1
                try:
                    await asyncio.sleep(made["takes"])
                finally:
                    self.in_flight[provider] -= 1
        finally:
            if me in line:
                line.remove(me)

    def check_beginning(self, provider: str, me: object) -> None:
        assert self.in_flight.total() < self.parallel
        assert looks() <= self.due.get(me, looks())
        for ahead in self.line[provider][: self.line[provider].index(me)]:  # they have their places, and are waking up
            self.due.setdefault(ahead, looks() + 1)
        if looks() - self.pushed[provider] > 1:  # the place may have been given a moment before the push
            assert self.in_flight[provider] < self.limiter.cap(provider) <= self.parallel
            assert self.limiter.waits(provider) == 0
            assert now() >= self.paused[provider]

    async def run(self, calls: list[dict[str, Any]]) -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.call(made)) for made in calls]
        for task, made in zip(tasks, calls, strict=True):
            if made["cancelled"] is not None:
                loop.call_at(made["cancelled"], task.cancel)
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if ended and not isinstance(ended, asyncio.CancelledError):
                raise ended
        await self.check_end()

    async def check_end(self) -> None:
        """Nothing was leaked: as many calls as ever begin at once, if it may be after a pause."""
        for _ in range(self.parallel**2):
            self.limiter.succeeded("a")
        calls = Calls(self.limiter)
        tasks = [calls.start(f"a{n}") for n in range(self.parallel)]
        await asyncio.sleep(self.limiter.waits("a"))
        await settle()
        assert calls.in_flight["a"] == self.parallel
        await calls.end(*calls.ends)
        await asyncio.gather(*tasks)


@given(st.integers(1, 5), st.lists(CALL, max_size=25))
def test_whatever_happens_the_caps_and_pauses_hold_the_lines_keep_order_and_everybody_gets_through(
    parallel: int, calls: list[dict[str, Any]]
) -> None:
    loop = clocked(lambda: Crowd(parallel).run(calls))
    attempts = sum(1 + len(made["told"]) for made in calls)
    assert loop.clock.looks < 40 + 20 * attempts  # no busy loop


@given(st.integers(1, 64), st.lists(st.integers(0, 40), max_size=12))
def test_after_any_pushes_the_cap_grows_back_slowly(parallel: int, pushes: list[int]) -> None:
    async def scenario() -> None:
        limiter = Limiter(parallel)
        for successes in pushes:
            before = limiter.cap("a")
            limiter.pushed_back("a", None)
            assert max(1, before // 2) <= limiter.cap("a") <= max(1, (before + 1) // 2)
            for _ in range(successes):
                before = limiter.cap("a")
                limiter.succeeded("a")
                assert before <= limiter.cap("a") <= min(parallel, before + 1)
        for _ in range(parallel**2):
            limiter.succeeded("a")
        assert limiter.cap("a") == parallel

    clocked(scenario)
