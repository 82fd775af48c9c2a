"""Reading artifacts: the tool that gives a model what a prompt only refers to."""

from langchain_core.tools import BaseTool, StructuredTool

from nodes.artifacts import READER, Artifact, described, references
from nodes.asking import Asking

PAGE = 8_000
"""Characters that one use of the tool returns at most."""


async def granted(ask: Asking) -> list[Artifact]:
    """Return the artifacts that the frame may read: attached files, and those that its task or results refer to."""
    attached = await ask.context.resources.attached(ask.artifacts)
    known = ask.frame["known"]
    named = references(ask.frame["task"], *(result["answer"] for result in known))
    ids = dict.fromkeys([*(a["id"] for a in attached), *(r["artifact"] for r in known if r["artifact"]), *named])
    found = [await ask.artifacts.get(id_) for id_ in ids]
    return [stored.artifact for stored in found if stored]


async def readers(ask: Asking) -> list[BaseTool]:
    """Return a tool that reads the frame's artifacts; none where it has none."""
    artifacts = await granted(ask)
    if not artifacts:
        return []
    by_id = {artifact["id"]: artifact for artifact in artifacts}

    async def read_artifact(id: str, start: int = 0) -> str:  # noqa: A002  # the name that models see
        stored = (
            await ask.artifacts.get(id.removeprefix("artifact:")) if id.removeprefix("artifact:") in by_id else None
        )
        if stored is None:
            return f"ERROR: there is no artifact {id}; there are {', '.join(by_id)}"
        text = stored.content.decode(errors="replace")
        more = f"\n(characters {start} to {start + PAGE} of {len(text)})" if len(text) > PAGE else ""
        return f"[source: {stored.artifact['name']}]\n{text[start : start + PAGE]}{more}"

    listed = "; ".join(described(artifact) for artifact in artifacts)
    about = f"Read one of these artifacts from character `start` on: {listed}"
    return [StructuredTool.from_function(coroutine=read_artifact, name=READER, description=about)]
