"""Code: the model writes Python, which runs in a sandbox, sees what it printed, and goes on (CodeAct)."""

import re

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from frames.errors import CallError
from nodes.artifacts import Artifact, described
from nodes.asking import Asking, within_run
from nodes.component import Ask, Stepwise, ask_directly
from nodes.executors.reading import granted
from nodes.executors.think import conclusion
from nodes.models.call import Query
from nodes.prompt import render
from nodes.sandbox.run import Ran
from nodes.structured import without_reasoning

_BLOCK = re.compile(r"```(?:python|py|python3)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)

LAST = "This is your last reply: no program is run any more. Give the answer in words."


class Code(Stepwise):
    """Asks a model that may run programs, at most ``max_steps`` times.

    A program reaches the artifacts that the frame was granted and nothing else. Files that it writes become
    artifacts, which the answer refers to. A program given twice is done: what it printed is the answer.
    """

    async def __call__(self, task: str, /, *, ask: Ask = ask_directly) -> str:
        work = within_run(ask)
        artifacts = await granted(work)
        files = {artifact["name"]: await _content(work, artifact) for artifact in artifacts}
        given = dict(files)
        prompt = render("roma/code", task=task, files=artifacts, steps=self.max_steps)
        said: list[BaseMessage] = [HumanMessage(prompt)]
        last: tuple[str, Ran] | None = None
        for left in reversed(range(self.max_steps)):
            query = Query([*said, HumanMessage(LAST)] if not left and self.max_steps > 1 else said)
            text = (await work.reply(query, model=self.model)).text
            program = _program(text)
            if program is None:
                return await _with_files(work, conclusion(text), files, given)
            if last and last[0] == program and not last[1].error:
                return await _with_files(work, last[1].output.strip() or text, files, given)
            ran = await work.run_code(program, files)
            files |= ran.files
            last = (program, ran)
            said += [AIMessage(text), HumanMessage(_shown(ran, left))]
        if last and not last[1].error and last[1].output.strip():
            return await _with_files(work, last[1].output.strip(), files, given)
        why = (
            f"its last program failed: {last[1].error}"
            if last and last[1].error
            else "its last program printed nothing"
        )
        raise CallError(f"no answer within max_steps = {self.max_steps}: {why}")


async def _content(ask: Asking, artifact: Artifact) -> bytes:
    stored = await ask.artifacts.get(artifact["id"])
    return stored.content if stored else b""


def _program(text: str) -> str | None:
    """Return the block of code in a reply; ``None`` where it has none."""
    blocks = _BLOCK.findall(without_reasoning(text))
    return blocks[0].strip() or None if blocks else None


def _shown(ran: Ran, left: int) -> str:
    failed = f"\nIt failed: {ran.error}" if ran.error else ""
    written = f"\nFiles written: {', '.join(ran.files)}" if ran.files else ""
    return f"The program printed:\n{ran.output or '(nothing)'}{failed}{written}\n\n({left} replies left.)"


async def _with_files(ask: Asking, answer: str, files: dict[str, bytes], given: dict[str, bytes]) -> str:
    """Return ``answer`` with references to the files that the programs wrote, kept as artifacts."""
    written = {name: content for name, content in files.items() if given.get(name) != content}
    if not written or not ask.artifacts.available:
        return answer
    kept = [await ask.artifacts.put(content, name, ask.frame["id"]) for name, content in sorted(written.items())]
    return "\n".join([answer, "", "Files:", *(f"- {described(artifact)}" for artifact in kept)])
