"""Components: the decisions of the machine that a user may replace, each a plain function, sync or async."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

from typing_extensions import override

from frames.errors import CactusError
from frames.frame import Frame
from nodes.models.call import CallPolicy, Query, call, run_callable
from nodes.models.reply import Reply, answer
from nodes.models.request import Request
from nodes.models.resolve import ModelLike, Models, default_name, name_of


class Ask(Protocol):
    """Asks a model on behalf of the frame and role at work; ``model`` overrides the role's own.

    ``nodes.asking.Asking`` is the one of a run; executors that use tools or files want it.
    """

    @property
    def frame(self) -> Frame | None:
        """The frame at work; ``None`` where a component is called by hand."""
        ...

    async def __call__(self, prompt: str, *, model: ModelLike | None = None) -> str:
        """Return the model's answer to ``prompt``."""
        ...

    async def reply(self, query: Query, *, model: ModelLike | None = None) -> Reply:
        """Return the model's reply to a prompt or conversation, with a schema or tools."""
        ...


class _Directly:
    @property
    def frame(self) -> Frame | None:
        return None

    async def __call__(self, prompt: str, *, model: ModelLike | None = None) -> str:
        return (await self.reply(Query(prompt), model=model)).text

    async def reply(self, query: Query, *, model: ModelLike | None = None) -> Reply:
        meant = default_name() if model is None else model
        reply = await call(Models().resolve(meant), query, Request("", "", 0, 1, query.text), CallPolicy())
        answer(reply, name_of(meant))
        return reply


ask_directly: Ask = _Directly()
"""Asks outside a run, where a component is called by hand."""


class ComponentError(CactusError):
    """A component gave something else than its Protocol says."""


class ModelComponent:
    """A built-in that asks a model: called with the component's arguments and ``ask``."""

    @property
    def model_calls(self) -> int:
        """Model calls that one use makes at most."""
        return 1

    def least_calls(self, searches: bool, attaches: bool) -> int:  # noqa: ARG002  # others need them
        """Return the model calls to reckon with for one use, in a run that has tools or documents, or files."""
        return 1


@dataclass(frozen=True)
class Stepwise(ModelComponent):
    """A built-in that goes on for some steps: it asks a model at most ``max_steps`` times."""

    model: ModelLike | None = None
    max_steps: int = 6

    @property
    @override
    def model_calls(self) -> int:
        return self.max_steps

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return min(self.max_steps, 2)


class PlainComponent:
    """A built-in that computes: called on the event loop, for it never blocks."""


async def use(component: Callable[..., Any], *args: Any, ask: Ask, **further: Any) -> Any:
    """Return what ``component`` gives for ``args``, whatever kind of function it is; built-ins get ``further`` too."""
    if isinstance(component, ModelComponent):
        return await cast("Any", component)(*args, ask=ask, **further)
    if isinstance(component, PlainComponent):
        return cast("Any", component)(*args)
    work = partial(run_callable, component, *args)
    return await ask.component(args, work) if isinstance(ask, Remembers) else await work()


@runtime_checkable
class Remembers(Protocol):
    """An ``Ask`` that writes down what a user's function gives, so that it is not called for the same again."""

    async def component(self, args: Sequence[Any], work: Callable[[], Awaitable[Any]]) -> Any: ...


def model_calls(component: Callable[..., Any]) -> int:
    """Return the most model calls that one use of ``component`` makes: 0 where it is the user's own code."""
    return component.model_calls if isinstance(component, ModelComponent) else 0


def least_calls(component: Callable[..., Any], *, searches: bool, attaches: bool) -> int:
    """Return the model calls to reckon with for one use of ``component``: 0 where it is the user's own code."""
    return component.least_calls(searches, attaches) if isinstance(component, ModelComponent) else 0
