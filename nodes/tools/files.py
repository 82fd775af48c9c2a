"""Tools that list, search and read the files below a folder, and the words in which files are shown to a model."""

import asyncio
from collections.abc import Callable, Sequence

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from frames.findings import plain_path, shown_path
from frames.text import clean, cut
from nodes.tools.tree import Tree
from nodes.tools.unreadable import UnreadableError

LIST, SEARCH, READ = "list_files", "search_files", "read_file"
TREE_TOOLS = (LIST, SEARCH, READ)

PAGE = 16_000
"""Characters that one use of ``read_file`` returns at most."""

MOST_LISTED = 200
_LONGEST_LINE = 400


def file_tools(root: Callable[[], Tree | None]) -> list[BaseTool]:
    """Return the tools over the tree that ``root`` gives, which is asked for at every use, off the event loop."""

    def tree() -> Tree:
        found = root()
        if found is None:
            raise ToolException("this run has no root")
        return found

    async def list_files(folder: str = "") -> str:
        return await asyncio.to_thread(lambda: listed(tree(), folder))

    async def search_files(text: str, folder: str = "") -> str:
        return await asyncio.to_thread(lambda: _found(tree(), text, folder))

    async def read_file(path: str, start: int = 1) -> str:
        try:
            plain = plain_path(path)
            return await asyncio.to_thread(lambda: numbered(plain, tree().read(plain), start, PAGE))
        except UnreadableError as error:
            raise ToolException(f"{shown_path(path)}: {error}") from error

    return [
        StructuredTool.from_function(
            coroutine=list_files, name=LIST, description="List the files below `folder`; all of them without it."
        ),
        StructuredTool.from_function(
            coroutine=search_files,
            name=SEARCH,
            description="Find the lines that hold `text`, in any case, in the files below `folder`; all without it.",
        ),
        StructuredTool.from_function(
            coroutine=read_file, name=READ, description="Read a file from line `start` on, with its lines numbered."
        ),
    ]


def numbered(path: str, text: str, start: int, most: int) -> str:
    """Return a file's lines from ``start`` on, numbered, in at most ``most`` characters; what is cut says so.

    Raises:
        UnreadableError: it has no such line.
    """
    lines = clean(text).splitlines()
    start = max(start, 1)
    if not lines:
        return f"[file: {shown_path(path)}] (empty)"
    if start > len(lines):
        raise UnreadableError(f"it has {len(lines)} lines: there is no line {start}")
    shown, room = list[str](), most
    for number, line in enumerate(lines[start - 1 :], start):
        entry = f"{number}: {_short(line)}"
        room -= len(entry) + 1
        if room < 0 and shown:
            break
        shown.append(entry)
    end = start + len(shown) - 1
    rest = f"\n(cut: these are lines {start} to {end} of {len(lines)}; {READ} reads on)" if end < len(lines) else ""
    return f"[file: {shown_path(path)}] (lines {start} to {end} of {len(lines)})\n" + "\n".join(shown) + rest


def listed(tree: Tree, folder: str = "") -> str:
    """Return the files below a folder, one a line; of many, the first and how many each folder holds."""
    files = tree.below(folder)
    left_out = [f"{shown_path(clean(path))}: {why}" for path, why in tree.listing().left_out.items()]
    if not files:
        return _with("There is no file below this folder.", left_out)
    if len(files) <= MOST_LISTED:
        return _with("\n".join(map(shown_path, files)), left_out)
    counts: dict[str, int] = {}
    for path in files:
        counts[path.rpartition("/")[0]] = counts.get(path.rpartition("/")[0], 0) + 1
    folders = [f"{shown_path(name or '.')}/ ({count} files)" for name, count in counts.items()]
    head = [*map(shown_path, files[:MOST_LISTED]), f"… and {len(files) - MOST_LISTED} more files; by folder:"]
    return _with("\n".join([*head, *_first(folders)]), left_out)


def _with(text: str, left_out: Sequence[str]) -> str:
    return "\n".join([text, "Left out:", *_first(left_out)]) if left_out else text


def _first(entries: Sequence[str], most: int = 50) -> list[str]:
    return [*entries[:most], *([f"… and {len(entries) - most} more"] if len(entries) > most else [])]


def _found(tree: Tree, text: str, folder: str) -> str:
    if not text.strip():
        raise ToolException("an empty text is in every line: name something to search for")
    hits, stopped = tree.search(text, folder)
    lines = [f"{shown_path(hit.path)}:{hit.line}: {_short(clean(hit.text).strip())}" for hit in hits]
    return "\n".join([*(lines or ["No line holds this text."]), *([f"({stopped})"] if stopped else [])])


def _short(line: str) -> str:
    return line if len(line) <= _LONGEST_LINE else f"{cut(line, _LONGEST_LINE)}… (line cut)"
