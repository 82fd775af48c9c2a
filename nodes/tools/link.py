"""One open connection with an MCP server, held by a task of its own."""

import asyncio
import contextvars
import logging
import re
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO, cast

import anyio

from frames.text import one_line

if TYPE_CHECKING:
    from mcp import ClientSession

GONE = anyio.ClosedResourceError, anyio.BrokenResourceError
"""How reading and writing fail where the other side is no more: which of the two is chance."""

_QUIET_SECONDS = 3600.0  # between two messages over HTTP; the time of a call is limited by whoever makes it
_LAST_BYTES = 2_000


class Link:
    """A session with a server, from its opening to its end, which a task of its own holds.

    The cancel scopes of the protocol's library must be entered and left by the same task. ``ready`` becomes the
    session; ``task`` is done when the session has ended, for whatever reason. Begins when made.
    """

    def __init__(self, connection: dict[str, Any]) -> None:
        self.ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        # a context of its own: it outlives the call, and so the run's tracing, that opened it
        self.task = asyncio.create_task(self._hold(connection), context=contextvars.Context())
        self._stop = asyncio.Event()
        self._said = ""  # the last line that the server's process wrote to its standard error

    def end(self) -> None:
        """Let the session end; it is cancelled where it has not begun."""
        if not self.ready.done() and not self._stop.is_set():
            self.task.cancel()  # once: a second one would cut the ending of the process short
        self._stop.set()

    def reason(self) -> str:
        """Return why the session is over: what its process wrote last, or what its task raised."""
        error = self.task.exception() if self.task.done() and not self.task.cancelled() else None
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if self._said and not isinstance(error, OSError):
            return f"it wrote: {one_line(self._said, 300)}"
        if error is None or isinstance(error, GONE):
            return "connection closed"
        text = str(error) or type(error).__name__
        return one_line(re.sub(r"(https?://[^\s'?]+)\?[^\s']*", r"\1", text), 300)  # a query may hold a key

    async def _hold(self, connection: dict[str, Any]) -> None:
        errors = cast("TextIO", await asyncio.to_thread(tempfile.TemporaryFile, "w+", errors="replace"))
        try:
            async with _connected(connection, errors) as session:
                await session.initialize()
                self.ready.set_result(session)
                await self._stop.wait()
        finally:
            self._said = await asyncio.to_thread(_last_line, errors)


@asynccontextmanager
async def _connected(connection: dict[str, Any], errors: TextIO) -> "AsyncGenerator[ClientSession]":
    from langchain_mcp_adapters.sessions import create_session
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    logging.getLogger("mcp").addHandler(logging.NullHandler())  # what matters comes as an exception
    if connection["transport"] != "stdio":
        patience = _QUIET_SECONDS if connection["transport"] == "sse" else timedelta(seconds=_QUIET_SECONDS)
        async with create_session(cast("Any", {**connection, "sse_read_timeout": patience})) as session:
            yield session
        return
    options = {key: value for key, value in connection.items() if key != "transport"}
    server = StdioServerParameters(**options, encoding_error_handler="replace")
    # not the adapter's own: it would write the server's remarks over the live view
    async with stdio_client(server, errlog=errors) as streams, ClientSession(*streams) as session:
        yield session


def _last_line(file: TextIO) -> str:
    with file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LAST_BYTES))
        lines = file.read().strip().splitlines()
    return lines[-1].strip() if lines else ""
