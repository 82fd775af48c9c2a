"""Atomize: decide whether a task is solved directly, or split first."""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from nodes.component import Ask, ComponentError, ModelComponent, PlainComponent, ask_directly, use
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node


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


def depth_based(max_depth: int) -> DepthBased:
    """Return an atomizer that calls a task atomic once ``depth >= max_depth``."""
    return DepthBased(max_depth)


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return an atomizer that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


def says_yes(answer: str) -> bool:
    """Whether ``answer`` starts with "yes": in any case, after any white space."""
    return answer.lstrip().lower().startswith("yes")


@node("atomize")
async def atomize(step: Step) -> Update:
    """Send the frame to ``solve`` where it is atomic or at the depth limit, else to ``decompose``."""
    frame, context = step.frame, step.context
    if frame["depth"] >= context.max_depth:
        atomic = True
    else:
        atomizer = context.components.atomizer
        atomic = await use(atomizer, frame["task"], frame["depth"], ask=step.ask)
        if isinstance(atomic, str):  # "no" would mean yes
            raise ComponentError("the atomizer returned str, not a bool")
    return step.go("solve" if atomic else "decompose")
