"""Think: reason step by step, then answer (chain of thought)."""

import re
from dataclasses import dataclass

from nodes.component import Ask, ModelComponent, ask_directly
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.structured import without_reasoning

_ANSWER = re.compile(r"^[ \t]*[*_#]*[ \t]*(?:final )?answer[ \t]*:?[ \t]*[*_]*:?[ \t]*", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Think(ModelComponent):
    """Asks a model to reason, and keeps what follows its last line that begins with "Answer:"."""

    model: ModelLike | None = None

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        return conclusion(await ask(render("roma/think", task=task), model=self.model))


def conclusion(reply: str) -> str:
    """Return what follows the last "Answer:" that begins a line; the whole reply where there is none."""
    text = without_reasoning(reply) or reply.strip()
    starts = [match.end() for match in _ANSWER.finditer(text) if ":" in match[0]]
    return (text[starts[-1] :].strip() if starts else "") or text
