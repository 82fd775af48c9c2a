"""The context of a run: its settings, and the components, models and clock that nodes reach the world by."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import PrivateAttr

from nodes.models.resolve import Models, default_name
from nodes.settings import Settings

if TYPE_CHECKING:
    from nodes.aggregate import Aggregator
    from nodes.atomize import Atomizer
    from nodes.decompose import Decomposer
    from nodes.retry import Retry
    from nodes.solve import Executor
    from nodes.verify import Verifier


@dataclass(frozen=True)
class Components:
    """One function for each decision of the machine."""

    atomizer: "Atomizer"
    decomposer: "Decomposer"
    executor: "Executor"
    aggregator: "Aggregator"
    verifier: "Verifier"
    retry: "Retry"


class Context(Settings):
    """The settings of a run, and what they are turned into.

    LangGraph builds one from plain JSON where a server runs the graph; Python users bring their components by
    ``with_components``.
    """

    _components: Components | None = PrivateAttr(None)
    _models: Models | None = PrivateAttr(None)
    _clock: Callable[[], float] = PrivateAttr(time.time)

    def with_components(
        self, components: Components, models: Models | None = None, clock: Callable[[], float] | None = None
    ) -> Self:
        """Return the same settings with the given components, models and clock (seconds since the epoch)."""
        copy = self.model_copy()
        copy._components = components  # noqa: SLF001  # its own class
        copy._models = models  # noqa: SLF001
        copy._clock = clock or self._clock  # noqa: SLF001
        return copy

    @property
    def components(self) -> Components:
        """The components, built from the settings where none were given."""
        if self._components is None:
            self._components = _built_in(self)
        return self._components

    @property
    def models(self) -> Models:
        """The models in use."""
        if self._models is None:
            self._models = Models(self.call_timeout)
        return self._models

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self._clock()

    def model_name(self, role: str) -> str:
        """Return the name of the model that plays ``role``.

        Raises:
            UsageError: none is named and none is at hand.
        """
        return self.role_models.get(role) or self.model or default_name()


def _built_in(settings: Settings) -> Components:
    """Return the components that the settings name, each asking the run's model for its role."""
    from nodes import aggregate, atomize, decompose, retry, solve, verify  # they import this module

    depth: Any = settings.atomizer_depth
    return Components(
        atomizer=atomize.llm_based() if depth is None else atomize.depth_based(depth),
        decomposer=decompose.llm_based(max_subtasks=settings.max_subtasks),
        executor=solve.direct(),
        aggregator=aggregate.llm_based(),
        verifier=verify.llm_based() if settings.verifier == "llm" else verify.always_accept(),
        retry=retry.with_feedback if settings.feedback_on_retry else retry.same_task,
    )
