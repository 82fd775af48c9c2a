"""The brief: what an executor is told of its task, the results it builds on, and why its last answer was rejected."""

from collections.abc import Sequence

from frames.frame import ChildResult, Frame
from nodes.prompt import render
from nodes.settings import Settings

KNOWN_SHARE = 0.5
"""The part of the model's window that the results a task builds on may fill."""

LAST_ANSWER = 8_000
"""Characters of a rejected answer that the next attempt is shown."""


def brief(text: str, frame: Frame, settings: Settings) -> str:
    """Return ``text`` with the results that the frame builds on and, at a further attempt, the last answer."""
    parts = [text]
    if frame["known"]:
        parts.append(render("roma/_known", known=fitted(frame["known"], settings.window)))
    if frame["feedback"] and frame["answer"]:
        parts.append(f"The last answer was:\n{whole_or_cut(frame['answer'], LAST_ANSWER)}")
    return "\n\n".join(parts)


def fitted(known: Sequence[ChildResult], window: int) -> list[ChildResult]:
    """Return the results so that they fit into their share of the window; what is cut says so."""
    room = int(window * KNOWN_SHARE * 4)
    share = room // max(len(known), 1)
    return [ChildResult({**result, "answer": _shown(result, share)}) for result in known]


def _shown(result: ChildResult, share: int) -> str:
    if result["artifact"]:
        return (
            f"{whole_or_cut(result['answer'], min(share, 4_000))}\n(the whole result is artifact:{result['artifact']})"
        )
    return whole_or_cut(result["answer"], share)


def whole_or_cut(text: str, most: int) -> str:
    """Return ``text``, or its first ``most`` characters and that it goes on."""
    return text if len(text) <= most else f"{text[:most]}\n(cut: these are {most} of {len(text)} characters)"
