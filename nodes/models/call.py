"""One model call: a prompt in, a reply out, transport faults retried, a time-out kept."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable

from frames.errors import CactusError, CallError, TransportError
from frames.text import one_line
from nodes.models.local import LocalServer
from nodes.models.reply import Reply, from_message, from_text
from nodes.models.request import Request
from nodes.models.transport import is_transport, retry_after, retrying, status_of

PlainModel = Callable[[str], str] | Callable[[str], Awaitable[str]]
Model = Runnable[Any, Any] | LocalServer | PlainModel
"""A model that can be called: what a ``ModelLike`` is resolved to."""

_REMEDY = {
    401: "check the API key",
    403: "check that the key may use this model",
    404: "check the model's name and the endpoint's address",
    413: "the request is larger than the provider takes",
}


@dataclass(frozen=True)
class CallPolicy:
    """How a call is made: seconds that one attempt may take, attempts in all, and who is told of a pause."""

    timeout: float = 600
    attempts: int = 5
    on_wait: Callable[[float, str], None] = lambda _seconds, _reason: None


async def call(model: Model, prompt: str, request: Request, policy: CallPolicy) -> Reply:
    """Ask ``model`` and return its reply.

    Raises whatever the model's client raises, once ``policy.attempts`` are used up; ``explained`` says it in
    words.
    """
    async for attempt in retrying(policy.attempts, lambda seconds, fault: policy.on_wait(seconds, say(fault))):
        with attempt:
            async with asyncio.timeout(policy.timeout):
                return await _ask(model, prompt, request)
    raise TransportError("no attempt was made")  # not reached: the loop returns or raises


async def _ask(model: Model, prompt: str, request: Request) -> Reply:
    if isinstance(model, LocalServer):
        model = await asyncio.to_thread(model.chat_model)
    if isinstance(model, Runnable):
        config: Any = {
            "run_name": f"{request.role} {request.frame} attempt {request.attempt}",
            "metadata": {"frame": request.frame, "role": request.role, "attempt": request.attempt},
        }
        replied: object = await cast("Any", model).ainvoke([HumanMessage(prompt)], config)
        if isinstance(replied, BaseMessage):
            return from_message(prompt, replied)
        return from_text(prompt, _text(replied))
    return from_text(prompt, _text(await run_callable(model, prompt)))


def _text(reply: object) -> str:
    if not isinstance(reply, str):
        raise CallError(f"the model returned {type(reply).__name__}, not a text; a callable model gives str")
    return reply


async def run_callable(function: Callable[..., Any], *args: Any) -> Any:
    """Return what ``function`` gives, sync or async; a sync one runs in a thread, off the event loop."""
    try:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return await cast("Awaitable[Any]", function(*args))
        result = await asyncio.to_thread(_in_thread, function, *args)
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as end:  # it would end the event loop, and every run on it
        raise RuntimeError(f"raised {type(end).__name__}: {end}") from end


def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (StopIteration, GeneratorExit) as end:  # a future cannot hold it, and would never be done
        raise RuntimeError(f"raised {type(end).__name__}: {end}") from end


def say(fault: BaseException) -> str:
    """Return what a fault says, on one line, its HTTP status first."""
    status = status_of(fault)
    text = one_line(str(fault), 200) or type(fault).__name__
    return f"{status} {text}" if status and str(status) not in text else text


def explained(fault: Exception, name: str, policy: CallPolicy) -> CactusError:
    """Return what a fault of a model's client means, and what to do about it."""
    if isinstance(fault, CactusError):
        return fault
    tried = "1 attempt" if policy.attempts == 1 else f"{policy.attempts} attempts"
    if isinstance(fault, TimeoutError) and not str(fault):
        return TransportError(
            f"{name} gave no reply within {policy.timeout:g} s, in {tried}; raise call_timeout or use another model"
        )
    if is_transport(fault):
        limited = status_of(fault) == 429
        what = "kept to its rate limit" if limited else "could not be reached"
        remedy = "try later, or raise call_attempts" if limited else "check the endpoint's address and that it is up"
        return TransportError(f"{name} {what} ({tried}): {say(fault)}; {remedy}")
    status = status_of(fault)
    if status is None:
        return CallError(f"{name} failed: {type(fault).__name__}: {say(fault)}")
    pause = f"it asks to wait {retry_after(fault):g} s" if status == 429 and retry_after(fault) else None
    remedy = pause or _REMEDY.get(status, "see the provider's message")
    return CallError(f"{name} refused the request: {say(fault)}; {remedy}")
