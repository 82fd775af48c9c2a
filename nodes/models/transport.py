"""Transport faults: which errors are worth trying again, how long to wait before, and which requests are too large."""

import re
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from json import JSONDecodeError
from time import time
from typing import Any, cast

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

RETRIED_STATUS = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
LONGEST_WAIT = 300.0
"""Seconds; a provider that asks for more is told apart as not available."""

_CONNECTION_ERRORS = {
    *("APIConnectionError", "APITimeoutError", "ServiceUnavailable", "ResourceExhausted"),
    *("ConnectionError", "Timeout", "ChunkedEncodingError"),  # requests; botocore has the first too
    *("ClientConnectionError", "ClientPayloadError"),  # aiohttp
    *("URLError", "gaierror", "IncompleteRead"),  # the standard library
}

_MIDWAY = {
    *("server_error", "api_error", "overloaded_error", "timeout_error", "rate_limit_error", "rate_limit_exceeded"),
    *map(str, RETRIED_STATUS),
}
"""What an error event within a stream calls itself, under OpenAI's and Anthropic's interfaces."""

_NO_CHUNK = "No generations found in stream"
"""What LangChain says of a stream that ended before its first chunk."""

_TOO_LARGE = re.compile(
    "request too large|request_too_large"  # OpenAI's limit of tokens a minute; Anthropic
    "|context_length_exceeded|maximum context length|exceeds the context window"  # OpenAI, and who is compatible
    "|input tokens exceed the configured limit"  # OpenAI
    "|prompt is too long|input length and `?max_tokens`? exceed"  # Anthropic
    "|exceeds the maximum number of tokens"  # Google
    "|input is too long for requested model"  # Amazon
    "|exceed_context_size_error|exceeds the available context size",  # llama.cpp
    re.IGNORECASE,
)
"""What providers say of a request that is too large, however long one waits."""

_OVERFLOW = {"ContextOverflowError", "ContextWindowExceededError"}
"""What LangChain and LiteLLM call it."""

_NUMBER = r"\d+(?:,\d{3})*"
_ASKED, _TAKEN = f"(?P<asked>{_NUMBER})", f"(?P<taken>{_NUMBER})"
_MOST = r"(?:\blimit:? |maximum context length is |configured limit of )"
_SIZES = [
    re.compile(
        rf"{_MOST}{_TAKEN}(?:\W+used:? [\d,]+)?\D+(?:requested|resulted in|request has)\D+{_ASKED}", re.IGNORECASE
    ),
    re.compile(rf"(?:prompt is too long: |token count \(?|\brequest \(){_ASKED}\D+{_TAKEN}", re.IGNORECASE),
    re.compile(rf"exceed context limit: {_ASKED} \+ (?P<reply>{_NUMBER}) > {_TAKEN}", re.IGNORECASE),
]
"""How they give the tokens that were asked for and those that are taken."""

_TOLD = 600
"""Characters of a provider's message that are looked at."""

_OTHER_LOOP = ("Event loop is closed", "bound to a different event loop", "attached to a different loop")

_backoff = wait_exponential_jitter(multiplier=0.5, max=30, jitter=0.25)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of failure that an error carries, whichever client raised it."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 300 <= value < 600:
                return value
    return None


def is_transport(error: BaseException) -> bool:
    """Whether the fault lies in reaching the provider, so that the same call may yet succeed."""
    if "insufficient_quota" in (getattr(error, "code", None), getattr(error, "type", None)) or too_large(error):
        return False
    status = status_of(error)
    if status is not None:
        return status in RETRIED_STATUS and (retry_after(error) or 0) <= LONGEST_WAIT
    if _broke_midway(error):
        return True
    if isinstance(error, httpx.TransportError | TimeoutError | ConnectionError):
        return not isinstance(error, httpx.UnsupportedProtocol)
    if isinstance(error, RuntimeError):  # a kept connection belongs to another loop; the next attempt opens one
        return any(words in str(error) for words in _OTHER_LOOP)
    return any(kind.__name__ in _CONNECTION_ERRORS for kind in type(error).__mro__)


def _broke_midway(error: BaseException) -> bool:
    """Whether a reply that began well broke: half a JSON, or an error event in its stream."""
    if isinstance(error, JSONDecodeError):
        return hasattr(error, "response")  # a client's own; a component may fail to read JSON too
    if isinstance(error, ValueError) and _NO_CHUNK in str(error):
        return True
    named = _named(error)
    return any(str(named.get(key)) in _MIDWAY for key in ("type", "code"))


def _named(error: BaseException) -> dict[str, Any]:
    """Return the provider's own account of its error: ``message``, ``type`` and ``code``, as far as it gave them."""
    body: Any = getattr(error, "body", None)
    event: Any = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else {}
    return cast("dict[str, Any]", event) if isinstance(event, dict) else {}


def too_large(error: BaseException) -> bool:
    """Whether the provider takes no request of this size, however long one waits: not "too many", but "too much"."""
    status = status_of(error)
    if status == 413 or any(kind.__name__ in _OVERFLOW for kind in type(error).__mro__):
        return True
    if status not in (None, 400, 429):
        return False
    return bool(_TOO_LARGE.search(_said(error))) or (status == 429 and sizes(error) is not None)


def sizes(error: BaseException) -> tuple[int, int] | None:
    """Return the tokens that a request asked for and the fewer that are taken, where the provider says so."""
    said = _said(error)
    for words in _SIZES:
        if found := words.search(said):
            given = {name: int(number.replace(",", "")) for name, number in found.groupdict().items()}
            taken = given.pop("taken")
            return (sum(given.values()), taken) if sum(given.values()) > taken else None
    return None


def _said(error: BaseException) -> str:
    """Return the beginning of what the provider said; what follows may repeat the request, whatever that is about."""
    named = _named(error)
    if not isinstance(named.get("message"), str):
        return str(error)[:_TOLD]
    return " ".join(str(named.get(key)) for key in ("code", "type", "message"))[:_TOLD]


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that the provider asked to wait: Retry-After as seconds or as a date."""
    headers: Any = getattr(getattr(error, "response", None), "headers", None) or {}
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return float(milliseconds) / 1000
        return None if value is None else float(value)
    except ValueError:
        return _seconds_until(value)


def _seconds_until(date: str | None) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date or "").timestamp() - time())
    except ValueError:
        return None


def retrying(attempts: int, on_wait: Callable[[float, BaseException], None]) -> AsyncRetrying:
    """Return the retry loop: ``attempts`` in all, backoff with jitter, never sooner than Retry-After.

    ``on_wait`` is told the seconds and the fault before each pause. The last fault is raised as it is.
    """
    return AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=_wait,
        retry=retry_if_exception(is_transport),
        before_sleep=lambda state: on_wait(_pause(state), _fault(state)),
        reraise=True,
    )


def _wait(state: RetryCallState) -> float:
    asked = retry_after(_fault(state))
    return asked if asked and asked > 0 else _backoff(state)


def _fault(state: RetryCallState) -> BaseException:
    fault = state.outcome.exception() if state.outcome else None
    return fault or RuntimeError("retried without a fault")


def _pause(state: RetryCallState) -> float:
    return state.next_action.sleep if state.next_action else 0.0
