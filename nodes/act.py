"""Act: an agent's turn. Its model writes Python, which runs in a session of its own and may launch copies of the agent.

Code that waits for subagents is stored as it stands; they become subtasks of the frame, and when they are done the code
goes on with what they came back with.
"""

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.tools import BaseTool

from frames import trace
from frames.errors import EmptyReplyError, LimitError, ReplyCutError
from frames.frame import ChildResult, Subtask, child_id
from frames.instance import Instance, Turn, new_instance
from frames.stack import Op
from nodes.agent import talk
from nodes.agent.block import FINISH, LAUNCH, code_of, fault_of
from nodes.agent.launches import delivered, handed_over, named
from nodes.agent.prelude import code_names
from nodes.agent.session import Session
from nodes.executors.reading import readers
from nodes.models.call import Query
from nodes.step import Step, Update, node

_NO_CODE = "Your reply has no block of code, so that nothing was run. Reply with one block: ```python … ```"
_CUT_OFF = "(a reply that broke off)"


@node("act")
async def act(step: Step) -> Update:
    """Have the agent's model write its next block and run it, or go on with one whose subagents are done."""
    instance = step.frame.get("instance") or new_instance()
    if instance["ended"]:
        return _without_answer(step, instance["ended"])
    tools = [*await step.context.resources.tools(), *await readers(step.ask)]
    if instance["waiting"]:
        return await _gone_on(step, tools, instance)
    return await _next_turn(step, tools, instance)


async def _next_turn(step: Step, tools: Sequence[BaseTool], instance: Instance) -> Update:
    frame, context = step.frame, step.context
    turns = [Turn(by="cell", text=_rejected(frame["feedback"]))] if frame["feedback"] else list[Turn]()
    said = [*frame.get("turns", ()), *turns]
    used = talk.tokens_used(talk.messages(step, tools, said))
    if instance["steps"] >= context.agent_steps:
        return _ending(step, instance, turns, LimitError("agent_steps", f"agent_steps = {context.agent_steps} reached"))
    if used > context.agent_tokens:
        limit = LimitError("agent_tokens", f"agent_tokens = {context.agent_tokens} reached: {used} would be asked")
        return _ending(step, instance, turns, limit)
    left = await talk.figures(step, instance, used)
    line = Turn(by="cell", text=talk.budget_line(left, context.agent_tokens))
    fault, text = None, _CUT_OFF
    try:
        text = (await step.ask.reply(Query(talk.messages(step, tools, [*said, line])))).text
    except (ReplyCutError, EmptyReplyError) as none:
        fault = f"{none}{'. Write less at once' * isinstance(none, ReplyCutError)}."
    except LimitError as limit:
        if limit.name == "deadline" or not context.soft_limits or (context.shared and context.shared.reached):
            raise
        return _ending(step, instance, turns, limit, of_run=True)
    instance = Instance({**instance, "steps": instance["steps"] + 1})
    turns += [line, Turn(by="model", text=text)]
    code, fault = _checked(text, tools, fault)
    if code is None or fault:
        told = fault or _NO_CODE
        _tell(step, instance, code or "", "", told, [], finished=False)
        return _observed(step, instance, turns, told)
    session = Session(step, tools, instance)
    after = {**left, "steps": (left["steps"] or 1) - 1}
    await session.start(code, {"budget": after, "context": await handed_over(step)})
    return _stopped(step, session, code, turns)


async def _gone_on(step: Step, tools: Sequence[BaseTool], instance: Instance) -> Update:
    frame = step.frame
    results = {result["frame"]: result for result in frame["results"]}
    answers: dict[int, Any] = {}
    for each in instance["waiting"]:
        subtask, id_ = frame["plan"][each["place"]], child_id(frame, each["place"])
        result = results.get(id_) or ChildResult(
            frame=id_, task=subtask["task"], answer="", artifact=None, failed="it was not begun", attempts=0
        )
        answers[each["call"]] = await delivered(step, result, subtask)
    reply = next(turn["text"] for turn in reversed(frame.get("turns", ())) if turn["by"] == "model")
    session = Session(step, tools, instance)
    await session.go_on(answers)
    return _stopped(step, session, _checked(reply, tools, None)[0] or "", [])


def _checked(reply: str, tools: Sequence[BaseTool], fault: str | None) -> tuple[str | None, str | None]:
    """Return the code in a reply, and why it is not run, where it is not."""
    awaited = {LAUNCH, *code_names([tool.name for tool in tools]).values()}
    code = None if fault else code_of(reply, {*awaited, FINISH})
    return code, fault or (None if code is None else fault_of(code, awaited))


def _stopped(step: Step, session: Session, code: str, turns: list[Turn]) -> Update:
    """Return the update for a cell that has stopped: it finished the goal, waits for subagents, or has ended."""
    frame, instance = step.frame, session.instance
    whole = f"{instance['printed']}{session.printed}"
    instance = Instance({**instance, "printed": whole, "partial": whole.strip() or instance["partial"]})
    plan = [*frame["plan"], *session.begun]
    places = range(len(frame["plan"]), len(plan))
    launches = named({**frame, "plan": plan}, places)
    _tell(step, instance, code, session.printed, session.error, launches, finished=session.finished)
    if session.finished:
        return _finished(step, session, instance, turns)
    if instance["waiting"]:
        return _waiting(step, session, instance, turns)
    return _observed(step, instance, turns, _observation(whole, session.error), limited=session.limited)


def _finished(step: Step, session: Session, instance: Instance, turns: list[Turn]) -> Update:
    """Return the update that has the agent's answer verified."""
    value, frame = session.value, step.frame
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    step.emit_answer(text)
    traced = (trace.aggregated if frame["plan"] else trace.solved)(frame, text)
    instance = Instance({**instance, "waiting": [], "printed": "", "state": instance["before"]})
    fields: dict[str, Any] = {"phase": "verify", "answer": text, "json": not isinstance(value, str)}
    fields |= {"instance": instance, "feedback": None} | ({"limited": True} if session.limited else {})
    return step.update(_said(turns), {"op": "revise", "fields": fields}, traces=[traced])


def _waiting(step: Step, session: Session, instance: Instance, turns: list[Turn]) -> Update:
    """Return the update that has the subagents worked on that the code waits for."""
    frame, change = step.frame, step.context.change
    plan = [*frame["plan"], *session.begun]
    plan = change.plan(frame, plan) if change else plan
    new: list[Subtask] = plan[len(frame["plan"]) :]
    known = {result["frame"] for result in frame["results"]}
    given = [result for result in (change.given(frame, plan) if change else []) if result["frame"] not in known]
    left = len(new) - len(given)
    forks = step.context.forks and left > 1
    fields: dict[str, Any] = {"instance": instance, "feedback": None, "phase": "fork" if forks else "act"}
    fields |= {"limited": True} if session.limited else {}
    ops: list[Op] = [
        {"op": "extend", "lists": {"turns": turns, "plan": new, "results": given}},
        {"op": "revise", "fields": fields},
    ]
    if left and not forks:
        ops.append({"op": "descend"})
    return step.update(*ops, traces=[trace.decomposed(frame, new)], frames=step.frames + len(new))


def _observed(step: Step, instance: Instance, turns: list[Turn], text: str, *, limited: bool = False) -> Update:
    """Return the update after which the model is shown what its code gave."""
    instance = Instance({**instance, "printed": ""})
    fields: dict[str, Any] = {"instance": instance, "feedback": None} | ({"limited": True} if limited else {})
    return step.update(_said([*turns, Turn(by="cell", text=text)]), {"op": "revise", "fields": fields})


def _ending(step: Step, instance: Instance, turns: list[Turn], limit: LimitError, *, of_run: bool = False) -> Update:
    """Return the update for an agent that may not go on; it ends with what it has."""
    step.tell_limit(limit)
    fields = {"instance": Instance({**instance, "ended": str(limit) if of_run else limit.name}), "feedback": None}
    return step.update(_said(turns), {"op": "revise", "fields": fields}, notes=[f"{step.frame['id']}: {limit}"])


def _without_answer(step: Step, ended: str) -> Update:
    """Return the update that ends an agent without an answer: its launcher is told, with what it had printed last."""
    steps, tokens = step.context.agent_steps, step.context.agent_tokens
    own = {
        "agent_steps": f"within its {steps} {'reply' if steps == 1 else 'replies'} (agent_steps)",
        "agent_tokens": f"within its {tokens} tokens of conversation (agent_tokens)",
    }
    why = f"it did not finish {own.get(ended) or f'before the run had to stop: {ended}'}"
    whole = len(step.lineage) == 1
    return step.fail(f"{step.frame['id']}: {why}", limited=whole or ended not in own)


def _said(turns: list[Turn]) -> Op:
    return {"op": "extend", "lists": {"turns": turns}}


def _rejected(feedback: str) -> str:
    return (
        f"Your answer was rejected: {feedback}\nMend it and finish again. The variables are as before the block that "
        "finished."
    )


def _observation(printed: str, error: str | None) -> str:
    """Return what the model is shown of a block that has run."""
    output = printed.rstrip() or "(nothing)"
    failed = f"\n\nIt failed:\n{error}" if error else ""
    return f"The block printed:\n{output}{failed}"


def _tell(
    step: Step, instance: Instance, code: str, output: str, error: str | None, launches: list[Any], *, finished: bool
) -> None:
    step.emit(
        {
            "event": "cell",
            "frame": step.frame["id"],
            "step": instance["steps"],
            "code": code,
            "output": output,
            "error": error,
            "launches": launches,
            "finished": finished,
        }
    )
