"""Components: the decisions of the machine that a user may replace, each a plain function, sync or async."""

from collections.abc import Callable
from typing import Any, Protocol, cast

from frames.errors import CactusError
from nodes.models.call import CallPolicy, call, run_callable
from nodes.models.reply import answer
from nodes.models.request import Request
from nodes.models.resolve import ModelLike, Models, default_name, name_of


class Ask(Protocol):
    """Asks a model on behalf of the frame and role at work; ``model`` overrides the role's own."""

    async def __call__(self, prompt: str, *, model: ModelLike | None = None) -> str:
        """Return the model's answer to ``prompt``."""
        ...


async def ask_directly(prompt: str, *, model: ModelLike | None = None) -> str:
    """Ask outside a run, where a component is called by hand."""
    meant = default_name() if model is None else model
    reply = await call(Models().resolve(meant), prompt, Request("", "", 0, 1, prompt), CallPolicy())
    return answer(reply, name_of(meant))


class ComponentError(CactusError):
    """A component gave something else than its Protocol says."""


class ModelComponent:
    """A built-in that asks a model: called with the component's arguments and ``ask``."""

    model_calls = 1
    """Model calls that one use makes."""


class PlainComponent:
    """A built-in that computes: called on the event loop, for it never blocks."""


async def use(component: Callable[..., Any], *args: Any, ask: Ask) -> Any:
    """Return what ``component`` gives for ``args``, whatever kind of function it is."""
    if isinstance(component, ModelComponent):
        return await cast("Any", component)(*args, ask=ask)
    if isinstance(component, PlainComponent):
        return cast("Any", component)(*args)
    return await run_callable(component, *args)


def model_calls(component: Callable[..., Any]) -> int:
    """Return the model calls that one use of ``component`` makes: 0 where it is the user's own code."""
    return component.model_calls if isinstance(component, ModelComponent) else 0
