"""Hosted models over HTTP: transport faults, time-outs, replies that are no answers, and the account of tokens."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from frames.errors import UsageError
from graph import RecursiveTaskSolver, SolveResult, Verdict, make_graph
from nodes.models.transport import is_transport, retry_after
from tests.servers import OpenAI, OpenAIHandler, serve


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    state = OpenAI()
    with serve(OpenAIHandler, state) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield state


def solve(model: Any = "openai:m", **settings: Any) -> SolveResult:
    parts: dict[str, Any] = {"decomposer": lambda task, depth: []} | settings
    with RecursiveTaskSolver(solver=model, **parts) as solver:
        return solver.solve("the task")


def pauses(endpoint: OpenAI) -> list[float]:
    return [later - sooner for sooner, later in zip(endpoint.times, endpoint.times[1:], strict=False)]


TRANSIENT: list[dict[str, Any]] = [
    {"status": 429, "headers": {"retry-after": "1"}},
    {"status": 500},
    {"status": 503},
    {"status": 408},
    {"drop": True},
]


@pytest.mark.parametrize("fault", TRANSIENT, ids=str)
def test_a_transport_fault_is_tried_again_and_is_no_attempt(endpoint: OpenAI, fault: dict[str, Any]) -> None:
    endpoint.behaviours = [fault]
    judged: list[int] = []

    def verify(task: str, result: str, attempt: int) -> Verdict:
        judged.append(attempt)
        return Verdict.accept()

    result = solve(verifier=verify)
    assert result.output == "an answer"
    assert [trace.attempt for trace in result.traces if trace.type == "SOLVED"] == [1]
    assert (judged, result.usage["calls"], len(endpoint.times)) == ([1], 1, 2)
    assert pauses(endpoint)[0] > 0.4
    if "headers" in fault:
        assert pauses(endpoint)[0] >= 1


def test_pauses_grow(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 502}, {"status": 502}]
    assert solve().success
    first, second = pauses(endpoint)
    assert second > first


def test_a_rejected_answer_is_a_new_attempt(endpoint: OpenAI) -> None:
    result = solve(verifier=lambda task, result, attempt: Verdict(attempt == 2))
    assert result.usage["calls"] == 2
    assert endpoint.prompts == ["the task", "the task"]


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ([{"status": 503, "message": "over capacity"}] * 2, "openai:m could not be reached (2 attempts): "),
        ([{"status": 401, "message": "bad key"}], "check the API key"),
        ([{"status": 404, "message": "no such model"}], "check the model's name"),
        ([{"status": 400, "message": "maximum context length"}], "maximum context length"),
        ([{"status": 429, "code": "insufficient_quota", "message": "quota"}], "quota"),
        ([{"status": 429, "headers": {"retry-after": "3600"}}], "it asks to wait 3600 s"),
        ([{"finish": "length"}], "cut its reply off at its length limit after 3 tokens"),
        ([{"finish": "content_filter", "content": ""}], "declined to answer"),
        ([{"message": {"refusal": "I will not"}}], "declined to answer: I will not"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_answer_fails_with_a_reason(endpoint: OpenAI, faults: list[dict[str, Any]], said: str) -> None:
    endpoint.behaviours = list(faults)
    result = solve(call_attempts=2)
    assert (result.status, result.output, len(result.gaps)) == ("failed", None, 1)
    assert result.gaps[0].startswith("0: solve: openai:m ")
    assert said in result.gaps[0]
    assert "\n" not in result.gaps[0]
    assert len(endpoint.times) == len(faults)  # never asked again in vain
    assert result.usage["calls"] == ("status" not in faults[0])  # a reply was paid for, an error was not


def test_an_endpoint_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    result = solve(call_attempts=1)
    assert "could not be reached (1 attempts)" in result.gaps[0]
    assert "check the endpoint's address" in result.gaps[0]


def test_a_call_has_a_time_out_and_is_made_again(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"sleep": 3}]
    began = time.monotonic()
    assert solve(call_timeout=0.5).success
    assert time.monotonic() - began < 2.5


def test_a_callable_that_hangs_is_told_from_a_rejection() -> None:
    async def hang(prompt: str) -> str:
        await asyncio.sleep(60)
        return prompt

    result = solve(hang, call_timeout=0.1, call_attempts=2)
    assert result.gaps == [
        "0: solve: hang gave no reply within 0.1 s, 2 times; raise call_timeout or use another model"
    ]


def test_a_callable_with_a_dropped_connection_is_tried_again() -> None:
    calls: list[str] = []

    def model(prompt: str) -> str:
        calls.append(prompt)
        if len(calls) == 1:
            raise ConnectionResetError("gone")
        return "fine"

    assert solve(model).output == "fine"


def test_a_deadline_keeps_what_was_found(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{}, {"sleep": 5}]
    plan = lambda task, depth: ["one", "two"] if depth == 0 else []  # noqa: E731
    result = solve(decomposer=plan, deadline=1.5, max_depth=1)
    assert (result.status, result.gaps) == ("limited", ["0.1: deadline = 1.5 s reached"])
    assert result.partial == "0.0 one\nan answer"


def test_a_chat_model_of_ones_own(endpoint: OpenAI) -> None:
    result = solve(ChatOpenAI(model="mine", max_retries=0))
    assert result.output == "an answer"
    assert (result.usage["input_tokens"], result.usage["output_tokens"], result.usage["estimated"]) == (7, 3, False)


def test_one_solver_is_called_again_and_again(endpoint: OpenAI) -> None:
    with RecursiveTaskSolver(solver="openai:m", decomposer=lambda task, depth: []) as solver:
        assert [solver.solve("t").success for _ in range(3)] == [True] * 3


LOOPS = """
import asyncio
from langchain_openai import ChatOpenAI
from graph import RecursiveTaskSolver
model = ChatOpenAI(model="mine", max_retries=0)
for _ in range(3):
    solver = RecursiveTaskSolver(solver=model, decomposer=lambda task, depth: [])
    assert asyncio.run(solver.asolve("t")).success
    assert solver.solve("t").success
"""


def test_a_model_outlives_the_event_loops_it_was_used_on(endpoint: OpenAI) -> None:
    subprocess.run([sys.executable, "-c", LOOPS], check=True, timeout=60)
    assert len(endpoint.times) >= 6


@pytest.mark.parametrize("usage", [True, False])
async def test_tokens_are_the_same_streamed_or_not(endpoint: OpenAI, usage: bool) -> None:
    endpoint.usage, endpoint.answer = usage, "an answer of several words "
    app, totals = make_graph(InMemorySaver()), []
    context: Any = {"model": "openai:m", "max_depth": 0}
    for thread, mode in (("plain", "custom"), ("streamed", "messages")):
        config: Any = {"configurable": {"thread_id": thread}}
        chunks = [c async for c in app.astream({"task": "t"}, config, context=context, stream_mode=mode)]
        state = await app.aget_state(config)
        totals.append([{**call, "model": ""} for call in state.values["calls"]])
        assert len(chunks) > (4 if mode == "messages" else 0)
    assert totals[0] == totals[1]
    assert totals[0][0]["estimated"] is not usage
    assert totals[0][0]["input_tokens"] == (7 if usage else 1)


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("openai:m", None, "set OPENAI_API_KEY"),
        ("anthropic:m", None, "set ANTHROPIC_API_KEY"),
        ("anthropic:m", "ANTHROPIC_API_KEY", "pip install 'langchain-anthropic'"),
        ("nosuch:m", None, "nosuch"),
    ],
)
def test_a_model_that_cannot_be_had_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, key: str | None, said: str
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    if key:
        monkeypatch.setenv(key, "x")
    with pytest.raises(UsageError) as error:
        solve(name)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def response(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://x")
    return httpx.HTTPStatusError("x", request=request, response=httpx.Response(status, headers=headers))


@pytest.mark.parametrize(
    ("error", "transport"),
    [
        (httpx.ConnectError("x"), True),
        (httpx.ReadTimeout("x"), True),
        (httpx.RemoteProtocolError("x"), True),
        (httpx.UnsupportedProtocol("x"), False),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (response(429), True),
        (response(529), True),
        (response(400), False),
        (response(429, **{"retry-after": "3000"}), False),
        (type("APIConnectionError", (Exception,), {})(), True),
        (type("Busy", (Exception,), {"status_code": 503})(), True),
        (type("Denied", (Exception,), {"response": SimpleNamespace(status_code=403, headers={})})(), False),
        (ValueError("503"), False),
        (FileNotFoundError("x"), False),
    ],
    ids=repr,
)
def test_which_faults_are_of_transport(error: Exception, transport: bool) -> None:
    assert is_transport(error) is transport


def test_retry_after_in_each_form() -> None:
    assert retry_after(response(429)) is None
    assert retry_after(response(429, **{"retry-after": "1.5"})) == 1.5
    assert retry_after(response(429, **{"retry-after-ms": "250", "retry-after": "9"})) == 0.25
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < (retry_after(response(429, **{"retry-after": date})) or 0) <= 30
    assert retry_after(response(429, **{"retry-after": "soon"})) is None
