"""A task without a kind: the root that was not split, or a subtask of a decomposer that names none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from nodes.asking import within_run
from nodes.component import Ask, ModelComponent, ask_directly, least_calls, model_calls, use


@dataclass(frozen=True)
class Kindless(ModelComponent):
    """Chooses by what the run has: ``search`` for tools or documents, else ``code`` for files, else ``think``."""

    kinds: Mapping[str, Any]

    @property
    @override
    def model_calls(self) -> int:
        return max(map(model_calls, self.kinds.values()), default=1)

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return least_calls(self._chosen(searches, attaches), searches=searches, attaches=attaches)

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        resources = work.context.resources
        return await use(self._chosen(resources.searches, resources.attaches), task, ask=work)

    def _chosen(self, searches: bool, attaches: bool) -> Any:
        return self.kinds["search" if searches else "code" if attaches else "think"]
