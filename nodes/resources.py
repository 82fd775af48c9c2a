"""What executors reach the world by: tools, documents, attached files and the sandbox, opened when first used."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_core.tools import BaseTool

from frames.errors import UsageError
from frames.text import clean
from nodes.artifacts import READER, Artifact, Artifacts
from nodes.settings import Settings

if TYPE_CHECKING:
    from nodes.sandbox.cells import Cells
    from nodes.sandbox.run import Sandbox
    from nodes.tools.docs import DocumentIndex, Passage
    from nodes.tools.mcp import McpSessions
    from nodes.tools.tree import Tree


class Resources:
    """The resources that ``settings`` name; ``tools`` are further ones, as objects. ``close`` ends them."""

    def __init__(self, settings: Settings, tools: tuple[BaseTool, ...] = ()) -> None:
        self._settings = settings
        self._given = tools
        self._lock = asyncio.Lock()
        self._tools: list[BaseTool] | None = None
        self._attached: list[Artifact] | None = None
        self._index: DocumentIndex | None = None
        self._tree: Tree | None = None
        self._mcp: McpSessions | None = None
        self._sandbox: Sandbox | None = None
        self._cells: Cells | None = None

    @property
    def searches(self) -> bool:
        """Whether there is anything to search with."""
        named = self._settings.docs or self._settings.root or self._settings.tools or self._settings.mcp_servers
        return bool(named or self._given)

    @property
    def attaches(self) -> bool:
        """Whether the user gave files to work on."""
        return bool(self._settings.attach)

    def means(self) -> list[str]:
        """Return in words what executors have at hand, for whoever plans."""
        settings = self._settings
        means = ["search: documents in a folder"] if settings.docs else []
        means += ["search: the files below a folder"] if settings.root else []
        names = [*(tool.name for tool in self._given), *settings.tools]
        means += [f"search: the tools {', '.join(names)}"] if names else []
        means += [f"search: the tools of {', '.join(settings.mcp_servers)}"] if settings.mcp_servers else []
        means += [f"code and search: the file {Path(file).name}" for file in settings.attach]
        return means

    async def open(self) -> None:
        """Open what a run would open on the way, so that a wrong name is refused before anything is spent.

        Raises:
            UsageError: a tool, server, folder or file that is not there; the message names it.
        """
        tools = await self.tools()
        await asyncio.to_thread(_check_files, self._settings.attach)
        if self._settings.root:
            await asyncio.to_thread(self.tree)
        _check_agents(self._settings, [tool.name for tool in tools])

    def tree(self) -> "Tree | None":
        """Return the files below the root, ``None`` where none is named. It may block.

        Raises:
            UsageError: the root is no folder.
        """
        if self._tree is None and self._settings.root:
            from nodes.tools.tree import Tree, root_of

            self._tree = Tree(root_of(self._settings.root))
        return self._tree

    async def tools(self) -> list[BaseTool]:
        """Return the tools: those given as objects, by name, by MCP server, and the search over documents."""
        async with self._lock:
            if self._tools is None:
                self._tools = await self._open_tools()
            return self._tools

    async def passages(self, query: str) -> "list[Passage]":
        """Return the passages of the documents that fit ``query`` best; none where no documents are given."""
        await self.tools()
        return await asyncio.to_thread(self._index.search, query) if self._index else []

    async def attached(self, artifacts: Artifacts) -> list[Artifact]:
        """Return the attached files, kept as artifacts when first asked for."""
        async with self._lock:
            if self._attached is None:
                files = [Path(name) for name in dict.fromkeys(self._settings.attach)]
                contents = [await asyncio.to_thread(file.read_bytes) for file in files]
                pairs = zip(files, contents, strict=True)
                self._attached = [await artifacts.put(content, clean(file.name), "0") for file, content in pairs]
            return self._attached

    def sandbox(self) -> "Sandbox":
        """Return the sandbox that programs run in."""
        if self._sandbox is None:
            from nodes.sandbox.run import SandboxLimits, default_sandbox

            self._sandbox = default_sandbox(SandboxLimits(seconds=self._settings.code_seconds))
        return self._sandbox

    def cells(self) -> "Cells":
        """Return what runs the code of agents."""
        if self._cells is None:
            from nodes.sandbox.cells import Cells

            self._cells = Cells(self._settings.cell_workers)
        return self._cells

    async def close(self) -> None:
        """End the sessions with MCP servers and the workers, and close the index."""
        if self._cells:
            await asyncio.to_thread(self._cells.close)
            self._cells = None
        if self._mcp:
            await self._mcp.close()
        if self._index:
            self._index.close()

    async def _open_tools(self) -> list[BaseTool]:
        tools = list(self._given)
        if self._settings.docs:
            from nodes.tools.docs import DocumentIndex, document_tools

            self._index = await asyncio.to_thread(DocumentIndex.build, Path(self._settings.docs))
            tools += document_tools(self._index)
        if self._settings.root:
            from nodes.tools.files import file_tools

            tools += file_tools(self.tree)
        if self._settings.tools:
            from nodes.tools.load import load_tools

            tools += await asyncio.to_thread(load_tools, self._settings.tools)
        if self._settings.mcp_servers:
            from nodes.tools.mcp import McpSessions

            self._mcp = McpSessions(self._settings.mcp_servers)
            tools += await self._mcp.tools()
        _refuse_doubles(tools)
        return tools


def _check_files(names: list[str]) -> None:
    seen: set[str] = set()
    for name in dict.fromkeys(names):
        if not Path(name).is_file():
            raise UsageError(f"there is no file {name} to attach")
        if Path(name).name in seen:
            raise UsageError(f"two attached files are called {Path(name).name}: rename one")
        seen.add(Path(name).name)


def _check_agents(settings: Settings, tools: list[str]) -> None:
    for agent in settings.named_agents:
        for name in agent.tools or ():
            if name not in tools:
                there = f"there are {', '.join(tools)}" if tools else "there is none; name some, or --root"
                raise UsageError(f"agent {agent.name!r} names the tool {name!r}, which this run does not have: {there}")


def _refuse_doubles(tools: list[BaseTool]) -> None:
    names = [READER, *(tool.name for tool in tools)]  # executors add the reader of artifacts
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two tools are called {name!r}: a model could not tell them apart; rename one")
