"""Approve: a person decides on a plan before it is followed.

The node asks by LangGraph's ``interrupt`` and the run stops. It goes on with ``Command(resume={id: decision})``, or
with a bare decision where one plan waits. Decisions are exact, and anything else has the question asked again:

- ``"approve"`` or ``{"action": "approve"}``: the plan is followed;
- ``{"action": "edit", "plan": [...]}``: this plan, of texts or mappings, is followed once it passes for one;
- ``{"action": "reject", "text": "..."}``: another plan is made, its maker told the text. After ``max_revisions``
  rejections the task is solved directly.

Each question is a step of its own, so that nothing is done twice when a run goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from typing_extensions import TypedDict

from frames import plan as plans
from frames.errors import LimitError
from frames.frame import Approval, Frame, Rejection, Subtask
from frames.journal import difference
from frames.text import clean, one_line
from nodes.admission import refusal
from nodes.decompose import begin, checked, said_of_form
from nodes.journal import Approved
from nodes.step import Step, Update, node

ALLOWED = (
    'that is no decision: allowed are "approve", {"action": "approve"}, {"action": "reject", "text": "what to change"} '
    'and {"action": "edit", "plan": [subtasks]}'
)
"""What is said to a reply that is no decision."""


class Approvals(Protocol):
    """Remembers the plans that a person approved in a run, by frame (``nodes.journal.Approved``).

    A frame that gets the same plan again is not asked about again; one that gets another is, with the difference.
    """

    def approved(self, frame: str, /) -> list[Subtask] | None:
        """Return the plan that was approved last for ``frame``; ``None`` where there is none."""
        ...

    async def approve(self, frame: str, plan: list[Subtask], /) -> None:
        """Keep ``plan`` as the one approved for ``frame``; told once more, it is the same."""
        ...


class Question(TypedDict):
    """What a person is asked: the value of the interrupt, plain JSON.

    ``replies`` counts the replies about the frame before, ``revision`` the plans that they rejected, and
    ``revisions_left`` how many more may be: after the last the task is solved directly. ``problem`` says why the last
    reply was not taken. ``was`` is the plan that was approved before, ``difference`` the unified diff from it; both
    ``None`` where there is none.
    """

    kind: Literal["plan"]
    frame: str
    task: str
    depth: int
    plan: list[Subtask]
    replies: int
    revision: int
    revisions_left: int
    problem: str | None
    was: list[Subtask] | None
    difference: str | None


@dataclass(frozen=True)
class Decision:
    """What a person decided; ``text`` is a rejection's, ``plan`` an edit's, not checked yet."""

    action: Literal["approve", "edit", "reject"]
    text: str = ""
    plan: Any = None


def read_decision(reply: object) -> Decision | str:
    """Return the decision that a reply is, or why it is none. Only the exact forms are."""
    given: Any = {"action": "approve"} if reply == "approve" else reply
    fields = cast("dict[Any, Any]", given) if isinstance(given, dict) else {}
    match fields.get("action"), len(fields):
        case "approve", 1:
            return Decision("approve")
        case "reject", 2 if isinstance(text := fields.get("text"), str):
            return Decision("reject", clean(text).strip()) if text.strip() else "a rejection says what to change"
        case "edit", 2 if "plan" in fields:
            return Decision("edit", plan=fields["plan"])
        case _:
            return ALLOWED


def listed(plan: Sequence[Subtask]) -> str:
    """Return a plan as text, a subtask a line: its number, kind, task, and the numbers of those it depends on."""
    lines: list[str] = []
    for number, (task, kind, needed) in enumerate(_substance(plan), 1):
        after = f" (after {', '.join(str(place + 1) for place in needed)})" if needed else ""
        indented = task.replace("\n", "\n   ")
        lines.append(f"{number}. {f'[{kind}] ' if kind else ''}{indented}{after}")
    return "\n".join(lines)


def _substance(plan: Sequence[Subtask]) -> list[tuple[str, str | None, list[int]]]:
    """Return what a plan says, whatever its ids are: each task, its kind, and the places of those it depends on."""
    places = {subtask["id"]: place for place, subtask in enumerate(plan)}
    return [
        (subtask["task"], subtask["kind"], sorted(places[name] for name in subtask["depends_on"])) for subtask in plan
    ]


@node("approve", bounded=False)  # a person takes the time it takes
async def approve(step: Step) -> Update:
    """Ask a person about the frame's plan, unless this very plan was approved before."""
    plan, approvals = step.frame["plan"], _approvals(step)
    was = approvals.approved(step.frame["id"]) if approvals else None
    question = _question(step, was)
    replied = step.ask.holds("decision", _told(question))  # a run that is worked through again takes the same turns
    if not replied and was and _substance(was) == _substance(plan):
        limit = await refusal(step, plan)
        return step.directly(limit) if limit else begin(step, plan)
    decision = read_decision(await _reply(step, question))
    if isinstance(decision, str):
        return _again(step, decision)
    if decision.action == "reject":
        return _reject(step, decision.text)
    return await _follow(step, decision, approvals)


def _approvals(step: Step) -> Approvals | None:
    journal = step.context.journal
    return Approved(journal) if journal else None


def _question(step: Step, was: list[Subtask] | None) -> Question:
    frame, revision = step.frame, len(_rejections(step.frame))
    approval = frame.get("approval")
    return Question(
        kind="plan",
        frame=frame["id"],
        task=frame["task"],
        depth=frame["depth"],
        plan=frame["plan"],
        replies=_replies(frame),
        revision=revision,
        revisions_left=max(step.context.max_revisions - revision, 0),
        problem=approval["problem"] if approval else None,
        was=was,
        difference=difference(listed(was), listed(frame["plan"])) if was else None,
    )


async def _reply(step: Step, question: Question) -> object:
    """Return the reply to ``question``: the one that the journal holds, or a person's, written down first."""

    async def ask() -> object:
        return _ask(step, question)

    return await step.ask.once("decision", _told(question), ask)


def _told(question: Question) -> dict[str, Any]:
    """Return what a reply in the journal is found by: the question, without what depends on later replies."""
    return {name: value for name, value in question.items() if name not in ("was", "difference", "revisions_left")}


def _ask(step: Step, question: Question) -> object:
    """Return the reply to ``question``; without one the run stops here, and begins this step anew once it has it."""
    try:
        return interrupt(question)
    except GraphInterrupt:
        _tell(step, "asked")
        raise


def _again(step: Step, problem: str) -> Update:
    """Return the update that has the question asked again."""
    frame = step.frame
    approval = Approval(rejections=_rejections(frame), problem=problem, replies=_replies(frame) + 1)
    return step.go("approve", approval=approval)


def _reject(step: Step, text: str) -> Update:
    """Return the update that has another plan made, or the task solved directly where there were enough."""
    frame, most = step.frame, step.context.max_revisions
    _tell(step, "rejected")
    rejected = Rejection(subtasks=[subtask["task"] for subtask in frame["plan"]], text=text)
    approval = Approval(rejections=[*_rejections(frame), rejected], problem=None, replies=_replies(frame) + 1)
    note = f"{frame['id']}: plan rejected: {one_line(text, 300)}"
    if len(approval["rejections"]) < most:
        return step.go("decompose", plan=[], approval=approval, notes=[note])
    return step.go("solve", plan=[], approval=approval, notes=[f"{note}; solved directly, max_revisions = {most}"])


async def _follow(step: Step, decision: Decision, approvals: Approvals | None) -> Update:
    """Return the update that starts the approved or edited plan; an edited one that will not do is no decision."""
    plan, notes, frame = step.frame["plan"], list[str](), step.frame["id"]
    if decision.action == "edit":
        edited = await _edited(step, decision.plan)
        if isinstance(edited, str):
            return _again(step, edited)
        plan, notes = edited, [f"{frame}: plan edited by a person"]
    elif limit := await refusal(step, plan):
        return step.directly(limit)
    if approvals:
        await approvals.approve(frame, plan)
    _tell(step, "edited" if decision.action == "edit" else "approved")
    return begin(step, plan, notes=notes)


async def _edited(step: Step, entries: Any) -> list[Subtask] | str:
    """Return the plan that a person gave, or what is wrong with it."""
    try:
        plan = checked(step, entries, step.frame["plan"])
        if limit := await refusal(step, plan):
            raise limit
    except plans.PlanFormError as fault:
        return f"the edited plan cannot be followed: {said_of_form(fault)}"
    except (plans.PlanError, LimitError) as fault:
        return f"the edited plan cannot be followed: {fault}"
    return plan or "the edited plan has no subtask; reject the plan, or edit it once more"


def _rejections(frame: Frame) -> list[Rejection]:
    approval = frame.get("approval")
    return approval["rejections"] if approval else []


def _replies(frame: Frame) -> int:
    approval = frame.get("approval")
    return approval["replies"] if approval else 0


def _tell(step: Step, decision: Literal["asked", "approved", "edited", "rejected"]) -> None:
    revision = len(_rejections(step.frame))
    step.emit({"event": "approval", "frame": step.frame["id"], "revision": revision, "decision": decision})
