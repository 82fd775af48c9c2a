"""Artifacts: files, tables and large results, kept outside the prompts under the hash of their content.

They lie in LangGraph's store, beside the checkpoints; a prompt carries an artifact's name, size and beginning.
"""

import base64
import hashlib
import mimetypes
import re
from typing import Any, NamedTuple

from langgraph.store.base import BaseStore
from typing_extensions import TypedDict

from frames.errors import UsageError
from frames.frame import Frame
from frames.text import clean

PREVIEW = 600
"""Characters of an artifact that its preview shows."""

READER = "read_artifact"
"""The tool by which a model reads an artifact."""

_REFERENCE = re.compile(r"artifact:([0-9a-f]{16})")

_TYPES = mimetypes.MimeTypes()  # made here, for it looks at files, which must not block the event loop


class Artifact(TypedDict):
    """What is known of an artifact without reading it. ``size`` is in bytes, ``frame`` is where it came from."""

    id: str
    name: str
    media_type: str
    size: int
    frame: str
    preview: str


class Stored(NamedTuple):
    """An artifact and its content."""

    artifact: Artifact
    content: bytes


class Artifacts:
    """The artifacts of one run. Without a store nothing is kept, and ``put`` says so."""

    def __init__(self, store: BaseStore | None, run_id: str) -> None:
        self._store = store
        self._namespace = ("cactus", "artifacts", run_id.replace(".", "%2E"))

    @property
    def available(self) -> bool:
        """Whether there is a store to keep artifacts in."""
        return self._store is not None

    async def put(self, content: bytes, name: str, frame: str) -> Artifact:
        """Keep ``content`` and return what it is kept as; the same content is kept once.

        Raises:
            UsageError: the graph was compiled without a store.
        """
        if self._store is None:
            raise UsageError(f"{name} cannot be kept: compile the graph with a store, as make_graph(store=…)")
        id_ = hashlib.sha256(content).hexdigest()[:16]
        known = await self._store.aget(self._namespace, id_)
        if known is not None:
            return _artifact(known.value)
        text = _text(content)
        artifact = Artifact(
            id=id_,
            name=name,
            media_type=_TYPES.guess_type(name)[0] or ("text/plain" if text is not None else "application/octet-stream"),
            size=len(content),
            frame=frame,
            preview=(text or "")[:PREVIEW],
        )
        body = {"text": text} if text is not None else {"base64": base64.b64encode(content).decode()}
        await self._store.aput(self._namespace, id_, {**artifact, **body}, index=False)
        return artifact

    async def get(self, id_: str) -> Stored | None:
        """Return the artifact of that id; ``None`` where there is none."""
        item = None if self._store is None else await self._store.aget(self._namespace, id_)
        if item is None:
            return None
        text = item.value.get("text")
        content = base64.b64decode(item.value["base64"]) if text is None else text.encode()
        return Stored(_artifact(item.value), content)

    async def list(self) -> list[Artifact]:
        """Return all artifacts of the run, by name."""
        found: list[Artifact] = []
        while self._store is not None:
            page = await self._store.asearch(self._namespace, limit=100, offset=len(found))
            found += [_artifact(item.value) for item in page]
            if len(page) < 100:
                break
        return sorted(found, key=lambda artifact: (artifact["name"], artifact["id"]))


async def take_over(artifacts: Artifacts, other: Artifacts) -> None:
    """Keep all that the ``other`` run keeps, which a fork of it goes on from."""
    for artifact in await other.list():
        stored = await other.get(artifact["id"])
        if stored:
            await artifacts.put(stored.content, artifact["name"], artifact["frame"])


async def keep_large(artifacts: Artifacts, frame: Frame, inline: int) -> dict[str, str] | None:
    """Keep an answer of more than ``inline`` characters as an artifact.

    Returns:
        The artifact's id and the answer's beginning, as ``frames.frame.child_result`` takes them; ``None`` for an
        answer that is given whole.
    """
    answer = frame["answer"] or ""
    if len(answer) <= inline or not artifacts.available:
        return None
    kept = await artifacts.put(answer.encode(), f"answer-{frame['id']}.md", frame["id"])
    return {"artifact": kept["id"], "answer": answer[:inline]}


def references(*texts: str) -> list[str]:
    """Return the ids of the artifacts that ``texts`` refer to, each once."""
    return list(dict.fromkeys(id_ for text in texts for id_ in _REFERENCE.findall(text)))


def described(artifact: Artifact) -> str:
    """Return the reference to an artifact that a prompt or an answer carries."""
    return f"artifact:{artifact['id']} {artifact['name']} ({artifact['media_type']}, {artifact['size']} bytes)"


def _text(content: bytes) -> str | None:
    """Return ``content`` as text where that loses nothing."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if clean(text) == text else None


def _artifact(value: dict[str, Any]) -> Artifact:
    return Artifact(**{key: value[key] for key in Artifact.__annotations__})  # type: ignore[typeddict-item]
