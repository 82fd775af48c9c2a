"""Tools that search a folder of documents and read in it."""

import asyncio

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from frames.errors import UsageError
from frames.text import one_line
from nodes.tools.index import DocumentIndex, Passage

__all__ = ["DocumentIndex", "Passage", "document_tools"]

PAGE = 4_000
"""Characters that one use of ``read_document`` returns."""


def document_tools(index: DocumentIndex) -> list[BaseTool]:
    """Return the tools that search ``index`` and read on in one of its documents."""

    async def search_documents(query: str, limit: int = 5) -> str:
        found = await asyncio.to_thread(index.search, query, limit)
        return "\n\n".join(map(_shown, found)) or await asyncio.to_thread(_nothing, index, query)

    async def read_document(source: str, start: int = 0) -> str:
        try:
            return await asyncio.to_thread(_page, index, source, max(0, start))
        except UsageError as error:
            raise ToolException(str(error)) from error

    about = f"Search the user's {index.documents} documents: returns the passages that fit the query best."
    on = f"Read a document from character `start` on, {PAGE:,} at a time; `source` as a search names it."
    return [
        StructuredTool.from_function(coroutine=search_documents, name="search_documents", description=about),
        StructuredTool.from_function(coroutine=read_document, name="read_document", description=on),
    ]


def _shown(passage: Passage) -> str:
    return f"[source: {passage.source}] {passage.title} (from character {passage.start})\n{passage.text}"


def _nothing(index: DocumentIndex, query: str) -> str:
    names = index.sources()
    more = f", and {len(names) - 20} more" if len(names) > 20 else ""
    return (
        f"No passage matches {one_line(query, 200)!r}. Search again in other words, or read a document: "
        f"{', '.join(names[:20])}{more}"
    )


def _page(index: DocumentIndex, source: str, start: int) -> str:
    text, length = index.read(source, start, PAGE), index.length(source)
    if not text:
        raise UsageError(f"{source} has {length} characters: there are none from {start} on")
    end = start + len(text)
    on = f"; read on with start={end}" if end < length else ""
    return f"[source: {source}] (characters {start} to {end} of {length}{on})\n{text}"
