"""Tools of MCP servers, by configuration: one session for each server and run."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from langchain_core.tools import BaseTool, StructuredTool

from frames.errors import UsageError
from frames.text import one_line
from nodes.tools.servers import check_servers
from nodes.tools.session import START_SECONDS, ServerSession

__all__ = ["McpSessions", "check_servers"]

Load = Callable[..., Awaitable[list[BaseTool]]]


class McpSessions:
    """The sessions with ``servers``, for one run and one event loop; ``close`` must be called at the end.

    Raises:
        UsageError: the configuration is wrong, as ``check_servers`` says.
    """

    def __init__(self, servers: Mapping[str, Any]) -> None:
        self._sessions = [ServerSession(name, server) for name, server in check_servers(servers).items()]
        self._lock = asyncio.Lock()
        self._tools: list[BaseTool] | None = None

    async def tools(self) -> list[BaseTool]:
        """Return the tools of all servers; the first use opens the sessions.

        A name that two servers give is preceded by the server's.

        Raises:
            UsageError: a server could not be started, or the package for it is missing.
        """
        async with self._lock:
            if self._tools is None:
                self._tools = await self._open()
            return list(self._tools)

    async def close(self) -> None:
        """End all sessions and the processes started for them. May be called again."""
        await asyncio.gather(*(session.close() for session in self._sessions))

    async def _open(self) -> list[BaseTool]:
        load = await asyncio.to_thread(_adapter)
        found = await asyncio.gather(*(_listed(session, load) for session in self._sessions), return_exceptions=True)
        faults = [each for each in found if isinstance(each, BaseException)]
        if faults:
            await self.close()
            raise faults[0]
        return _named({s.name: cast("list[BaseTool]", tools) for s, tools in zip(self._sessions, found, strict=True)})


async def _listed(session: ServerSession, load: Load) -> list[BaseTool]:
    asking = asyncio.wait_for(load(session, handle_tool_errors=False), 2 * START_SECONDS)
    [tools] = await asyncio.gather(asking, return_exceptions=True)  # a server may answer anything
    if isinstance(tools, UsageError) or (isinstance(tools, BaseException) and not isinstance(tools, Exception)):
        raise tools
    if isinstance(tools, Exception):
        said = one_line(str(tools) or type(tools).__name__, 300)
        raise UsageError(f"MCP server {session.name!r} could not be started: it gave no list of tools ({said})")
    return tools


def _named(by_server: dict[str, list[BaseTool]]) -> list[BaseTool]:
    counts = Counter(tool.name for tools in by_server.values() for tool in tools)
    for server, tools in by_server.items():
        for tool in tools:
            name = f"{server}_{tool.name}" if counts[tool.name] > 1 else tool.name
            tool.name = re.sub(r"[^A-Za-z0-9_-]", "_", name)  # what providers take for a tool's name
            if isinstance(tool, StructuredTool) and isinstance(tool.args_schema, dict):
                tool.args_schema.setdefault("properties", {})  # LangChain looks for it in a tool without arguments
    return [tool for tools in by_server.values() for tool in tools]


def _adapter() -> Load:
    try:
        from langchain_mcp_adapters.tools import load_mcp_tools  # slow to import, and only needed here
    except ImportError as error:
        raise UsageError(f"MCP servers need a package: pip install 'cactus-solver[mcp]' ({error})") from error
    return cast("Load", load_mcp_tools)
