"""Admission: whether the limits of a run leave room for a call, or for a plan.

A call is admitted where its frame's share has it (``nodes.budget``), or where calls are left beyond all shares. A plan
is admitted where the run's limits leave enough for its combination and for each of its subtasks. Tokens and dollars
are reckoned as calls, by the mean of those made so far.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frames.errors import LimitError
from frames.frame import Subtask, child_id
from frames.state import Call
from nodes.budget import Budget, Least
from nodes.component import least_calls

if TYPE_CHECKING:
    from nodes.context import Context
    from nodes.shared import Shared
    from nodes.step import Step

LIMITS = ("max_frames", "max_calls", "max_tokens", "max_usd")

_KEPT = ": what is left is kept back for what was begun"


def least_of(context: "Context") -> Least:
    """Return the calls to reckon with for one use of each component of a run."""
    parts, resources = context.components, context.resources
    has = {"searches": resources.searches, "attaches": resources.attaches}

    def solve(kind: str | None) -> int:
        return least_calls(parts.executor(kind), **has)

    return Least(solve, least_calls(parts.aggregator, **has), least_calls(parts.verifier, **has))


def admit(context: "Context", frame: str, role: str, made: Sequence[Call]) -> None:
    """Check that the limits allow a call; ``made`` are those made so far where nothing counts them.

    Raises:
        LimitError: they do not.
    """
    shared, most = context.shared, context.max_calls
    if shared and shared.reached:
        raise shared.reached
    budget = shared.budget if shared else None
    kept = budget.kept() if budget and not budget.left(frame, role) else 0
    count = _counted(shared) if shared else len(made)
    if most is not None and count + kept >= most:
        raise LimitError("max_calls", f"max_calls = {most} reached{_KEPT * bool(kept)}", kept=bool(kept))
    admit_spending(context, made, kept)


def admit_spending(context: "Context", made: Sequence[Call], kept: int = 0) -> None:
    """Check that tokens and dollars are left, those for ``kept`` calls aside.

    Raises:
        LimitError: none are.
    """
    shared, tokens, dollars = context.shared, context.max_tokens, context.max_usd
    ahead = (kept + shared.in_flight) / shared.calls if shared and shared.calls and kept else 0
    if tokens is not None:
        used = shared.tokens if shared else sum(call["input_tokens"] + call["output_tokens"] for call in made)
        if used * (1 + ahead) >= tokens:
            raise LimitError("max_tokens", f"max_tokens = {tokens} reached{_KEPT * bool(kept)}", kept=bool(kept))
    if dollars is not None:
        spent = shared.usd if shared else context.dollars(made)
        if spent * (1 + ahead) >= dollars:
            raise LimitError("max_usd", f"max_usd = {dollars:g} reached{_KEPT * bool(kept)}", kept=bool(kept))


async def refusal(step: "Step", plan: Sequence[Subtask]) -> LimitError | None:
    """Return the limit that leaves no room for a plan of the frame, written down first; ``None`` where there is room.

    A plan that was refused under the same limits before stays so, and so does one that was admitted.

    Raises:
        LimitError: there is no room, and a limit ends the run (``classic``, and on LangGraph's server).
    """
    if not step.context.soft_limits:
        if limit := _too_many_frames(step, len(plan)):
            raise limit
        return None
    asked = {"subtasks": len(plan), "limits": {name: getattr(step.context, name) for name in LIMITS}}
    return await step.ask.refusal(asked, lambda: _too_large(step, plan))


def _counted(shared: "Shared") -> int:
    return shared.calls + shared.failed + shared.in_flight


def _too_many_frames(step: "Step", subtasks: int) -> LimitError | None:
    most, total = step.context.max_frames, step.made_so_far + subtasks
    if total <= most:
        return None
    return LimitError("max_frames", f"max_frames = {most} reached: {subtasks} subtasks would make {total} frames")


def _too_large(step: "Step", plan: Sequence[Subtask]) -> LimitError | None:
    """Return the first limit that a plan does not fit into."""
    shared = step.context.shared
    limit = _too_many_frames(step, len(plan))
    if limit or not shared or not shared.budget:
        return limit
    return _too_dear(step, plan, shared, shared.budget)


def _too_dear(step: "Step", plan: Sequence[Subtask], shared: "Shared", budget: Budget) -> LimitError | None:
    context, frame, change = step.context, step.frame, step.context.change
    given = {result["frame"] for result in change.given(frame, list(plan))} if change else set[str]()
    kinds = [subtask["kind"] for place, subtask in enumerate(plan) if child_id(frame, place) not in given]
    needed, others = budget.needed(kinds), budget.kept(besides=frame["id"])
    subtasks = "1 subtask needs" if len(plan) == 1 else f"{len(plan)} subtasks need"
    if (most := context.max_calls) is not None:
        left = most - _counted(shared) - others
        if needed > left:
            said = f"{subtasks} at least {needed} calls, {max(left, 0)} are left"
            return LimitError("max_calls", f"max_calls = {most} reached: {said}")
    ahead = others + shared.in_flight
    for name, used, unit in (("max_tokens", shared.tokens, "tokens"), ("max_usd", shared.usd, "US dollars")):
        most, mean = getattr(context, name), used / max(shared.calls, 1)
        if most is not None and mean * needed > (left := most - used - mean * ahead):
            said = f"{subtasks} about {_shown(mean * needed)} {unit}, {_shown(max(left, 0))} are left"
            return LimitError(name, f"{name} = {most:g} reached: {said}")
    return None


def _shown(amount: float) -> str:
    return f"{amount:.0f}" if amount >= 100 else f"{amount:.3g}"
