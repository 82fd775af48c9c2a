"""One model call: a prompt in, a reply out, transport faults retried, a time-out kept."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langsmith.run_helpers import get_current_run_tree
from pydantic import BaseModel

from frames.errors import CactusError, CallError, TooLargeError, ToolsRefusedError, TransportError
from frames.text import clean, estimate_tokens, one_line
from nodes.models.local import LocalServer
from nodes.models.plain import PlainChatModel
from nodes.models.reply import Reply, from_message, from_text
from nodes.models.request import Request
from nodes.models.scripted import ScriptedChatModel
from nodes.models.transport import is_transport, retry_after, retrying, sizes, status_of, too_large

PlainModel = Callable[[str], str] | Callable[[str], Awaitable[str]]
Model = Runnable[Any, Any] | LocalServer | PlainModel
"""A model that can be called: what a ``ModelLike`` is resolved to."""

_NO_SCHEMA = {400, 404, 405, 415, 422, 501}
"""What an endpoint answers where it does not know the form that it is asked for."""

_REMEDY = {
    401: "check the API key",
    403: "check that the key may use this model",
    404: "check the model's name and the endpoint's address",
}


@dataclass(frozen=True)
class Query:
    """What a model is asked: a prompt or a conversation, the form its reply must have, and the tools it may call."""

    messages: str | Sequence[BaseMessage]
    schema: type[BaseModel] | None = None
    tools: Sequence[BaseTool] = ()

    @property
    def text(self) -> str:
        """All that is said, as one text."""
        if isinstance(self.messages, str):
            return self.messages
        return "\n\n".join(str(message.text) for message in self.messages)


@dataclass(frozen=True)
class Refusals:
    """The models, by Python's id, whose endpoints were seen to take no schema, or no tools."""

    schemas: set[int] = field(default_factory=set[int])
    tools: set[int] = field(default_factory=set[int])


async def _ignore(_reply: Reply) -> None:
    pass


@dataclass(frozen=True)
class CallPolicy:
    """How a call is made.

    ``timeout`` is the seconds that one attempt may take, ``attempts`` their number; ``on_wait`` is told the
    seconds of a pause and the fault; ``place`` is held during an attempt; ``refusals`` collects what models' endpoints
    do not take; ``on_reply`` is given the reply while the place is still held; ``model`` is what traces call the model.
    """

    timeout: float = 600
    attempts: int = 5
    on_wait: Callable[[float, BaseException], None] = lambda _seconds, _fault: None
    place: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    refusals: Refusals = field(default_factory=Refusals)
    on_reply: Callable[[Reply], Awaitable[None]] = _ignore
    model: str = ""


async def call(model: Model, query: Query, request: Request, policy: CallPolicy) -> Reply:
    """Ask ``model`` and return its reply.

    Raises whatever the model's client raises, once ``policy.attempts`` are used up; ``explained`` says it in
    words.
    """
    async for attempt in retrying(policy.attempts, policy.on_wait):
        with attempt:
            async with policy.place():
                async with asyncio.timeout(policy.timeout):
                    reply = await _ask(model, query, request, policy)
                await policy.on_reply(reply)
                return reply
    raise TransportError("no attempt was made")  # not reached: the loop returns or raises


def calls_tools(model: Model) -> bool:
    """Whether ``model`` can be given tools; one that cannot is told of them in its prompt."""
    return isinstance(model, BaseChatModel) and not isinstance(model, ScriptedChatModel)


async def _ask(model: Model, query: Query, request: Request, policy: CallPolicy) -> Reply:
    if isinstance(model, LocalServer):
        model = await asyncio.to_thread(model.chat_model)
    config: Any = {
        "run_name": f"{request.role} {request.frame} attempt {request.attempt}",
        "metadata": {
            "frame": request.frame,
            "role": request.role,
            "attempt": request.attempt,
            "model": policy.model,
        },
    }
    if not isinstance(model, Runnable):
        return from_text(query.text, await _ask_callable(model, query.text, config))
    messages: list[BaseMessage] = (
        [HumanMessage(query.messages)] if isinstance(query.messages, str) else list(query.messages)
    )
    if query.schema and isinstance(model, BaseChatModel) and id(model) not in policy.refusals.schemas:
        structured = await _ask_structured(model, query.schema, messages, query.text, config)
        if structured:
            return structured
        policy.refusals.schemas.add(id(model))
    chat = cast("Any", model)
    asked: Any = chat.bind_tools(query.tools) if query.tools else chat
    replied: object = await _outcome(asked.ainvoke(messages, config))
    if isinstance(replied, BaseException):
        if not query.tools or not _form_refused(replied):
            raise replied
        policy.refusals.tools.add(id(chat))
        raise ToolsRefusedError(f"the endpoint takes no tools: {say(replied)}") from replied
    if isinstance(replied, BaseMessage):
        return from_message(query.text, replied)
    return from_text(query.text, _text(replied))


async def _ask_callable(function: PlainModel, text: str, config: Any) -> str:
    async def ask() -> str:
        return clean(_text(await run_callable(function, text)))

    if get_current_run_tree() is None:
        return await ask()
    traced = PlainChatModel(ask=ask, model_name=config["metadata"]["model"], cache=False)
    return str((await traced.ainvoke(text, config)).content)


def _cut(error: Any, asked: str) -> Reply:
    """Return the reply that was cut off, as far as the openai package's exception tells of it."""
    usage = getattr(getattr(error, "completion", None), "usage", None)
    given, got = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    counted = given is not None and got is not None
    return Reply("", given or estimate_tokens(asked), got or 0, estimated=not counted, finish="length")


async def _outcome(work: Awaitable[Any]) -> Any:
    """Return what ``work`` gives, or the exception it raises."""
    return (await asyncio.gather(work, return_exceptions=True))[0]


async def _ask_structured(
    model: BaseChatModel, schema: type[BaseModel], messages: list[BaseMessage], text: str, config: Any
) -> Reply | None:
    """Return the reply of a model with structured output of its own; ``None`` where it or its endpoint has none."""
    try:
        # as a JSON schema: of a pydantic class, the openai package loses a paid reply that does not fit it
        bound: Any = model.with_structured_output(schema.model_json_schema(), include_raw=True)
    except NotImplementedError:
        return None
    # each client has exceptions of its own, so that the fault is looked at as a value
    given = await _outcome(bound.ainvoke(messages, config))
    if isinstance(given, BaseException):
        if type(given).__name__ == "LengthFinishReasonError":  # of the openai package, which gives no message then
            return _cut(given, text)
        if isinstance(given, NotImplementedError) or _form_refused(given):
            return None
        raise given
    reply = from_message(text, given["raw"])
    parsed = given["parsed"]
    if parsed is None and reply.message and reply.message.tool_calls:
        return replace(reply, parsed=dict(reply.message.tool_calls[0]["args"]))
    return replace(reply, parsed=cast("dict[str, Any]", parsed)) if isinstance(parsed, dict) else reply


def _form_refused(fault: BaseException) -> bool:
    """Whether an endpoint may know no such form, so that the same can be asked without it."""
    return status_of(fault) in _NO_SCHEMA and not too_large(fault)


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


def _too_large(fault: Exception, name: str) -> TooLargeError:
    size = "it asks for {:,} tokens, where {:,} are taken: ".format(*found) if (found := sizes(fault)) else ""
    return TooLargeError(
        f"{name} takes no request of this size: {size}{say(fault)}; "
        "use a model with a larger window or limit, or lower window, so that the work is split further"
    )


def explained(fault: Exception, name: str, policy: CallPolicy) -> CactusError:
    """Return what a fault of a model's client means, and what to do about it."""
    if isinstance(fault, CactusError):
        return fault
    tried = "1 attempt" if policy.attempts == 1 else f"{policy.attempts} attempts"
    if isinstance(fault, TimeoutError) and not str(fault):
        return TransportError(
            f"{name} gave no reply within {policy.timeout:g} s, in {tried}; raise call_timeout or use another model"
        )
    if too_large(fault):
        return _too_large(fault, name)
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
