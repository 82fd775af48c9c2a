"""Verify: accept or reject an answer."""

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, cast

from frames import trace
from frames.frame import Frame, is_planned
from frames.text import clean
from nodes.component import Ask, ComponentError, ModelComponent, PlainComponent, ask_directly, use
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node

_WORD = re.compile(r"\s*(?:accept|reject)[a-z]*(?:\s*[:.,;!]|\s+-(?=\s))?\s*", re.IGNORECASE)


class Verdict(NamedTuple):
    """Whether an answer is accepted, and why."""

    accepted: bool
    feedback: str = ""

    @classmethod
    def accept(cls, feedback: str = "") -> Self:
        """Return an accepting verdict."""
        return cls(accepted=True, feedback=feedback)

    @classmethod
    def reject(cls, feedback: str = "") -> Self:
        """Return a rejecting verdict."""
        return cls(accepted=False, feedback=feedback)


class Verifier(Protocol):
    """Judges an answer."""

    def __call__(self, task: str, result: str, attempt: int, /) -> Verdict | Awaitable[Verdict]:
        """Return the verdict on ``result``; ``attempt`` counts from 1 and is 1 for a combined answer."""
        ...


@dataclass(frozen=True)
class AlwaysAccept(PlainComponent):
    """Accepts every answer."""

    def __call__(self, task: str, result: str, attempt: int, /) -> Verdict:  # noqa: ARG002
        return Verdict.accept()


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model for ACCEPT or REJECT; an answer that starts with "ACCEPT" accepts."""

    model: ModelLike | None = None

    async def __call__(self, task: str, result: str, attempt: int, /, *, ask: Ask = ask_directly) -> Verdict:
        prompt = render("verify", task=task, result=result, attempt=attempt)
        return read_verdict(await ask(prompt, model=self.model))


def always_accept() -> AlwaysAccept:
    """Return a verifier that accepts every answer."""
    return AlwaysAccept()


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return a verifier that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


def read_verdict(answer: str) -> Verdict:
    """Return the verdict that an answer gives: it accepts where it starts with "ACCEPT".

    In any case, after any white space. The feedback is what follows the word (ACCEPT, ACCEPTED, REJECT, …) and
    the punctuation behind it; an answer that starts with neither word rejects, and is the feedback as a whole.
    """
    accepted = answer.lstrip().lower().startswith("accept")
    return Verdict(accepted, _WORD.sub("", answer, count=1).strip() if _WORD.match(answer) else answer.strip())


@node("verify")
async def verify(step: Step) -> Update:
    """Pop an accepted frame, send a rejected one to ``retry``, and end the branch after its last attempt."""
    frame = step.frame
    attempt = 1 if is_planned(frame) else frame["attempt"]
    verifier = step.context.components.verifier
    verdict = _checked(await use(verifier, frame["task"], frame["answer"] or "", attempt, ask=step.ask))
    step.emit({"event": "verdict", "frame": frame["id"], "attempt": attempt, **verdict._asdict()})
    traced = trace.verified(frame, accepted=verdict.accepted, feedback=verdict.feedback)
    if verdict.accepted:
        return step.settle(traces=[traced])
    if is_planned(frame):
        return step.fail(_gap(frame, verdict, 1), traces=[traced])
    if attempt < step.context.max_retries:
        return step.go("retry", feedback=verdict.feedback, traces=[traced])
    return step.fail(_gap(frame, verdict, attempt))


def _checked(verdict: object) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise ComponentError(f"the verifier returned {type(verdict).__name__}, not a Verdict")
    accepted, feedback = cast("tuple[object, object]", verdict)
    if isinstance(accepted, str | None):  # "no" would accept
        raise ComponentError(f"the verifier's Verdict.accepted is {type(accepted).__name__}, not a bool")
    if not isinstance(feedback, str):
        raise ComponentError(f"the verifier's Verdict.feedback is {type(feedback).__name__}, not a text")
    return Verdict(bool(accepted), clean(feedback))


def _gap(frame: Frame, verdict: Verdict, attempts: int) -> str:
    tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return f"{frame['id']}: rejected after {tried}" + (f": {verdict.feedback}" if verdict.feedback else "")
