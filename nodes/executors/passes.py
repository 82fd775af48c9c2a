"""Passes: the subtasks of a plan from findings, over files, and over all that the passes found."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool
from typing_extensions import override

from frames.findings import plain_path, shown_path
from nodes.asking import Asking, within_run
from nodes.component import Ask, ModelComponent, Stepwise, ask_directly, least_calls, model_calls, use
from nodes.executors.brief import KNOWN_SHARE, whole_or_cut
from nodes.executors.looking import FINAL, look
from nodes.executors.reading import readers
from nodes.executors.think import conclusion
from nodes.prompt import render
from nodes.structured import without_reasoning
from nodes.tools.files import READ, TREE_TOOLS

_PLACE = re.compile(r"[^\s`'\"()\[\],;]+:\d{1,9}(?:-\d{1,9})?")
_SHOWN = re.compile(r"^\[file: (.+)\] \(lines (\d+) to (\d+) of (\d+)\)$", re.MULTILINE)
MOST_PLACES = 20


class PerFile(Stepwise):
    """Gives a model the numbered lines of the frame's files, and tools to look further, at most ``max_steps`` calls.

    The files share half of the model's window; what is cut says so. An answer that names no place in them gets the
    lines that were read behind it; a line that it names and that its file does not have is noted.
    """

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        files = await _texts(work, work.frame.get("files", []))
        answer = await _answered(
            work, self, "adaptive/per_file", task=task, files=files, example=f"{_example(work)}:12"
        )
        _note_missing(work, answer, files)
        read = [f"{path}:{start}-{end}" for path, start, end, _ in _shown(files)]
        return with_places(answer, work.frame.get("files", []), read, "Lines read")


class CrossFile(Stepwise):
    """Has a model integrate what the passes found, which the task's text holds, citing files and lines.

    An answer that cites no place gets those of the passes behind it. Without a call of a model, the files that it
    cites are read again: a line that its file does not have is noted.
    """

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        paths = work.frame.get("files", [])
        answer = await _answered(work, self, "adaptive/cross_file", task=task)
        cited = [place for result in work.frame["known"] for place in places(result["answer"], paths)]
        named = [path for path in paths if places(answer, [path])]
        _note_missing(work, answer, await _texts(work, named))
        return with_places(answer, paths, cited, "Places named by the passes")


@dataclass(frozen=True)
class Tiered(ModelComponent):
    """Chooses by the frame's tier: a pass over files, the integration, or ``other`` for any other task."""

    per_file: PerFile
    cross_file: CrossFile
    other: Any

    @property
    @override
    def model_calls(self) -> int:
        return max(map(model_calls, (self.per_file, self.cross_file, self.other)))

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return least_calls(self.other, searches=searches, attaches=attaches)

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        tier = work.frame.get("tier")
        chosen = self.per_file if tier == "per_file" else self.cross_file if tier == "cross_file" else self.other
        return await use(chosen, task, ask=work)


def places(text: str, paths: Sequence[str]) -> list[str]:
    """Return the places (``path:line``) in ``text`` that lie in one of the files, each once."""
    known = {shown_path(path).strip('"') for path in paths}
    found = [match.lstrip("*_<") for match in _PLACE.findall(text)]
    return list(dict.fromkeys(place for place in found if _is_in(place.rpartition(":")[0], known)))


def with_places(answer: str, paths: Sequence[str], seen: Sequence[str], said: str) -> str:
    """Return ``answer`` with the places it was made from behind it, where it names none in the files."""
    if not seen or places(answer, paths):
        return answer
    more = f", and {len(seen) - MOST_PLACES} more" if len(seen) > MOST_PLACES else ""
    return f"{answer}\n\n{said}: {', '.join(dict.fromkeys(seen[:MOST_PLACES]))}{more}"


def _is_in(path: str, known: set[str]) -> bool:
    """Whether a path is one of the files, or the end of one: models leave folders out."""
    return path in known or any(name.endswith(f"/{path}") for name in known)


def _shown(texts: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """Return path, first, last and count of lines of the files that were read as ``texts``."""
    return [found for text in texts for found in _SHOWN.findall(text)]


def _note_missing(work: Asking, answer: str, texts: Sequence[str]) -> None:
    """Note the places in ``answer`` that lie behind the end of the files that were read as ``texts``."""
    shown = _shown(texts)
    for place in places(answer, [plain_path(path) for path, *_ in shown]):
        path, _, lines = place.rpartition(":")
        count = max(int(count) for name, *_, count in shown if _is_in(path, {name.strip('"')}))
        if max(map(int, lines.split("-"))) > count:
            work.notes.append(f"{work.frame['id']}: {place} is cited, and that file has {count} lines")


def _example(work: Asking) -> str:
    return shown_path(next(iter(work.frame.get("files", [])), "a.py"))


async def _answered(work: Asking, component: Stepwise, template: str, **about: Any) -> str:
    found = [tool for tool in await work.tools() if tool.name in TREE_TOOLS]
    tools: list[BaseTool] = [*found, *await readers(work)] if component.max_steps > 1 else []

    def asked(native: bool) -> str:
        return render(template, **about, tools=tools, native=native, steps=component.max_steps)

    if not tools:
        reply = await work(asked(False), model=component.model)
    else:
        reply = (await look(work, tools, asked, component.max_steps, model=component.model)).text
    text = without_reasoning(reply) or reply.strip()
    final = FINAL.search(text)
    return conclusion(text[final.end() :] if final else text)


async def _texts(work: Asking, paths: Sequence[str]) -> list[str]:
    """Return the numbered lines of files, read once; a file that cannot be read says why."""
    if work.context.root is None:
        return [f"[file: {shown_path(path)}] (its text is not at hand: this run has no root)" for path in paths]
    reader = next(tool for tool in await work.context.resources.tools() if tool.name == READ)
    room = int(work.context.window * KNOWN_SHARE * 4) // max(len(paths), 1)
    texts = [await work.use_tool(reader, READ, {"path": path}) for path in paths]
    return [whole_or_cut(text, room) for text in texts]
