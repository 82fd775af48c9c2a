"""The context of a run: its settings, and the components, models and clock that nodes reach the world by."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from frames.errors import UsageError
from frames.frame import KINDS
from frames.state import Call
from nodes.admission import least_of
from nodes.budget import Budget
from nodes.change import Change
from nodes.event_log import EventLog
from nodes.journal import Journal
from nodes.models.prices import Prices
from nodes.models.resolve import ModelLike, Models, default_name, name_of
from nodes.resources import Resources
from nodes.settings import ROLES, Settings
from nodes.shared import Shared

if TYPE_CHECKING:
    from nodes.aggregate import Aggregator
    from nodes.atomize import Atomizer
    from nodes.decompose import Decomposer
    from nodes.investigate import Investigator
    from nodes.retry import Retry
    from nodes.solve import Executor
    from nodes.verify import Verifier


@dataclass(frozen=True)
class Components:
    """One function for each decision of the machine; an executor for each kind of task, under "" for any other."""

    atomizer: "Atomizer"
    decomposer: "Decomposer"
    executors: "Mapping[str, Executor]"
    aggregator: "Aggregator"
    verifier: "Verifier"
    retry: "Retry"
    investigator: "Investigator | None" = None

    def executor(self, kind: str | None) -> "Executor":
        """Return the executor for a kind of task."""
        return self.executors.get(kind or "") or self.executors[""]


class Context(Settings):
    """The settings of a run, and what they are turned into.

    LangGraph builds one from plain JSON where a server runs the graph; Python users bring their components by
    ``with_components``.
    """

    _components: Components | None = PrivateAttr(None)
    _models: Models | None = PrivateAttr(None)
    _clock: Callable[[], float] = PrivateAttr(time.time)
    _given: Mapping[str, list[ModelLike]] = PrivateAttr(default_factory=dict[str, list[ModelLike]])
    _resources: Resources | None = PrivateAttr(None)
    _tools: tuple[BaseTool, ...] = PrivateAttr(())
    _shared: Shared | None = PrivateAttr(None)
    _prices: Prices | None = PrivateAttr(None)
    _journal: Journal | None = PrivateAttr(None)
    _events: EventLog | None = PrivateAttr(None)
    _change: Change | None = PrivateAttr(None)

    def with_components(
        self,
        components: Components | None = None,
        models: Models | None = None,
        clock: Callable[[], float] | None = None,
        given: Mapping[str, list[ModelLike]] | None = None,
        tools: Sequence[BaseTool] = (),
    ) -> Self:
        """Return the same settings with what plain values cannot hold.

        Args:
            components: the decisions; by default those that the settings name.
            models: the models in use.
            clock: seconds since the epoch.
            given: models as objects, by role, under "" for every role.
            tools: tools as objects, for search tasks.
        """
        copy = self.model_copy()
        copy._components = components or self._components  # noqa: SLF001  # its own class
        copy._models = models  # noqa: SLF001
        copy._clock = clock or self._clock  # noqa: SLF001
        copy._given = given or self._given  # noqa: SLF001
        copy._tools = tuple(tools) or self._tools  # noqa: SLF001
        return copy

    def for_run(
        self,
        journal: Journal | None = None,
        change: Change | None = None,
        spent: float = 0,
        events: EventLog | None = None,
    ) -> Self:
        """Return the same context with counts and resources of its own, which whoever starts the run closes.

        Args:
            journal: what the run has been answered; by default nothing yet.
            change: what a fork of a run changes.
            spent: seconds that the run has taken before.
            events: the log of the run's events; by default nobody keeps them.
        """
        journal = journal or Journal()
        cost = self.cost if self.max_usd is not None else None
        resources = Resources(self, self._tools)
        copy = self.sharing(None)
        copy._resources = resources  # noqa: SLF001  # its own class
        limited = not (self.max_calls is self.max_tokens is self.max_usd is None)
        keeps = limited and self.profile not in ("classic", "agent") and not journal.replays
        budget = Budget(least_of(copy), journal.asked()) if keeps else None
        copy._shared = Shared(self.parallel, journal.calls(), self.now() - spent, cost, budget)  # noqa: SLF001
        copy._journal = journal  # noqa: SLF001  # its own class
        copy._change = change  # noqa: SLF001
        copy._events = events  # noqa: SLF001
        return copy

    def sharing(self, shared: Shared | None) -> Self:
        """Return the same context for branches that run side by side."""
        copy = self.model_copy()
        copy._shared = shared  # noqa: SLF001  # its own class
        return copy

    @property
    def shared(self) -> Shared | None:
        """What the branches of a run share; ``None`` outside of any fork."""
        return self._shared

    @property
    def journal(self) -> Journal | None:
        """What the run has been answered; ``None`` where LangGraph's server runs the graph."""
        return self._journal

    @property
    def soft_limits(self) -> bool:
        """Whether a limit ends only what it leaves no room for, so that the rest is combined, and not the run."""
        return self.profile != "classic" and self._journal is not None

    @property
    def events(self) -> EventLog | None:
        """The log of the run's events; ``None`` where nobody keeps one."""
        return self._events

    @property
    def change(self) -> Change | None:
        """What this run, a fork of another, changes."""
        return self._change

    @property
    def resources(self) -> Resources:
        """The tools, documents, files and sandbox of the run."""
        if self._resources is None:
            self._resources = Resources(self, self._tools)
        return self._resources

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

    @property
    def price_list(self) -> Prices:
        """What models cost."""
        if self._prices is None:
            self._prices = Prices(self.prices)
        return self._prices

    def cost(self, call: Call) -> float | None:
        """Return what a call has cost in US dollars; ``None`` where nobody knows the price."""
        return self.price_list.cost(call["model"], call["input_tokens"], call["output_tokens"])

    def dollars(self, calls: Sequence[Call]) -> float:
        """Return what calls have cost in US dollars; those whose price nobody knows are not counted."""
        return sum(self.cost(call) or 0 for call in calls)

    def check_money(self, models: Sequence[ModelLike]) -> None:
        """Check that a limit of money can be kept. It may import a package: call it off the event loop.

        Raises:
            UsageError: nobody knows the price of one of ``models``.
        """
        unknown = {name_of(model) for model in models if self.price_list.of(name_of(model)) is None}
        if self.max_usd is not None and unknown:
            raise UsageError(
                f"max_usd cannot be kept: the price of {', '.join(sorted(unknown))} is unknown; install "
                "'cactus-solver[prices]', or give it as -c 'prices.PROVIDER:NAME=IN/OUT' (US dollars for a million "
                "tokens), or use --max-tokens"
            )

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return self._clock()

    def models_of(self, role: str, kind: str | None = None) -> list[ModelLike]:
        """Return the models that play ``role`` for a kind of task: the first, and those asked where it fails.

        Who decomposes investigates too, where no other model is named for that.

        Raises:
            UsageError: none is named and none is at hand.
        """
        for name in (f"{role}.{kind}", role, *(["decompose"] if role == "investigate" else [])):
            if found := self._given.get(name) or self.role_models.get(name):
                return list(found)
        return list(self._given.get("", ())) or [self.model or default_name()]

    def fallbacks(self, role: str) -> int:
        """Return how many models are named for ``role``, one where none is."""
        return max(len(self._given.get(role, ()) or self._given.get("", ())), len(self.role_models.get(role, ())), 1)

    def named_models(self) -> list[ModelLike]:
        """Return every model that a run may ask.

        Raises:
            UsageError: a role has none.
        """
        kinds = {("solve", kind) for kind in KINDS if self.profile != "classic"}
        roles = {(role, None) for role in ROLES} | kinds
        named = [model for role, kind in sorted(roles, key=str) for model in self.models_of(role, kind)]
        return [*named, *(agent.model for agent in self.named_agents if agent.model and self.profile == "adaptive")]


def _built_in(settings: Settings) -> Components:
    """Return the components that the settings name, each asking the run's models for its role."""
    from nodes import profiles  # it imports the nodes, which import this module

    return profiles.components(settings)
