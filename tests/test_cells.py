"""Cells: sessions of code that outlive their worker, and what no code in them can do."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nodes.agent.prelude import ENDED, LAUNCHED, USED, prelude
from nodes.sandbox import cells
from nodes.sandbox.cells import Answers, Cells, HostCall, Raised, Rules, Start, Stop


def rules(**changed: Any) -> Rules:
    given: dict[str, Any] = {
        "host": frozenset({LAUNCHED, USED}),
        "end": ENDED,
        "refuse_end": lambda value: None,
        "seed": "0 1",
        "now": 1_700_000_000.0,
        "seconds": 2.0,
        "output_chars": 2_000,
    }
    return Rules(**{**given, **changed})


@pytest.fixture
async def pool() -> AsyncIterator[Cells]:
    made = Cells(2)
    yield made
    await asyncio.to_thread(made.close)


async def run(pool: Cells, code: str, state: bytes | None = None, **changed: Any) -> Stop:
    inputs = changed.pop("inputs", {})
    return await pool.run(state, Start(code, prelude([]), inputs), rules(**changed))


async def test_variables_and_functions_stay_from_cell_to_cell(pool: Cells) -> None:
    first = await run(pool, "import math\ndef area(r): return round(math.pi * r * r, 1)\nx = [1]\nprint('set')")
    assert (first.printed, first.error, first.calls) == ("set\n", None, [])
    second = await run(pool, "x.append(area(2))\nprint(x)", first.state)
    assert second.printed == "[1, 12.6]\n"
    failed = await run(pool, "x.append(3)\n1 / 0", second.state)
    assert failed.error == "  line 2: 1 / 0\nZeroDivisionError: division by zero"
    assert (await run(pool, "print(x)", failed.state)).printed == "[1, 12.6, 3]\n"


async def test_a_waiting_cell_goes_on_in_another_process_with_answers_in_any_order(pool: Cells) -> None:
    stop = await run(
        pool,
        "n = 1\nasync def sub(i):\n    return await launch_subagent('part %d' % i, context=(i, {'k': i}))\n"
        "a, b, c = await asyncio.gather(sub(1), sub(2), sub(3))\nn += 1\nprint(n, a, b, c)",
    )
    assert [call.arguments for call in stop.calls] == [[f"part {i}", [i, {"k": i}], None, None] for i in (1, 2, 3)]
    assert stop.state is not None
    assert len(stop.state) < 20_000
    other = Cells(1)
    first, second, third = (call.id for call in stop.calls)
    part = await other.run(stop.state, Answers({third: {"answer": "C"}}), rules())
    assert {call.id for call in part.calls} == {first, second}
    done = await other.run(part.state, Answers({second: {"answer": "B"}, first: {"answer": [1]}}), rules())
    await asyncio.to_thread(other.close)
    assert done.printed == "2 [1] B C\n"
    assert (await run(pool, "print(n + 1)", done.state)).printed == "3\n"


async def test_a_failure_is_told_from_an_answer(pool: Cells) -> None:
    stop = await run(
        pool,
        "r = await launch_subagent('x')\nprint(isinstance(r, Failure), r.reason, r.partial)\nprint(r)",
    )
    refused = {"reason": "refused", "message": "no level is left", "partial": None}
    done = await pool.run(stop.state, Answers({stop.calls[0].id: refused}), rules())
    assert done.printed == "True refused None\nFailure: refused: no level is left\n"


async def test_a_raised_answer_is_an_exception_with_the_lines_of_the_code_alone(pool: Cells) -> None:
    stop = await run(pool, "def plan():\n    return launch_subagent('')\nawait plan()")
    done = await pool.run(stop.state, Answers({stop.calls[0].id: Raised("ValueError", "the goal is blank")}), rules())
    assert done.error == "  line 3: await plan()\nValueError: the goal is blank"


async def test_finish_ends_at_once_and_nothing_catches_it(pool: Cells) -> None:
    stop = await run(pool, "try:\n    finish({'a': (1, 2)})\nexcept BaseException:\n    pass\nprint('after')")
    assert (stop.finished, stop.value, stop.printed) == (True, {"a": [1, 2]}, "")
    refused = await run(pool, "finish(1)", refuse_end=lambda value: "not of the form")
    assert (refused.finished, refused.error) == (False, "  line 1: finish(1)\nValueError: not of the form")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print(open('/etc/passwd').read())", "PermissionError"),
        ("import subprocess\nsubprocess.run(['id'])", "subprocess"),
        ("import os\nos.environ['HOME']", "not supported"),
        ("import socket", "socket"),
        ("print(__import__('os').system('id'))", "Error"),
        ("import ctypes", "ctypes"),
        ("().__class__.__base__.__subclasses__()", "AttributeError"),
        ("await _host('x')", "name '_host' is not defined"),
        ("finish(open)", "open is no JSON value"),
        ("finish(float('nan'))", "nan is no JSON value"),
        ("x = []\nfor i in range(100):\n    x = [x]\nfinish(x)", "levels deep"),
        ("x = [1]\nfor i in range(50):\n    x = [x, x]\nfinish(x)", "larger than"),
        ("x = 1\nfor i in range(300): x *= 10**40\nfinish(x)", "bits is too large"),
        ("finish('a' * 2_000_000)", "larger than"),
    ],
)
async def test_code_reaches_nothing_and_hands_over_plain_values_alone(pool: Cells, code: str, said: str) -> None:
    stop = await run(pool, code)
    assert not stop.finished
    assert said in (stop.error or "")
    assert (await run(pool, "print('still here')", stop.state)).printed == "still here\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True:\n    pass", "time limit"),
        ("while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass", "time limit"),
        ("import time\nwhile True:\n    time.sleep(1)", "time limit"),
        ("while True:\n    await asyncio.sleep(0)", "time limit"),
        ("x = 'a' * (1 << 30)", "memory limit"),
        ("x = []\nwhile True:\n    x.append('b' * 100_000)", "memory limit"),
        ("x = 'c' * (6 << 20)", "the variables take 6 MB"),
        (
            "while True:\n    try:\n        nothing()\n    except BaseException:\n        pass",
            "time limit|called the host",
        ),
    ],
)
async def test_what_has_no_end_is_stopped_and_its_variables_are_as_before(pool: Cells, code: str, said: str) -> None:
    before = await run(pool, "kept = 7")
    began = time.monotonic()
    stop = await run(pool, f"kept = 8\n{code}", before.state, seconds=0.5)
    assert time.monotonic() - began < 5
    assert any(part in (stop.error or "") for part in said.split("|")), stop.error
    assert stop.state is None
    assert (await run(pool, "print(kept)", before.state)).printed == "7\n"


async def test_huge_output_is_cut(pool: Cells) -> None:
    stop = await run(pool, "for i in range(2000):\n    print('x' * 10_000)")
    assert len(stop.printed) < 2_100
    assert stop.printed.endswith("[output cut after 2,000 characters]")


async def test_a_thousand_launches_are_calls_and_no_more(pool: Cells) -> None:
    code = "rs = await asyncio.gather(*[launch_subagent('part %d' % i) for i in range(1000)])"
    stop = await run(pool, code, seconds=5)
    assert len(stop.calls) == 1000
    assert isinstance(stop.calls[0], HostCall)


async def test_a_cell_done_over_sees_the_same_chance_and_clock(pool: Cells) -> None:
    code = "import random, datetime\nprint(random.random(), datetime.datetime.now())"
    start = await run(pool, "x = 1")
    once, again = [await run(pool, code, start.state) for _ in range(2)]
    other = await run(pool, code, seed="0 2")
    assert once.printed == again.printed
    assert once.printed.endswith("2023-11-14 22:13:20\n")
    assert other.printed != once.printed


async def test_two_workers_serve_many_sessions_and_a_cancelled_one_gives_its_back(pool: Cells) -> None:
    endless = [asyncio.ensure_future(run(pool, "while True: pass", seconds=30)) for _ in range(2)]
    await asyncio.sleep(0.5)
    for each in endless:
        each.cancel()
    await asyncio.gather(*endless, return_exceptions=True)
    began = time.monotonic()
    stops = await asyncio.gather(*(run(pool, f"print({n})") for n in range(100)))
    assert [stop.printed for stop in stops] == [f"{n}\n" for n in range(100)]
    assert time.monotonic() - began < 10


def test_the_version_is_the_installed_ones() -> None:
    from importlib.metadata import version

    assert version("pydantic-monty") == cells.VERSION
