"""Running a tool for a model: what it gives is text, and what goes wrong is told as a failure."""

import asyncio
import contextvars
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool, ToolException
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel, TypeAdapter, ValidationError

from frames.text import cut

T = TypeVar("T")

LONGEST = 20_000
"""Characters of a result that a model is shown."""

_REMEDY = "Call it with other arguments, use another tool, or say that this could not be found out."
_LONGEST_FAULT = 2_000
_BLOCKS = {"text", "image", "image_url", "audio", "video", "file", "resource", "resource_link"}

_ASYNC = "_arun"  # whether a class has its own is the only sign of a tool that is asynchronous
_HANDED_ON = [getattr(kind, _ASYNC) for kind in (BaseTool, Tool, StructuredTool)]


class ToolOutcome(NamedTuple):
    """What a model is shown of a tool call; ``text`` begins with ``ERROR:`` where it is not ``ok``."""

    ok: bool
    text: str


async def run_tool(tool: BaseTool, arguments: dict[str, Any], timeout: float) -> ToolOutcome:  # noqa: ASYNC109
    """Return what ``tool`` gives within ``timeout`` seconds, or why it gives nothing.

    A synchronous tool runs in a thread of its own; past its time it is left behind there. Cancellation and
    LangGraph's own signals (interrupts) pass through.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            result = await _result(tool, arguments)
        text, failed = _text(result), _is_failure(result)
    except GraphBubbleUp:
        raise
    except TimeoutError as error:
        said = f"gave nothing within {timeout:g} seconds" if limit.expired() else _failure(error)
        return _error(tool, said)
    except Exception as error:  # noqa: BLE001  # a tool is foreign code: whatever it raises is told to the model
        return _error(tool, _failure(error))
    if failed:
        return _error(tool, f"failed: {text}")
    if not text.strip():
        return _error(tool, "gave an empty result")
    return ToolOutcome(True, _shown(text))


async def _result(tool: BaseTool, arguments: dict[str, Any]) -> Any:
    """Return what the tool gives.

    A tool that turns its own exceptions into texts must be called as a model calls it: the message that comes back
    has a status, where the text alone would pass for an answer.
    """
    given: Any = arguments
    if tool.handle_tool_error or tool.handle_validation_error:
        given = {"type": "tool_call", "id": "call", "name": tool.name, "args": arguments}
    if _is_async(tool):
        return await tool.ainvoke(given)
    return await _in_thread(lambda: tool.invoke(given))


def _is_async(tool: BaseTool) -> bool:
    own = getattr(type(tool), _ASYNC)
    return bool(getattr(tool, "coroutine", None)) if own in _HANDED_ON else True


async def _in_thread(work: Callable[[], T]) -> T:
    """Return what blocking ``work`` gives.

    The threads of ``asyncio.to_thread`` are waited for when the program ends: a tool that hangs would keep it.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[T] = loop.create_future()

    def tell(tell_it: Callable[[Any], None], value: object) -> None:
        if not done.done():
            tell_it(value)

    def run() -> None:
        try:
            outcome = done.set_result, context.run(work)
        except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
            outcome = done.set_exception, _as_exception(error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, *outcome)

    threading.Thread(target=run, name="cactus-tool", daemon=True).start()
    return await done


def _as_exception(error: BaseException) -> Exception:
    """Return ``error``, or another in place of what would end the loop (``sys.exit``) or a future refuses."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}".removesuffix(": "))


# What is said of failures


def _error(tool: BaseTool, said: str) -> ToolOutcome:
    said = said if len(said) <= _LONGEST_FAULT else cut(said, _LONGEST_FAULT) + "…"
    return ToolOutcome(False, f"ERROR: {tool.name} {said.rstrip()}\n{_REMEDY}")


def _failure(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ValidationError):
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}" for fault in error.errors()]
        return f"refused its arguments: {'; '.join(faults)}"
    if isinstance(error, ToolException) and str(error):
        return f"failed: {error}"  # written for a model to read
    return f"failed: {type(error).__name__}: {error}".removesuffix(": ")


def _is_failure(result: object) -> bool:
    return isinstance(result, ToolMessage) and result.status == "error"


# From a result to text


def _shown(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{cut(text, LONGEST)}\n[cut here: {LONGEST:,} of {len(text):,} characters are shown]"


def _text(result: Any) -> str:
    if isinstance(result, ToolMessage):
        return _text(cast("Any", result).content)
    if isinstance(result, str):
        return result
    if isinstance(result, bytes):
        return result.decode(errors="replace")
    if result is None or result in ([], (), {}):
        return ""
    if isinstance(result, list | tuple) and all(map(_is_block, cast("Sequence[Any]", result))):
        return "\n".join(_block_text(block) for block in cast("Sequence[dict[str, Any]]", result))
    return _json(cast("object", result))


def _is_block(item: object) -> bool:
    return isinstance(item, dict) and cast("dict[str, Any]", item).get("type") in _BLOCKS


def _block_text(block: dict[str, Any]) -> str:
    if isinstance(block.get("text"), str):
        return str(block["text"])
    kind, where = block.get("mime_type") or block["type"], block.get("url")
    return f"[{kind}: {where}]" if isinstance(where, str) and not where.startswith("data:") else f"[{kind}: not shown]"


def _json(result: object) -> str:
    if isinstance(result, BaseModel):
        return result.model_dump_json()
    plain = TypeAdapter(Any).dump_python(result, mode="json", fallback=str)  # dates, data classes, models inside
    return json.dumps(plain, ensure_ascii=False)
