"""Investigate: look at what a task touches before it is split; the root of an ``adaptive`` run."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from typing_extensions import override

from frames.errors import CallError
from frames.findings import Findings, FindingsError, FoundFile, LeftOut, findings_of, plain_path
from nodes.asking import Asking, within_run
from nodes.component import Ask, ModelComponent, ask_directly, use
from nodes.executors.looking import look
from nodes.mentions import mentioned
from nodes.models.call import Query, run_callable
from nodes.models.reply import Reply
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node
from nodes.structured import Investigation, read_object
from nodes.tools.files import TREE_TOOLS, listed


class Investigator(Protocol):
    """Finds out what a task touches."""

    def __call__(self, task: str, /) -> Findings | Mapping[str, Any] | Awaitable[Findings | Mapping[str, Any]]:
        """Return the findings: files (paths, or mappings of ``path``, ``why``, ``lines``), observations, left_out."""
        ...


@dataclass(frozen=True)
class FromText(ModelComponent):
    """Finds the files that the task's own words name or imply, looked up below the run's root where there is one."""

    @property
    @override
    def model_calls(self) -> int:
        return 0

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> Findings:
        work = within_run(ask)

        async def find() -> dict[str, Any]:
            return await run_callable(lambda: mentioned(task, work.context.resources.tree()).plain())

        asked = {"tool": "mentioned", "task": task, "root": work.context.root}
        return findings_of(await work.once("tool", asked, find))


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Has a model look at the files below the run's root, with tools, in at most ``max_steps`` calls.

    Paths that cannot be read are left out with the reason. A model that names no file, and a run without a root, fall
    back to ``FromText``. With one step the model is shown the listing alone.
    """

    model: ModelLike | None = None
    max_steps: int = 8

    @property
    @override
    def model_calls(self) -> int:
        return self.max_steps

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> Findings:
        work = within_run(ask)
        by_text = await FromText()(task, ask=work)
        if work.context.root is None:
            return by_text
        try:
            found = _read(await self._looked(work, task))
        except (CallError, FindingsError) as fault:
            work.notes.append(f"{work.frame['id']}: investigate: {fault}; the task's own words are gone by")
            return by_text
        if found is None or not found.files:
            found = found or Findings()
            told, left_out = (*found.observations, *by_text.observations), (*found.left_out, *by_text.left_out)
            return replace(by_text, observations=told, left_out=left_out)
        return await _checked(work, found)

    async def _looked(self, work: Asking, task: str) -> Reply:
        listing = str(await work.once("tool", {"tool": "listing", "root": work.context.root}, lambda: _listing(work)))
        about = {"task": task, "listing": listing, "steps": self.max_steps}
        if self.max_steps == 1:
            prompt = render("adaptive/investigate", **about, tools=[], native=False)
            return await work.reply(Query(prompt, schema=Investigation), model=self.model)
        tools = [tool for tool in await work.tools() if tool.name in TREE_TOOLS]

        def asked(native: bool) -> str:
            return render("adaptive/investigate", **about, tools=tools, native=native)

        return await look(work, tools, asked, self.max_steps, model=self.model, setting="investigate_steps")


def llm_based(model: ModelLike | None = None, max_steps: int = 8) -> LlmBased:
    """Return an investigator that has ``model`` (by default the run's) look, in at most ``max_steps`` calls."""
    return LlmBased(model, max_steps)


def from_text() -> FromText:
    """Return an investigator that goes by the task's own words, without a model."""
    return FromText()


async def _listing(work: Asking) -> str:
    def read() -> str:
        tree = work.context.resources.tree()
        return listed(tree) if tree else ""

    return await run_callable(read)


def _read(reply: Reply) -> Findings | None:
    """Return the findings that a reply gives; ``None`` where it is prose.

    Raises:
        FindingsError: it has files, but in no form that can be read.
    """
    found = read_object(reply, "files")
    if not found:
        return None
    findings = findings_of({**found, "left_out": [], "source": "model"}, "model")
    return replace(findings, files=tuple(replace(file, path=plain_path(file.path)) for file in findings.files))


async def _checked(work: Asking, found: Findings) -> Findings:
    """Return findings without the files that cannot be read, each left out with the reason."""

    def check() -> dict[str, str | None]:
        tree = work.context.resources.tree()
        return {file.path: tree.why_not(file.path) if tree else None for file in found.files}

    async def checked() -> dict[str, str | None]:
        return await run_callable(check)

    asked = {"tool": "readable", "files": [file.path for file in found.files]}
    faults = await work.once("tool", asked, checked)
    kept: tuple[FoundFile, ...] = tuple(file for file in found.files if not faults[file.path])
    left_out = tuple(LeftOut(path, fault) for path, fault in faults.items() if fault)
    return replace(found, files=kept, left_out=(*found.left_out, *left_out))


@node("investigate")
async def investigate(step: Step) -> Update:
    """Look at what the root's task touches: files are planned for at once, else the task goes on as any other."""
    investigator = step.context.components.investigator or FromText()
    findings = findings_of(await use(_plainly(investigator), step.frame["task"], ask=step.ask)).plain()
    step.emit({"event": "findings", "frame": step.frame["id"], **findings})
    return step.go("decompose" if findings["files"] else "atomize", findings=findings)


def _plainly(investigator: Any) -> Any:
    """Return a user's function so that what it gives is a JSON value, which the journal can hold."""
    if isinstance(investigator, ModelComponent):
        return investigator

    async def plainly(task: str) -> Any:
        return findings_of(await run_callable(investigator, task)).plain()

    return plainly
