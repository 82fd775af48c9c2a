"""Decompose: split a task into subtasks."""

import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from typing_extensions import override

from frames import plan as plans
from frames import trace
from frames.errors import ReplyCutError
from frames.findings import findings_of, plan_from
from frames.frame import Frame, Subtask
from frames.stack import Op
from frames.text import one_line
from nodes.admission import refusal
from nodes.asking import situation
from nodes.capabilities import intents
from nodes.component import Ask, ModelComponent, PlainComponent, ask_directly, use
from nodes.models.call import Query
from nodes.models.reply import Reply
from nodes.models.resolve import ModelLike
from nodes.prompt import render
from nodes.step import Step, Update, node
from nodes.structured import Plan, read_list, read_object, without_reasoning

_ENTRY = re.compile(r"^([ \t]*)(?:[-*\u2022](?![-*])|\d{1,2}[.)])[ \t]+(\S.*)$", re.MULTILINE)
_BULLET = re.compile(r"^[ \t]*([-*])(?!\1)(?:[ \t]+[-*](?=[ \t]))*[ \t]*(\S.*)$", re.MULTILINE)


Subtasks = Sequence[str] | Sequence[Mapping[str, Any]]


class Decomposer(Protocol):
    """Splits a task into subtasks."""

    def __call__(self, task: str, depth: int, /) -> Subtasks | Awaitable[Subtasks]:
        """Return the subtasks of ``task``; none where it is to be solved directly.

        Each is a text, or a mapping of ``id``, ``task``, ``kind`` (search, think, write, code) and
        ``depends_on`` (ids of the subtasks whose results it needs). After a person rejected a plan, what was said
        of it stands behind the task.
        """
        ...


@dataclass(frozen=True)
class LlmBased(ModelComponent):
    """Asks a model for subtasks and keeps the lines of its answer that are bullets.

    ``max_subtasks`` is what the prompt asks for at most; without it, 2 to 5.
    """

    model: ModelLike | None = None
    max_subtasks: int | None = None

    async def __call__(self, task: str, depth: int, /, *, ask: Ask = ask_directly) -> list[str]:
        prompt = render("decompose", task=task, depth=depth, max_subtasks=self.max_subtasks)
        return bullets(await ask(prompt, model=self.model))


@dataclass(frozen=True)
class Planner(ModelComponent):
    """Asks a model for a graph of typed subtasks (ROMA's planner).

    ``max_subtasks`` is what the prompt asks for at most. A plan that cannot be followed is asked for once more,
    with ``fault`` named, and so is one that a person rejected. An answer that is a list of bullets is a plan of
    subtasks without dependencies.
    """

    model: ModelLike | None = None
    max_subtasks: int | None = None

    @property
    @override
    def model_calls(self) -> int:
        return 2

    async def __call__(
        self, task: str, depth: int, /, *, ask: Ask = ask_directly, fault: str | None = None
    ) -> Subtasks:
        about = {"max_subtasks": self.max_subtasks, "fault": fault, **situation(ask)}
        prompt = render("roma/plan", task=task, depth=depth, **about)
        return read_plan(await ask.reply(Query(prompt, schema=Plan), model=self.model))


@dataclass(frozen=True)
class Intent(PlainComponent):
    """Splits a whole task by what its words ask for (review, test, document, …), in that order, each after the last.

    Each subtask requires the capability of its word; beyond ``max_subtasks`` the last has those of all that are left.
    """

    max_subtasks: int | None = None

    def __call__(self, task: str, depth: int, /) -> list[dict[str, Any]]:
        asked = [] if depth else intents(task)
        most = len(asked) if self.max_subtasks is None else self.max_subtasks
        parts = [[name] for name in asked]
        parts = parts if len(parts) <= most else [*parts[: most - 1], asked[most - 1 :]]
        return [
            {
                "id": "_".join(part),
                "task": f"{' and '.join(part).replace('_', ' ').capitalize()}: {task}",
                "depends_on": ["_".join(parts[index - 1])] if index else [],
                "requires": dict.fromkeys(part, 1.0),
            }
            for index, part in enumerate(parts)
        ]


def llm_based(model: ModelLike | None = None, max_subtasks: int | None = None) -> LlmBased:
    """Return a decomposer that asks ``model`` (by default the run's model for the role)."""
    return LlmBased(model, max_subtasks)


def planner(model: ModelLike | None = None, max_subtasks: int | None = None) -> Planner:
    """Return a decomposer that asks ``model`` for a graph of typed subtasks."""
    return Planner(model, max_subtasks)


def read_plan(reply: Reply) -> Subtasks:
    """Return the subtasks that a reply names.

    Raises:
        PlanError: it holds no plan in any form.
    """
    found = read_object(reply, "subtasks")
    if found is not None:
        entries: Any = found.get("subtasks") or []
        return [] if isinstance(entries, list) and not any(cast("list[Any]", entries)) else cast("Subtasks", entries)
    listed = read_list(reply)
    if listed is not None:
        return listed
    text = without_reasoning(reply.text)
    if "{" in text and "}" not in text[text.index("{") :]:
        raise plans.PlanError("the reply breaks off in the middle of the JSON")
    found_bullets = outline(text)
    if not found_bullets and text and text.lower() not in {"[]", "null", "none"}:
        raise plans.PlanError(f"the reply is no JSON with subtasks: {one_line(text, 120)}")
    return found_bullets


def outline(text: str) -> list[str]:
    """Return the entries of a list with bullets or numbers; what is indented below an entry is part of it."""
    lines = [(len(match[1].expandtabs()), match[2].strip()) for match in _ENTRY.finditer(text)]
    top = min((indent for indent, _ in lines), default=0)
    entries: list[str] = []
    for indent, entry in lines:
        if indent <= top + 1 or not entries:
            entries.append(entry)
        else:
            entries[-1] += f"; {entry}"
    return entries


def bullets(text: str) -> list[str]:
    """Return the texts of the lines that start with ``-`` or ``*``, white space before it aside.

    A line that starts with two of them is a rule or bold text, no bullet.
    """
    return [match[2].strip() for match in _BULLET.finditer(text)]


@node("decompose")
async def decompose(step: Step) -> Update:
    """Split the frame's task and start its subtasks, or have them approved; without a usable plan, solve it."""
    frame, change = step.frame, step.context.change
    objections = _objections(frame)
    found = [] if objections else _from_findings(frame, step.context.max_files)
    plan, fault = (found, None) if found else await _planned(step, objections)
    if fault and isinstance(step.context.components.decomposer, Planner):
        plan, fault = await _planned(step, [*objections, fault])
    if fault and step.context.profile == "adaptive" and (by_intent := _by_intent(step)):
        step.ask.notes.append(f"{frame['id']}: plan refused: {fault}; planned by what the task's words ask for")
        plan, fault = by_intent, None
    if fault:
        step.emit({"event": "plan_refused", "frame": frame["id"], "reason": fault})
        return step.go("solve", notes=[f"{frame['id']}: plan refused: {fault}; solved directly"])
    if not plan:
        return step.go("solve")
    plan = change.plan(frame, plan) if change else plan
    if limit := await refusal(step, plan):
        return step.directly(limit)
    return step.go("approve", plan=plan) if step.context.approve == "plan" else begin(step, plan)


def _from_findings(frame: Frame, max_files: int) -> list[Subtask]:
    """Return the plan that follows from the findings of a frame; none where it has none, or they name no file."""
    return plan_from(frame["task"], findings_of(frame["findings"]), max_files) if "findings" in frame else []


def _by_intent(step: Step) -> list[Subtask]:
    """Return the plan of an ``adaptive`` task that no model has planned, by what its words ask for."""
    frame = step.frame
    return checked(step, Intent(step.context.max_subtasks)(frame["task"], frame["depth"]))


async def _planned(step: Step, faults: Sequence[str]) -> tuple[list[Subtask], str | None]:
    """Return a plan, or what is wrong with it; ``faults`` are those of earlier ones."""
    frame, decomposer = step.frame, step.context.components.decomposer
    graph = isinstance(decomposer, Planner)
    task, further = frame["task"], dict[str, str]()
    if faults and graph:
        further = {"fault": "; ".join(faults)}
    elif faults:
        task = "\n\n".join([task, *faults])
    try:
        return checked(step, await use(decomposer, task, frame["depth"], ask=step.ask, **further)), None
    except plans.PlanError as refusal:
        return [], str(refusal)
    except plans.PlanFormError as fault_of_form:
        if not graph:
            raise
        return [], said_of_form(fault_of_form)
    except ReplyCutError as cut:
        if not graph:
            raise
        return [], f"{cut}; fewer and shorter subtasks are needed"


def _objections(frame: Frame) -> list[str]:
    """Return what a person said of the frame's earlier plans; no two requests that differ in it are the same."""
    approval = frame.get("approval")
    rejections = approval["rejections"] if approval else []
    return [
        f"Your plan ({'; '.join(rejection['subtasks'])}) was rejected: {rejection['text'].rstrip(' .')}"
        for rejection in rejections
    ]


def checked(step: Step, entries: Any, was: Sequence[Subtask] = ()) -> list[Subtask]:
    """Return the plan that a decomposer, or a person who edited ``was``, gave for the frame.

    The edit of a plan that has more than ``max_subtasks``, as one from findings may, has no more than it.

    Raises:
        PlanError: it cannot be followed.
        PlanFormError: it is no plan.
    """
    plan = plans.from_entries(entries, was)
    graph = isinstance(step.context.components.decomposer, Planner) or any(subtask["depends_on"] for subtask in plan)
    most = step.context.max_subtasks
    (plans.check_graph if graph else plans.check)(plan, step.lineage, most and max(most, len(was)))
    return plan


def said_of_form(fault: plans.PlanFormError) -> str:
    """Return what is wrong with the form of a plan, whoever gave it."""
    return str(fault).replace("the decomposer returned", "subtasks is").replace("the decomposer's ", "")


def begin(step: Step, plan: list[Subtask], *, notes: Sequence[str] = ()) -> Update:
    """Return the update that starts the subtasks of ``plan``, for which there is room."""
    change, shared = step.context.change, step.context.shared
    given = change.given(step.frame, plan) if change else []
    if shared:
        shared.plan(step.frame["id"], len(plan))
        if shared.budget:
            shared.budget.plan(step.frame, plan, given)
    step.emit({"event": "plan", "frame": step.frame["id"], "subtasks": plan})
    forks = step.context.forks and not plans.is_chain(plan)
    ops: list[Op] = [
        {"op": "revise", "fields": {"plan": plan, "results": given, **({"phase": "fork"} if forks else {})}}
    ]
    if len(given) == len(plan):
        ops = [{"op": "revise", "fields": {"plan": plan, "results": given, "phase": "aggregate"}}]
    elif not forks:
        ops.append({"op": "descend"})
    traces = [trace.decomposed(step.frame, plan)]
    return step.update(*ops, traces=traces, notes=notes, frames=step.frames + len(plan))
