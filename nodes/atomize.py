"""Atomize: decide whether a task is solved directly, or split first."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from nodes.asking import situation
from nodes.component import Ask, ComponentError, ModelComponent, PlainComponent, ask_directly, use
from nodes.models.call import Query
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node
from nodes.structured import Atomic, read_object, says, truth


class Atomizer(Protocol):
    """Decides whether a task is solved directly."""

    def __call__(self, task: str, depth: int, /) -> bool | Awaitable[bool]:
        """Return whether ``task`` at ``depth`` is atomic."""
        ...


@dataclass(frozen=True)
class DepthBased(PlainComponent):
    """Atomic once the depth is at least ``max_depth``."""

    max_depth: int

    def __call__(self, task: str, depth: int, /) -> bool:  # noqa: ARG002  # the Protocol's arguments
        return depth >= self.max_depth


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model; an answer that starts with "yes" means atomic."""

    model: ModelLike | None = None

    async def __call__(self, task: str, depth: int, /, *, ask: Ask = ask_directly) -> bool:
        return says_yes(await ask(render("atomize", task=task, depth=depth), model=self.model))


@dataclass(frozen=True)
class Structured(ModelComponent):
    """Asks a model for ``{"atomic": bool}`` (ROMA's atomizer); a reply that says neither means: let it be planned."""

    model: ModelLike | None = None

    async def __call__(self, task: str, depth: int, /, *, ask: Ask = ask_directly) -> bool:
        prompt = render("roma/atomize", task=task, depth=depth, **situation(ask))
        reply = await ask.reply(Query(prompt, schema=Atomic), model=self.model)
        found = read_object(reply, "atomic", "is_atomic") or {}
        said = truth(found.get("atomic", found.get("is_atomic"))) if found else says(reply.text)
        return bool(said)


def depth_based(max_depth: int) -> DepthBased:
    """Return an atomizer that calls a task atomic once ``depth >= max_depth``."""
    return DepthBased(max_depth)


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return an atomizer that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


def structured(model: ModelLike | None = None) -> Structured:
    """Return an atomizer that asks ``model`` for structured output."""
    return Structured(model)


def says_yes(answer: str) -> bool:
    """Whether ``answer`` starts with "yes": in any case, after any white space."""
    return answer.lstrip().lower().startswith("yes")


def looks_first(step: Step) -> bool:
    """Whether the frame is to be investigated before anything is decided: the root of an ``adaptive`` run, once."""
    frame, context = step.frame, step.context
    root = frame["depth"] == 0 and "findings" not in frame
    return root and context.profile == "adaptive" and context.components.investigator is not None


@node("atomize")
async def atomize(step: Step) -> Update:
    """Send the frame to ``solve`` where it is atomic or at the depth limit, else to ``decompose``.

    An agent's goes to ``act``.
    """
    frame, context = step.frame, step.context
    if context.profile == "agent":
        return step.go("act")
    if frame["depth"] >= context.max_depth or "tier" in frame:
        atomic = True
    elif looks_first(step):
        return step.go("investigate")
    else:
        atomizer = context.components.atomizer
        atomic = await use(atomizer, frame["task"], frame["depth"], ask=step.ask)
        if isinstance(atomic, str):  # "no" would mean yes
            raise ComponentError("the atomizer returned str, not a bool")
    return step.go("solve" if atomic else "decompose")
