"""Write: draft a text, then revise it against the task."""

from dataclasses import dataclass

from typing_extensions import override

from nodes.component import Ask, ModelComponent, ask_directly
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.structured import without_reasoning


@dataclass(frozen=True)
class Write(ModelComponent):
    """Asks a model for a draft and, where ``revise`` is set, for a better one in its light."""

    model: ModelLike | None = None
    revise: bool = True

    @property
    @override
    def model_calls(self) -> int:
        """Model calls that one use makes."""
        return 2 if self.revise else 1

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return self.model_calls

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        draft = _text(await ask(render("roma/draft", task=task), model=self.model))
        if not self.revise:
            return draft
        return _text(await ask(render("roma/revise", task=task, draft=draft), model=self.model))


def _text(reply: str) -> str:
    return without_reasoning(reply) or reply.strip()
