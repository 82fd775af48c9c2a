"""An instance of the recursive agent: what a frame keeps that is solved by code in a session of its own.

The session itself lies in artifacts; a frame names them. What was said is in the frame's ``turns``.
"""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Reason = Literal["budget", "failed", "refused"]
"""Why a launch has no answer: the subagent came to an end of its budget, failed, or was not begun."""


class Turn(TypedDict):
    """One side of the conversation: what the model replied, or what its code gave."""

    by: Literal["model", "cell"]
    text: str


class Waiting(TypedDict):
    """A launch that the code waits for: the interpreter's number of the call, and the subtask's place in the plan."""

    call: int
    place: int


class Given(TypedDict):
    """The context that a launch hands over: the ``value``, or, of a large one, its artifact and its beginning."""

    value: NotRequired[Any]
    artifact: NotRequired[str]
    preview: NotRequired[str]


class Instance(TypedDict):
    """Where the instance stands.

    ``state`` is the artifact of its session, or of the paused cell where it is ``waiting``; ``version`` is that of the
    interpreter that wrote it, ``before`` the session before that cell. ``stops`` counts the stops of the cell under
    way, ``calls`` what it has called, and ``printed`` is what it has printed. ``steps`` counts replies. ``partial`` is
    what was printed last, ``ended`` why there will be no answer: the
    name of its own limit, or what was said of one of the run's.
    """

    state: str | None
    version: str
    before: str | None
    waiting: list[Waiting]
    stops: int
    calls: int
    printed: str
    steps: int
    partial: str | None
    ended: str | None


def new_instance() -> Instance:
    """Return an instance that has done nothing."""
    return Instance(
        state=None,
        version="",
        before=None,
        waiting=[],
        stops=0,
        calls=0,
        printed="",
        steps=0,
        partial=None,
        ended=None,
    )
