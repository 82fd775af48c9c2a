"""One session with one MCP server: opened at its first use, and opened again after the server died."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.tools import ToolException

from frames.errors import UsageError
from nodes.tools.link import GONE, Link

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult, ListToolsResult, TextContent

T = TypeVar("T")

START_SECONDS = 60.0
"""How long a server may take to answer first: ``npx`` and ``uvx`` may have to download it."""

PING_SECONDS = 10.0
"""How often a server that owes an answer over HTTP is asked whether it is still there."""

_END_SECONDS = 10.0
_CLOSED = "Connection closed", "Session terminated"  # how the protocol's library says that nobody is there


class ServerSession:
    """A session with the server ``name``; ``connection`` is what ``check_servers`` returned for it.

    It has the two methods of ``mcp.ClientSession`` that LangChain's adapter uses, so that its tools outlive a
    session that broke.
    """

    def __init__(self, name: str, connection: dict[str, Any]) -> None:
        self.name = name
        self._connection = connection
        self._lock = asyncio.Lock()
        self._link: Link | None = None
        self._links: set[Link] = set()
        self._closed = False

    async def list_tools(self, cursor: str | None = None) -> "ListToolsResult":
        """Return the server's tools."""
        from mcp.types import PaginatedRequestParams

        params = PaginatedRequestParams(cursor=cursor)
        return await self._ask(lambda session: session.list_tools(params=params))

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> "CallToolResult":
        """Return what a tool gave.

        Raises:
            ToolException: the server died or is gone; the next call starts it again.
            UsageError: it could not be started again.
        """
        result = await self._ask(lambda session: session.call_tool(name, arguments, **options))
        if not result.content and result.structuredContent is not None:
            return result.model_copy(update={"content": [_as_text(result.structuredContent)]})
        return result

    async def close(self) -> None:
        """End the session and the server's process, for good."""
        self._closed = True
        links = list(self._links)
        for link in links:
            link.end()
        tasks = [link.task for link in links]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, request: "Callable[[ClientSession], Awaitable[T]]") -> T:
        link = await self._open()
        call, watch = asyncio.ensure_future(request(link.ready.result())), asyncio.ensure_future(self._watch(link))
        try:
            # the library forgets whom it owes an answer when its session's task fails
            await asyncio.wait({call, watch, link.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered = call.done() and not call.cancelled()
            call.cancel()
            watch.cancel()
            await asyncio.gather(call, watch, return_exceptions=True)
        if not answered or _is_gone(call.exception()):
            raise await self._lost(link)
        return call.result()

    async def _watch(self, link: Link) -> None:
        """Return once the server is gone: over HTTP, the end of a connection that owes an answer tells nothing."""
        while True:
            await asyncio.sleep(PING_SECONDS)
            if "url" in self._connection:
                ping = asyncio.wait_for(link.ready.result().send_ping(), PING_SECONDS)
                [fault] = await asyncio.gather(ping, return_exceptions=True)
                if isinstance(fault, Exception) and _is_gone(fault):
                    return

    async def _open(self) -> Link:
        async with self._lock:
            if self._closed:
                raise ToolException(f"MCP server {self.name!r} was ended with the run")
            if self._link is None:
                self._link = await self._start()
            return self._link

    async def _start(self) -> Link:
        link = Link(self._connection)
        self._links.add(link)
        link.task.add_done_callback(lambda task: self._ended(link, task))
        try:
            await asyncio.wait({link.ready, link.task}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            slow = not link.task.done()
        finally:
            if not link.ready.done():
                link.end()
        if link.ready.done():
            return link
        await asyncio.wait({link.task}, timeout=_END_SECONDS)
        reason = f"no answer within {START_SECONDS:g} seconds" if slow else link.reason()
        raise UsageError(f"MCP server {self.name!r} could not be started: {reason}")

    def _ended(self, link: Link, task: asyncio.Task[None]) -> None:
        self._links.discard(link)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it when nothing asks for the reason

    async def _lost(self, link: Link) -> ToolException:
        if self._link is link:
            self._link = None
        link.end()
        await asyncio.wait({link.task}, timeout=_END_SECONDS)
        return ToolException(
            f"MCP server {self.name!r} ended ({link.reason()}). The next call starts it again, without its memory."
        )


def _as_text(structured: dict[str, Any]) -> "TextContent":
    from mcp.types import TextContent

    return TextContent(type="text", text=json.dumps(structured, ensure_ascii=False))


def _is_gone(error: BaseException | None) -> bool:
    from mcp import McpError

    if isinstance(error, McpError):
        return error.error.message in _CLOSED
    return isinstance(error, GONE)
