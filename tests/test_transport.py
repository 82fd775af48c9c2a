"""Hosted models over HTTP: transport faults, time-outs, replies that are no answers, and the account of tokens."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import httpx
import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from frames.errors import RefusedError, ReplyCutError, UsageError
from graph import RecursiveTaskSolver, SolveResult, Verdict, make_graph
from graph.loop import run_sync
from nodes.models.reply import answer, from_message
from nodes.models.transport import is_transport, retry_after, sizes, too_large
from tests.servers import OpenAI, OpenAIHandler, serve


class Breaking(OpenAIHandler):
    """Knows two more behaviours: ``half``, the part of the body after which it hangs up, and ``event``."""

    behaviour: dict[str, Any]

    def reply(self, state: OpenAI, request: dict[str, Any], behaviour: dict[str, Any]) -> None:
        self.behaviour = behaviour
        super().reply(state, request, behaviour)

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        behaviour = getattr(self, "behaviour", {})
        if "event" in behaviour:
            body = f"data: {json.dumps({'error': behaviour['event']})}\n\n".encode()
        if "half" not in behaviour:
            super().answer(status, body, headers)
            return
        self.send_response(status)
        length = {"content-length": str(len(body))} if behaviour.get("declared") else {"connection": "close"}
        for name, value in {"content-type": "application/json", **(headers or {}), **length}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: int(len(body) * behaviour["half"])])
        self.close_connection = True


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    state = OpenAI()
    with serve(Breaking, state) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield state


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses, where a test is not about them."""
    monkeypatch.setattr("nodes.models.transport._backoff", lambda state: 0.02)


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
    {"half": 0.6, "declared": True},
    {"half": 0.6},
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


def test_a_date_to_retry_after_is_kept(endpoint: OpenAI) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
    endpoint.behaviours = [{"status": 503, "headers": {"retry-after": date}}]
    assert solve().success
    assert pauses(endpoint)[0] > 0.8  # a date has whole seconds


def test_milliseconds_to_retry_after_are_kept(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 429, "headers": {"retry-after-ms": "150"}}] * 2
    assert solve().success
    assert all(0.15 <= pause < 0.5 for pause in pauses(endpoint))


def test_a_pause_of_no_seconds_is_no_reason_to_hammer(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 429, "headers": {"retry-after": "0"}}]
    assert solve().success
    assert pauses(endpoint)[0] >= 0.5


def test_a_pause_is_told_to_who_watches(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 429, "message": "slow down", "headers": {"retry-after-ms": "150"}}]
    solver = RecursiveTaskSolver(solver="openai:m", decomposer=lambda task, depth: [])
    [wait] = [event for event in run_sync(collected(solver.astream("t"))) if event["event"] == "wait"]
    assert (wait["frame"], wait["role"], wait["seconds"]) == ("0", "solve", 0.15)
    assert wait["reason"].startswith("Error code: 429")
    assert "slow down" in wait["reason"]


@pytest.mark.usefixtures("swift")
def test_every_role_is_retried_alike(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{}, {}, {"status": 500}]
    result = solve(decomposer=lambda task, depth: ["one", "two"], max_depth=1)
    assert result.success
    assert {role: made["calls"] for role, made in result.usage["by_role"].items()} == {"solve": 2, "aggregate": 1}
    assert len(endpoint.times) == 4


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
@pytest.mark.usefixtures("swift")
def test_what_is_no_answer_fails_with_a_reason(endpoint: OpenAI, faults: list[dict[str, Any]], said: str) -> None:
    endpoint.behaviours = list(faults)
    result = solve(call_attempts=2)
    assert (result.status, result.output, len(result.gaps)) == ("failed", None, 1)
    assert result.gaps[0].startswith("0: solve: openai:m ")
    assert said in result.gaps[0]
    assert "\n" not in result.gaps[0]
    assert len(endpoint.times) == len(faults)  # never asked again in vain
    assert result.usage["calls"] == ("status" not in faults[0])  # a reply was paid for, an error was not


TOO_LARGE = "openai:m takes no request of this size: "
TPM = (
    "Request too large for gpt-4o in organization org-VDAWofJASuLH0vVz8o9tiQZr on tokens per min (TPM): "
    "Limit 30000, Requested 51000. The input or output tokens must be reduced in order to run successfully."
)
TOKENS = "it asks for 51,000 tokens, where 30,000 are taken: "
REMEDY = "; use a model with a larger window or limit, or lower window, so that the work is split further"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 429, "code": "rate_limit_exceeded", "message": TPM}, TOKENS),
        ({"status": 429, "message": TPM, "headers": {"retry-after": "1"}}, TOKENS),
        (
            {"status": 413, "code": "request_too_large", "message": "Request exceeds the maximum size"},
            "Error code: 413",
        ),
        ({"status": 413, "message": "<html>Payload Too Large</html>"}, "Error code: 413"),
        ({"status": 400, "code": "context_length_exceeded", "message": "too long"}, "Error code: 400"),
        ({"status": 400, "message": "prompt is too long: 51000 tokens > 30000 maximum"}, TOKENS),
    ],
    ids=str,
)
def test_a_request_that_is_too_large_is_not_sent_again(endpoint: OpenAI, fault: dict[str, Any], said: str) -> None:
    endpoint.behaviours = [fault]
    result = solve()
    assert (result.status, len(endpoint.times)) == ("failed", 1)
    assert result.gaps[0].startswith(f"0: solve: {TOO_LARGE}{said}")
    assert result.gaps[0].endswith(REMEDY)


@pytest.mark.usefixtures("swift")
def test_too_many_requests_are_made_again_though_the_message_has_numbers(endpoint: OpenAI) -> None:
    said = "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000."
    endpoint.behaviours = [{"status": 429, "code": "rate_limit_exceeded", "message": said}]
    assert solve().success
    assert len(endpoint.times) == 2


@pytest.mark.usefixtures("swift")
def test_a_request_that_is_too_large_in_a_stream_is_not_sent_again(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"event": {"message": TPM, "type": "tokens", "code": "rate_limit_exceeded"}}]
    state, _ = driven(["messages", "custom"])
    assert (state["status"], len(endpoint.times)) == ("failed", 1)


def test_a_request_that_is_too_large_says_nothing_of_schemas(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 400, "code": "context_length_exceeded", "message": "too long"}]
    with RecursiveTaskSolver.roma("openai:m") as solver:
        result = solver.solve("the task")
    assert (result.status, len(endpoint.times)) == ("failed", 1)
    assert TOO_LARGE in result.gaps[0]


def test_an_endpoint_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    result = solve(call_attempts=1)
    assert "could not be reached (1 attempt)" in result.gaps[0]
    assert "check the endpoint's address" in result.gaps[0]


@pytest.mark.usefixtures("swift")
def test_a_call_has_a_time_out_and_is_made_again(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"sleep": 3}]
    began = time.monotonic()
    assert solve(call_timeout=0.5).success
    assert time.monotonic() - began < 2.5


@pytest.mark.usefixtures("swift")
def test_a_callable_that_hangs_is_told_from_a_rejection() -> None:
    async def hang(prompt: str) -> str:
        await asyncio.sleep(60)
        return prompt

    result = solve(hang, call_timeout=0.1, call_attempts=2)
    assert result.gaps == [
        "0: solve: hang gave no reply within 0.1 s, in 2 attempts; raise call_timeout or use another model"
    ]


@pytest.mark.usefixtures("swift")
def test_a_callable_with_a_dropped_connection_is_tried_again() -> None:
    calls: list[str] = []

    def model(prompt: str) -> str:
        calls.append(prompt)
        if len(calls) == 1:
            raise ConnectionResetError("gone")
        return "fine"

    assert solve(model).output == "fine"


def test_a_plain_callables_fault_is_no_transport_fault() -> None:
    calls: list[str] = []

    def model(prompt: str) -> str:
        calls.append(prompt)
        raise KeyError("no such thing")

    result = solve(model)
    assert (result.status, len(calls)) == ("failed", 1)
    assert result.gaps == ["0: solve: model failed: KeyError: 'no such thing'"]


def test_a_deadline_ends_a_pause(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 429, "headers": {"retry-after": "60"}}]
    began = time.monotonic()
    result = solve(deadline=0.8)
    assert (result.status, result.output, result.partial) == ("limited", None, None)
    assert time.monotonic() - began < 3


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


@pytest.mark.usefixtures("swift")
def test_a_chat_models_faults_are_retried_and_named(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"status": 503}, {"status": 503}]
    result = solve(ChatOpenAI(model="mine", max_retries=0), call_attempts=2)
    assert result.gaps[0].startswith("0: solve: mine could not be reached (2 attempts): Error code: 503")
    assert (result.output, result.usage["calls"]) == (None, 0)


def test_one_solver_is_called_again_and_again(endpoint: OpenAI) -> None:
    with RecursiveTaskSolver(solver="openai:m", decomposer=lambda task, depth: []) as solver:
        assert [solver.solve("t").success for _ in range(3)] == [True] * 3


LOOPS = """
import asyncio
from langchain_openai import ChatOpenAI
from graph import RecursiveTaskSolver
model = ChatOpenAI(model="mine", max_retries=0)
for _ in range(2):
    solver = RecursiveTaskSolver(solver=model, decomposer=lambda task, depth: [])
    assert asyncio.run(solver.asolve("t")).success
    assert solver.solve("t").success
"""


def test_a_model_outlives_the_event_loops_it_was_used_on(endpoint: OpenAI) -> None:
    subprocess.run([sys.executable, "-c", LOOPS], check=True, timeout=60)
    assert len(endpoint.times) >= 4


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def driven(mode: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the last state and what was streamed, on the shared loop: a hosted model's connections belong to it."""
    app, config = make_graph(InMemorySaver()), {"configurable": {"thread_id": "t"}}
    options: Any = {"config": config, "context": {"model": "openai:m", "max_depth": 0}, "stream_mode": mode}
    chunks = run_sync(collected(app.astream({"task": "t"}, **options)))
    return run_sync(app.aget_state(config)).values, chunks  # type: ignore[arg-type]


@pytest.mark.parametrize("usage", [True, False])
def test_tokens_are_the_same_streamed_or_not(endpoint: OpenAI, usage: bool) -> None:
    endpoint.usage, endpoint.answer = usage, "an answer of several words "
    plain, events = driven("custom")
    streamed, chunks = driven(["messages", "custom"])
    assert plain["calls"] == streamed["calls"]
    assert len([chunk for mode, chunk in chunks if mode == "messages"]) > 4
    assert [chunk["event"] for mode, chunk in chunks if mode == "custom"] == [event["event"] for event in events]
    assert plain["calls"][0]["estimated"] is not usage
    assert plain["calls"][0]["input_tokens"] == (7 if usage else 1)


def test_a_chat_model_that_streams_no_usage_has_it_estimated(endpoint: OpenAI) -> None:
    result = solve(ChatOpenAI(model="mine", max_retries=0, streaming=True))
    assert result.output.strip() == "an answer"
    assert (result.usage["calls"], result.usage["estimated"]) == (1, True)


BROKEN: list[dict[str, Any]] = [
    {"half": 0},
    {"half": 0.7},  # without a declared length it looks like an end
    {"half": 0.7, "declared": True},
    {"event": {"message": "overloaded", "type": "server_error", "code": None}},
    {"event": {"message": "overloaded", "type": None, "code": 503}},
]


@pytest.mark.parametrize("fault", BROKEN, ids=str)
@pytest.mark.usefixtures("swift")
def test_half_a_stream_is_no_answer(endpoint: OpenAI, fault: dict[str, Any]) -> None:
    endpoint.answer, endpoint.behaviours = "one two three four", [fault]
    state, _ = driven(["messages", "custom"])
    assert (state["status"], state["output"].strip(), len(endpoint.times)) == ("succeeded", "one two three four", 2)
    assert [call["estimated"] for call in state["calls"]] == [False]


def test_a_stream_that_was_cut_at_its_limit_is_no_answer(endpoint: OpenAI) -> None:
    endpoint.behaviours = [{"finish": "length"}]
    state, _ = driven(["messages", "custom"])
    assert (state["status"], state["output"], len(endpoint.times)) == ("failed", None, 1)


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


REQUEST = httpx.Request("POST", "http://x")


def anthropic(status: int, kind: str) -> Exception:
    body = {"type": "error", "error": {"type": kind, "message": "x"}}
    answered = httpx.Response(status, request=REQUEST)
    return type("APIStatusError", (Exception,), {"status_code": status, "response": answered, "body": body})(kind)


def response(status: int, **headers: str) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("x", request=REQUEST, response=httpx.Response(status, headers=headers))


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
        (json.JSONDecodeError("x", "", 0), False),  # of a component that reads JSON
        (URLError("refused"), True),
        (HTTPError("http://x", 404, "x", Message(), None), False),
        (HTTPError("http://x", 503, "x", Message(), None), True),
        (openai.APITimeoutError(REQUEST), True),
        (openai.APIConnectionError(request=REQUEST), True),
        (openai.InternalServerError("x", response=httpx.Response(500, request=REQUEST), body=None), True),
        (openai.AuthenticationError("x", response=httpx.Response(401, request=REQUEST), body=None), False),
        (openai.APIError("x", REQUEST, body={"type": "server_error"}), True),
        (openai.APIError("x", REQUEST, body={"type": "invalid_request_error"}), False),
        (openai.APIError("x", REQUEST, body={"type": "insufficient_quota"}), False),
        (openai.APIError("x", REQUEST, body={"type": None, "code": 503}), True),
        (anthropic(200, "overloaded_error"), True),  # an error event in a stream that began well
        (anthropic(529, "overloaded_error"), True),
        (anthropic(400, "invalid_request_error"), False),
        (type("ResponseError", (Exception,), {"status_code": -1})(), False),  # ollama's, without a status
        (type("ConnectTimeout", (type("Timeout", (OSError,), {}),), {})(), True),  # as requests has it
    ],
    ids=repr,
)
def test_which_faults_are_of_transport(error: Exception, transport: bool) -> None:
    assert is_transport(error) is transport


def refused(status: int, said: str, **named: Any) -> openai.APIStatusError:
    answered = httpx.Response(status, request=REQUEST)
    return openai.APIStatusError(f"Error code: {status}", response=answered, body={"message": said, **named})


@pytest.mark.parametrize(
    ("error", "tokens"),
    [
        (refused(429, TPM), (51000, 30000)),
        (refused(429, "Rate limit reached (TPM): Limit 6,000, Used 5,900, Requested 7,100. Wait."), (7100, 6000)),
        (refused(400, "x", code="context_length_exceeded"), None),
        (
            refused(
                400, "This model's maximum context length is 8192 tokens. However, you requested about 9000 tokens"
            ),
            (9000, 8192),
        ),
        (
            refused(
                400,
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens",
            ),
            (9000, 8192),
        ),
        (
            refused(
                400,
                "max_tokens is too large. The maximum context length is 4096 tokens and your request has 100 tokens",
            ),
            None,
        ),
        (
            refused(
                400,
                "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens",
            ),
            (300000, 272000),
        ),
        (refused(400, "prompt is too long: 208310 tokens > 200000 maximum"), (208310, 200000)),
        (
            refused(400, "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input"),
            (209573, 200000),
        ),
        (
            refused(400, "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576)."),
            (1200293, 1048576),
        ),
        (
            refused(400, "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it"),
            (9001, 8192),
        ),
        (openai.APIError("Your input exceeds the context window of this model.", REQUEST, body=None), None),
        (type("ValidationException", (Exception,), {})("Input is too long for requested model."), None),
        (type("OpenAIContextOverflowError", (type("ContextOverflowError", (Exception,), {}),), {})("x"), None),
        (anthropic(413, "request_too_large"), None),
        (anthropic(200, "request_too_large"), None),
        (response(413), None),
    ],
    ids=str,
)
def test_which_requests_are_too_large(error: Exception, tokens: tuple[int, int] | None) -> None:
    assert too_large(error)
    assert not is_transport(error)
    assert sizes(error) == tokens


@pytest.mark.parametrize(
    ("error", "transport"),
    [
        (refused(429, "Rate limit reached (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s."), True),
        (refused(429, "Rate limit reached (TPM): Limit 30000, Used 29000, Requested 2000."), True),
        (refused(429, "This request would exceed the rate limit of 20,000 input tokens per minute"), True),
        (refused(429, "You exceeded your current quota", code="insufficient_quota"), False),
        (refused(500, "maximum context length"), True),
        (refused(400, "response_format is not supported"), False),
        (refused(400, f"no such form: {'x' * 600} a task on the maximum context length"), False),
        (anthropic(529, "overloaded_error"), True),
        (response(429), True),
        (ValueError("Limit 3, Requested 5"), False),
    ],
    ids=lambda value: str(value)[:60],
)
def test_which_faults_are_no_matter_of_size(error: Exception, transport: bool) -> None:
    assert not too_large(error)
    assert is_transport(error) is transport


def test_retry_after_in_each_form() -> None:
    assert retry_after(response(429)) is None
    assert retry_after(response(429, **{"retry-after": "1.5"})) == 1.5
    assert retry_after(response(429, **{"retry-after-ms": "250", "retry-after": "9"})) == 0.25
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < (retry_after(response(429, **{"retry-after": date})) or 0) <= 30
    assert retry_after(response(429, **{"retry-after": "soon"})) is None


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"stop_reason": "max_tokens"}, ReplyCutError),
        ({"stop_reason": "model_context_window_exceeded"}, ReplyCutError),
        ({"stopReason": "max_tokens"}, ReplyCutError),
        ({"finish_reason": "MAX_TOKENS"}, ReplyCutError),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, ReplyCutError),
        ({"stop_reason": "refusal"}, RefusedError),
        ({"finish_reason": "SAFETY"}, RefusedError),
    ],
    ids=str,
)
def test_each_provider_says_in_its_way_why_it_stopped(metadata: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(from_message("prompt", AIMessage("half an", response_metadata=metadata)), "model")


@pytest.mark.parametrize("metadata", [{}, {"finish_reason": "stop"}, {"incomplete_details": None}], ids=str)
def test_a_whole_reply_is_an_answer(metadata: dict[str, Any]) -> None:
    assert answer(from_message("prompt", AIMessage("whole", response_metadata=metadata)), "model") == "whole"
