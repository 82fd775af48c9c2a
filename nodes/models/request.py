"""What a model is asked for: the frame, the role and the attempt behind a call.

A chat model sees messages only. A model that wants to know on whose behalf it is asked (the scripted
model does) reads ``current_request``, which the runtime sets around every call.
"""

from contextvars import ContextVar
from typing import NamedTuple


class Request(NamedTuple):
    """On whose behalf a model is called.

    ``frame`` is the frame's path (``0.2.1``), ``role`` one of atomize, decompose, solve, aggregate, verify,
    ``attempt`` counts from 1, ``task`` is the frame's whole task text.
    """

    frame: str
    role: str
    depth: int
    attempt: int
    task: str


current_request: ContextVar[Request | None] = ContextVar("current_request", default=None)
