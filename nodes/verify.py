"""Verify: accept or reject an answer."""

import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, cast

from frames import trace
from frames.frame import Frame, child_id, is_instance, is_planned, place
from frames.stack import Op
from frames.text import clean
from nodes.asking import Asking
from nodes.component import Ask, ComponentError, ModelComponent, PlainComponent, ask_directly, use
from nodes.executors.brief import KNOWN_SHARE, whole_or_cut
from nodes.models.call import Query
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node
from nodes.structured import Judgement, read_object, truth, without_reasoning

_ID = re.compile(r"\d+(?:\.\d+)+")
_MENTION = re.compile(
    r"(?:^|\[|\(|\b(?:frame|subtask|task|child|part|result|answer|of|in|from|by)\W{1,3})(\d+(?:\.\d+)+)(?![\d%]|\.\d)",
    re.IGNORECASE | re.MULTILINE,
)
"""A frame's id where it stands for the frame: a bare 0.1 within a sentence may be a number."""

_WORD = re.compile(r"\s*(?:accept|reject)[a-z]*(?:\s*[:.,;!]|\s+-(?=\s))?\s*", re.IGNORECASE)


class Verdict(NamedTuple):
    """Whether an answer is accepted, and why.

    Feedback on a combination that mentions one child's id (``0.2``) sends that child back, once, where the profile
    combines again.
    """

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


@dataclass(frozen=True)
class Structured(ModelComponent):
    """Asks a model for ``{"accepted": bool, "feedback": str, "guilty": str | None}``; reads text as ``LlmBased``."""

    model: ModelLike | None = None

    async def __call__(self, task: str, result: str, attempt: int, /, *, ask: Ask = ask_directly) -> Verdict:
        results = sorted(ask.frame["results"], key=place) if ask.frame else []
        shown = whole_or_cut(result, int(ask.context.window * KNOWN_SHARE * 4)) if isinstance(ask, Asking) else result
        prompt = render("roma/verify", task=task, result=shown, attempt=attempt, results=results)
        reply = await ask.reply(Query(prompt, schema=Judgement), model=self.model)
        found = read_object(reply, "accepted") or {}
        accepted = truth(found.get("accepted"))
        if accepted is None:
            return read_verdict(without_reasoning(reply.text))
        feedback, blamed = str(found.get("feedback") or ""), _blamed(found.get("guilty"), ask.frame)
        return Verdict(accepted, f"{blamed}: {feedback}" if blamed and not accepted else feedback)


def always_accept() -> AlwaysAccept:
    """Return a verifier that accepts every answer."""
    return AlwaysAccept()


def llm_based(model: ModelLike | None = None) -> LlmBased:
    """Return a verifier that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model)


def structured(model: ModelLike | None = None) -> Structured:
    """Return a verifier that asks ``model`` for structured output."""
    return Structured(model)


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
    verifier = step.context.components.verifier
    verdict = _checked(await use(verifier, frame["task"], frame["answer"] or "", frame["attempt"], ask=step.ask))
    step.emit(
        {
            "event": "verdict",
            "frame": frame["id"],
            "attempt": frame["attempt"],
            "accepted": verdict.accepted,
            "feedback": verdict.feedback,
        }
    )
    traced = trace.verified(frame, accepted=verdict.accepted, feedback=verdict.feedback)
    if verdict.accepted:
        return await step.settle(traces=[traced])
    if is_planned(frame) and not is_instance(frame):
        return _combine_again(step, verdict, traced)
    if step.has_attempts:
        return step.go("retry", feedback=verdict.feedback, traces=[traced])
    if (place := next_agent(step)) is not None:
        note = f"{frame['id']}: rejected after {frame['attempt']} attempts; the next agent is asked"
        fields: dict[str, Any] = {"feedback": verdict.feedback, "agent": place}
        return step.go("retry", traces=[traced], notes=[note], **fields)
    return step.fail(_gap(frame, verdict))


def next_agent(step: Step) -> int | None:
    """Return the place of the agent that takes over a task after its last attempt; ``None`` where there is no other."""
    frame, context = step.frame, step.context
    if context.profile != "adaptive" or frame["stale"] is not None:
        return None
    place = frame.get("agent", 0) + 1
    return place if place < len(context.agents_for(frame)) else None


def _combine_again(step: Step, verdict: Verdict, traced: trace.Trace) -> Update:
    """Send a rejected combination to its next attempt; before that, once, the child at fault to its own."""
    frame = step.frame
    if not step.context.combines_again or not step.has_attempts:
        return step.fail(_gap(frame, verdict), traces=[traced])
    guilty = _guilty(frame, verdict)
    if guilty is None or frame["stale"] is not None:
        return step.go("retry", feedback=verdict.feedback, traces=[traced])
    note = f"{guilty}: sent back, for the combination of {frame['id']} was rejected: {verdict.feedback}"
    fields: Op = {"op": "revise", "fields": {"feedback": verdict.feedback}}
    sent: Op = {"op": "send_back", "frame": guilty, "feedback": verdict.feedback}
    return step.update(fields, sent, traces=[traced], notes=[note])


def _blamed(guilty: Any, frame: Frame | None) -> str | None:
    """Return the frame's id that ``guilty`` names, itself or by the subtask's id in the plan."""
    named = cast("list[Any]", guilty) if isinstance(guilty, list) else [guilty]
    for index, subtask in enumerate(frame["plan"] if frame else []):
        if frame and named in ([subtask["id"]], [child_id(frame, index)]):
            return child_id(frame, index)
    return None


def _guilty(frame: Frame, verdict: Verdict) -> str | None:
    """Return the child that a verdict blames: the only one that its feedback mentions as a frame."""
    children = {result["frame"] for result in frame["results"] if not result["failed"]}
    said = children.intersection(_ID.findall(verdict.feedback))
    blamed = said.intersection(_MENTION.findall(verdict.feedback))
    return blamed.pop() if len(said) == len(blamed) == 1 else None


def _checked(verdict: object) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise ComponentError(f"the verifier returned {type(verdict).__name__}, not a Verdict")
    accepted, feedback = cast("tuple[object, object]", verdict)
    if isinstance(accepted, str | None):  # "no" would accept
        raise ComponentError(f"the verifier's Verdict.accepted is {type(accepted).__name__}, not a bool")
    if not isinstance(feedback, str):
        raise ComponentError(f"the verifier's Verdict.feedback is {type(feedback).__name__}, not a text")
    return Verdict(bool(accepted), clean(feedback))


def _gap(frame: Frame, verdict: Verdict) -> str:
    tried = "1 attempt" if frame["attempt"] == 1 else f"{frame['attempt']} attempts"
    return f"{frame['id']}: rejected after {tried}" + (f": {verdict.feedback}" if verdict.feedback else "")
