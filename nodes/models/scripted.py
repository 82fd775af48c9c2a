"""The scripted model: a chat model that answers from a file, by the frame, role and attempt that ask."""

import asyncio
import hashlib
import json
import math
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import httpx
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from typing_extensions import override

from frames.errors import RefusedError, ReplyCutError, UsageError
from frames.text import one_line
from nodes.models.request import Request, current_request
from nodes.models.script import LONGEST_LATENCY, Rule, Script, check_script, read_script

_ENDPOINT = "http://scripted.invalid/v1/chat/completions"
_REFUSAL = "The scripted model declines to answer."
_STUMP = "An answer that was to go on, but"
_SHORT_SLEEP = 0.05


class _Uses:
    """How often each rule with ``times`` has answered. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}

    def take(self, rule: int, times: int | None) -> bool:
        """Count one use of ``rule``, unless it was used ``times`` times already: then return False."""
        if times is None:
            return True
        with self._lock:
            used = self._counts.get(rule, 0)
            self._counts[rule] = min(used + 1, times)
            return used < times


class ScriptedChatModel(BaseChatModel):
    """A chat model whose replies, faults and delays come from a script.

    A request is answered by the first rule whose conditions hold for the frame, role and attempt of
    ``current_request``; outside a run the frame and role are "", the task is the last human message.
    The same script and the same requests give the same replies and usage.
    """

    script: Script = Field(exclude=True, repr=False)
    model_name: str = "scripted"
    _uses: _Uses = PrivateAttr(default_factory=_Uses)
    _log_lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @classmethod
    def from_file(cls, path: str | Path) -> "ScriptedChatModel":
        """Return the model that a YAML or JSON file describes.

        Raises:
            UsageError: the file cannot be read or is no script, or its log cannot be written.
        """
        return cls._built(read_script(Path(path)))

    @classmethod
    def from_script(cls, script: Mapping[str, Any], folder: Path = Path()) -> "ScriptedChatModel":
        """Return the model that ``script`` describes; its log is relative to ``folder``.

        Raises:
            UsageError: it is no script, or its log cannot be written.
        """
        return cls._built(check_script(script, folder, "the script"))

    @classmethod
    def _built(cls, script: Script) -> "ScriptedChatModel":
        if script.log:
            _append(script.name, script.log, b"")
        return cls(script=script, cache=False)  # a cache knows messages only, not the frame

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model itself: a script calls no tool."""
        return self

    @override
    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """Return a model whose replies are JSON objects that fit ``schema``.

        Args:
            schema: a pydantic class gives its instances; a TypedDict or a JSON schema gives dicts.
            include_raw: give ``{"raw", "parsed", "parsing_error"}`` and never raise for a bad reply.
            kwargs: ``method``, ``strict`` and the like: nothing here depends on them.

        Raises:
            TypeError: ``schema`` is neither a class nor a JSON schema. The returned model raises
                ``OutputParserException``, ``RefusedError`` or ``ReplyCutError``.
        """
        name = _schema_name(schema)

        def parse(message: AIMessage) -> Any:
            return _with_raw(schema, message) if include_raw else _parsed(schema, message)

        async def aparse(message: AIMessage) -> Any:
            return parse(message)

        parser: Any = RunnableLambda(parse, afunc=aparse, name=name)
        return cast("Runnable[LanguageModelInput, dict[str, Any] | BaseModel]", self.bind(structured=name) | parser)

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(self._answer(messages, kwargs.get("structured")))

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        return _result(await self._aanswer(messages, kwargs.get("structured")))

    @override
    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        yield from _chunks(self._answer(messages, kwargs.get("structured")))

    @override
    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in _chunks(await self._aanswer(messages, kwargs.get("structured"))):
            yield chunk

    def _answer(self, messages: list[BaseMessage], structured: str | None) -> AIMessage:
        asked = _Asked.of(messages, structured)
        rule, text = self._choose(asked)
        if rule and rule.error == "hang":
            _hang()
        if delay := self._delay(rule, asked.request):
            time.sleep(delay)
        message = _message(rule, text, asked)
        if self.script.log:
            self._write(asked)
        return message

    async def _aanswer(self, messages: list[BaseMessage], structured: str | None) -> AIMessage:
        asked = _Asked.of(messages, structured)
        rule, text = self._choose(asked)
        if rule and rule.error == "hang":
            await _ahang()
        if delay := self._delay(rule, asked.request):
            await asyncio.sleep(delay)
        message = _message(rule, text, asked)
        if self.script.log:
            await asyncio.to_thread(self._write, asked)
        return message

    def _choose(self, asked: "_Asked") -> tuple[Rule | None, str | None]:
        structured = asked.structured is not None
        for number, rule in enumerate(self.script.rules):
            if rule.holds(asked.request, asked.text) and self._uses.take(number, rule.times):
                return rule, rule.text(asked.request, structured)
        return None, self.script.unruled(asked.request, structured)

    def _delay(self, rule: Rule | None, request: Request) -> float:
        latency = rule.latency if rule and rule.latency else self.script.latency
        return latency.seconds(request)

    def _write(self, asked: "_Asked") -> None:
        assert self.script.log  # noqa: S101
        with self._log_lock:
            _append(self.script.name, self.script.log, asked.line(ended=time.monotonic()))


@dataclass(frozen=True)
class _Asked:
    """One request: on whose behalf, its messages and their text, schema and monotonic time."""

    request: Request
    messages: list[BaseMessage]
    text: str
    structured: str | None
    started: float

    @classmethod
    def of(cls, messages: list[BaseMessage], structured: str | None) -> "_Asked":
        request = current_request.get() or Request("", "", 0, 1, _last_human(messages))
        text = "\n".join(str(message.text) for message in messages)
        return cls(request, messages, text, structured, time.monotonic())

    def digest(self) -> str:
        """Return the sha256, in hex, of the messages' roles and contents and the schema's name."""
        asked: dict[str, Any] = {"messages": [{"role": m.type, "content": m.content} for m in self.messages]}
        if self.structured is not None:
            asked["schema"] = self.structured
        canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def line(self, ended: float) -> bytes:
        """Return the log's line for this request."""
        entry = {
            "frame": self.request.frame,
            "role": self.request.role,
            "attempt": self.request.attempt,
            "request": self.digest(),
            "started": self.started,
            "ended": ended,
        }
        return json.dumps(entry).encode() + b"\n"


def _last_human(messages: list[BaseMessage]) -> str:
    return next((str(message.text) for message in reversed(messages) if isinstance(message, HumanMessage)), "")


def _append(script: str, log: Path, line: bytes) -> None:
    """Append ``line`` in one write, made where it is missing.

    Raises:
        UsageError: the log cannot be written.
    """
    try:
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{script}: log: cannot write {str(log)!r}: {reason}; name a file that can be written"
        ) from error


def _message(rule: Rule | None, text: str | None, asked: _Asked) -> AIMessage:
    """Return the reply, or raise the transport fault that the rule asks for."""
    error = rule.error if rule else None
    if error == "refusal":
        refusal = {"refusal": text or _REFUSAL}
        return _reply(text or "", asked, "content_filter", refusal)
    if error == "length":
        return _reply(_cut(text or _STUMP), asked, "length")
    if rule and error:
        raise _fault(error, rule.retry_after)
    return _reply(text or "", asked, "stop")


def _reply(text: str, asked: _Asked, finish: str, extra: dict[str, Any] | None = None) -> AIMessage:
    return AIMessage(
        content=text,
        additional_kwargs=extra or {},
        response_metadata={"finish_reason": finish, "model_name": "scripted"},
        usage_metadata=_usage(asked.text, text),
    )


def _cut(text: str) -> str:
    return text[: (len(text) + 1) // 2]


def _usage(question: str, answer: str) -> UsageMetadata:
    given, got = math.ceil(len(question) / 4), math.ceil(len(answer) / 4)
    return UsageMetadata(input_tokens=given, output_tokens=got, total_tokens=given + got)


def _fault(error: str, retry_after: float | None) -> httpx.HTTPError:
    request = httpx.Request("POST", _ENDPOINT)
    if error == "timeout":
        return httpx.ReadTimeout("scripted: the reply took too long", request=request)
    if error == "connection":
        return httpx.ConnectError("scripted: no connection", request=request)
    status, said = (429, "too many requests") if error == "rate_limit" else (503, "service unavailable")
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(f"scripted: {status} {said}", request=request, response=response)


def _hang() -> NoReturn:
    end = time.monotonic() + LONGEST_LATENCY
    while time.monotonic() < end:
        time.sleep(_SHORT_SLEEP)
    raise _fault("timeout", None)


async def _ahang() -> NoReturn:
    await asyncio.sleep(LONGEST_LATENCY)
    raise _fault("timeout", None)


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])


def _chunks(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    """Yield ``message`` word by word; what is known at its end only comes with the last chunk."""
    words = re.findall(r"\S+\s*|\s+", str(message.text)) or [""]
    for word in words[:-1]:
        yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    last = AIMessageChunk(
        content=words[-1],
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )
    yield ChatGenerationChunk(message=last)


def _schema_name(schema: Any) -> str:
    if isinstance(schema, type):
        return schema.__name__
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema: must be a class or a JSON schema, not {one_line(repr(schema), 80)}")
    named = cast("Mapping[str, Any]", schema)
    return str(named.get("title") or named.get("name") or "schema")


def _with_raw(schema: Any, message: AIMessage) -> dict[str, Any]:
    try:
        return {"raw": message, "parsed": _parsed(schema, message), "parsing_error": None}
    except (OutputParserException, RefusedError, ReplyCutError) as error:
        return {"raw": message, "parsed": None, "parsing_error": error}


def _parsed(schema: Any, message: AIMessage) -> Any:
    """Return the object that ``message`` holds, an instance of ``schema`` where that is a pydantic class.

    Raises:
        RefusedError: the model declined.
        ReplyCutError: the reply was cut off.
        OutputParserException: the reply is no JSON object, or does not fit.
    """
    finish = message.response_metadata.get("finish_reason")
    if finish == "content_filter":
        raise RefusedError(f"the scripted model declined: {message.additional_kwargs.get('refusal')}")
    if finish == "length":
        raise ReplyCutError("the scripted model's reply was cut off at its length limit")
    return _fitted(schema, _object(str(message.text)), str(message.text))


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _misfit(text, "is no JSON; give the rule a `json`") from error
    if not isinstance(value, dict):
        raise _misfit(text, "is no JSON object; give the rule a `json` that is a mapping")
    return cast("dict[str, Any]", value)


def _fitted(schema: Any, value: dict[str, Any], text: str) -> Any:
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return value
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise _misfit(text, f"does not fit {schema.__name__}: {one_line(str(error), 300)}") from error


def _misfit(text: str, fault: str) -> OutputParserException:
    return OutputParserException(f"the scripted reply {one_line(text, 200)!r} {fault}", llm_output=text)
