"""A model's reply: its text, what it cost, and whether it is an answer at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict

from frames.errors import RefusedError, ReplyCutError
from frames.text import clean, estimate_tokens, one_line

_CUT = {"length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded"}
_REFUSED = {
    *("content_filter", "content_filtered", "refusal", "guardrail_intervened"),
    *("safety", "prohibited_content", "blocklist", "recitation", "spii"),  # Google
}


@dataclass(frozen=True)
class Reply:
    """What one model call gave. ``estimated``: the model reported no usage. ``finish``: why it stopped.

    ``parsed`` is the object that a model with structured output of its own gave; ``message`` what a chat model
    said, with the tools that it calls.
    """

    text: str
    input_tokens: int
    output_tokens: int
    estimated: bool = False
    finish: str | None = None
    refusal: str | None = None
    parsed: dict[str, Any] | None = None
    message: AIMessage | None = None


def as_plain(reply: Reply) -> dict[str, Any]:
    """Return a reply as a JSON value, for the journal."""
    message = reply.message
    calls = message and (message.tool_calls or message.invalid_tool_calls)
    return {
        "text": reply.text,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "estimated": reply.estimated,
        "finish": reply.finish,
        "refusal": reply.refusal,
        "parsed": reply.parsed,
        "message": message_to_dict(message) if message and calls else None,
    }


def text_of(reply: Mapping[str, Any]) -> str:
    """Return what a reply, as a JSON value, says: its text, or the object that it gave, and the tools that it calls."""
    calls: Any = reply["message"] and reply["message"]["data"].get("tool_calls")
    given = [] if reply["text"] else [reply["parsed"]]
    said = [json.dumps(value, ensure_ascii=False, default=str) for value in (*given, calls) if value]
    return "\n".join([*([reply["text"]] if reply["text"] or not said else []), *said])


def from_plain(value: Mapping[str, Any]) -> Reply:
    """Return the reply that ``as_plain`` made a JSON value of; its message where it calls tools."""
    fields = {field: value[field] for field in Reply.__dataclass_fields__}
    message: Any = messages_from_dict([fields["message"]])[0] if fields["message"] else None
    return Reply(**{**fields, "message": message})


def from_text(prompt: str, text: str) -> Reply:
    """Return the reply of a plain callable, its usage estimated."""
    return Reply(clean(text), estimate_tokens(prompt), estimate_tokens(text), estimated=True)


def from_message(prompt: str, message: BaseMessage) -> Reply:
    """Return the reply that a chat model's message holds.

    Raises:
        ConnectionError: the stream ended before the reply did, which is a fault of transport.
    """
    text = str(message.text)
    usage: Any = message.usage_metadata if isinstance(message, AIMessage) else None
    metadata: dict[str, Any] = message.response_metadata
    finish = _finish(metadata)
    if not finish and metadata.get("model_provider") == "openai" and "model_name" not in metadata:
        raise ConnectionError("the connection ended before the reply did")  # the last chunk brings both
    return Reply(
        text=clean(text),
        input_tokens=usage["input_tokens"] if usage else estimate_tokens(prompt),
        output_tokens=usage["output_tokens"] if usage else estimate_tokens(text),
        estimated=not usage,
        finish=str(finish).lower() if finish else None,
        refusal=message.additional_kwargs.get("refusal"),
        message=message if isinstance(message, AIMessage) else None,
    )


def _finish(metadata: dict[str, Any]) -> Any:
    """Return why the model stopped, under whichever name its provider gives it."""
    incomplete: Any = metadata.get("incomplete_details") or {}
    names = ("finish_reason", "stop_reason", "stopReason", "done_reason")
    return next((metadata[name] for name in names if metadata.get(name)), None) or incomplete.get("reason")


def answer(reply: Reply, model: str) -> str:
    """Return the reply's text.

    Raises:
        ReplyCutError: it was cut off at its length limit.
        RefusedError: the model declined.
    """
    if reply.finish in _CUT:
        raise ReplyCutError(
            f"{model} cut its reply off at its length limit after {reply.output_tokens} tokens; "
            "allow longer replies, use another model, or split the task further"
        )
    if reply.refusal or reply.finish in _REFUSED:
        said = f": {one_line(str(reply.refusal or reply.text), 200).rstrip('.')}" if reply.refusal or reply.text else ""
        raise RefusedError(f"{model} declined to answer{said}; rephrase the task or use another model")
    return reply.text
