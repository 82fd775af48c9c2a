"""Search: look things up with tools, then answer with sources (ReAct)."""

from typing_extensions import override

from nodes.asking import within_run
from nodes.component import Ask, Stepwise, ask_directly
from nodes.executors.looking import FINAL, look
from nodes.executors.reading import readers
from nodes.executors.sources import sources, with_sources
from nodes.executors.think import Think, conclusion
from nodes.prompt import render
from nodes.structured import without_reasoning


class Search(Stepwise):
    """Asks a model that may call tools, at most ``max_steps`` times; without tools it is asked to reason.

    Where documents are given, the passages that fit the task best are in the first prompt already, so that a model
    that calls no tool has something to go by; with one step, they are all there is.
    """

    @override
    def least_calls(self, searches: bool, attaches: bool) -> int:
        return super().least_calls(searches, attaches) if searches or attaches else 1

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        tools = [*await work.tools(), *await readers(work)]
        if not tools:
            return await Think(self.model)(task, ask=work)
        passages = await work.context.resources.passages(work.frame["task"])
        if self.max_steps == 1 and passages:
            prompt = render("roma/read", task=task, passages=passages)
            return with_sources(_answer(await work(prompt, model=self.model)), [p.source for p in passages])
        seen = [passage.source for passage in passages]

        def asked(native: bool) -> str:
            about = {"passages": passages, "tools": tools, "steps": self.max_steps}
            return render("roma/search", task=task, native=native, **about)

        reply = await look(
            work, tools, asked, self.max_steps, model=self.model, shown=lambda text: seen.extend(sources(text))
        )
        return with_sources(_answer(reply.text), seen)


def _answer(text: str) -> str:
    text = without_reasoning(text) or text.strip()
    final = FINAL.search(text)
    return conclusion(text[final.end() :] if final else text)
