"""Transport faults: which errors are worth trying again, and how long to wait before."""

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
    if "insufficient_quota" in (getattr(error, "code", None), getattr(error, "type", None)):
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
    body: Any = getattr(error, "body", None)
    event: Any = cast("dict[str, Any]", body).get("error", body) if isinstance(body, dict) else {}
    named = cast("dict[str, Any]", event) if isinstance(event, dict) else {}
    return any(str(named.get(key)) in _MIDWAY for key in ("type", "code"))


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
