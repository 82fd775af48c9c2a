"""The bound of a run, from its settings and components."""

from dataclasses import replace

from frames.frame import KINDS
from frames.limits import Bound, Costs, Shape, agents_bound, bound
from nodes.aggregate import Synthesizer
from nodes.atomize import DepthBased
from nodes.component import model_calls
from nodes.condense import CALLS_PER_CHILD
from nodes.context import Context
from nodes.settings import ROLES


def bound_of(context: Context) -> Bound:
    """Return the most frames, model calls and steps that a run with this context can need."""
    parts = context.components
    splits_above = parts.atomizer.max_depth if isinstance(parts.atomizer, DepthBased) else context.max_depth
    shape = Shape(
        depth=context.max_depth,
        split_depth=splits_above,
        subtasks=context.max_subtasks,
        attempts=context.max_retries,
        frames=context.max_frames,
        calls=context.max_calls,
        combines=context.max_retries if context.combines_again else 1,
        sends_back=context.combines_again,
    )
    asked = {role: _models(context, role) for role in ROLES}
    plans = max(context.max_revisions, 1) if context.approve == "plan" else 1
    costs = Costs(
        atomize=model_calls(parts.atomizer) * asked["atomize"],
        decompose=model_calls(parts.decomposer) * asked["decompose"] * plans,
        solve=max(map(model_calls, parts.executors.values())) * asked["solve"],
        aggregate=model_calls(parts.aggregator) * asked["aggregate"],
        verify=model_calls(parts.verifier) * asked["verify"],
        condense=CALLS_PER_CHILD * asked["aggregate"] if isinstance(parts.aggregator, Synthesizer) else 0,
    )
    if context.profile == "adaptive":
        return _adaptive(context, shape, costs, plans)
    if context.profile == "agent":
        agents = replace(shape, subtasks=context.max_children)
        return agents_bound(agents, replace(costs, solve=asked["solve"]), context.agent_steps)
    return _approved(bound(shape, costs), plans)


def _approved(most: Bound, plans: int) -> Bound:
    """Return a bound with the steps in which a person is asked about plans."""
    return Bound({**most, "steps": most["steps"] + most["frames"] * 2 * plans}) if plans > 1 else most


def _adaptive(context: Context, shape: Shape, costs: Costs, plans: int) -> Bound:
    """Return the bound of an adaptive run: the investigation, and the dearer of a plan from findings and any other.

    The passes and their integration are solved directly. After the last attempt each further agent has one.
    """
    parts = context.components
    takeovers = max(len(context.agents) - 1, 0)
    shape = replace(shape, attempts=shape.attempts + takeovers)
    looked = model_calls(parts.investigator) * _models(context, "investigate") if parts.investigator else 0
    from_findings = (
        bound(replace(shape, depth=1, split_depth=1, subtasks=context.max_files + 1), replace(costs, atomize=0))
        if context.max_depth and parts.investigator
        else Bound(frames=1, calls=0, steps=0)
    )
    other = bound(shape, costs)
    calls = max(from_findings["calls"], other["calls"]) + looked * bool(context.max_depth)
    most = Bound(
        frames=max(from_findings["frames"], other["frames"]),
        calls=calls if context.max_calls is None else min(calls, context.max_calls),
        steps=max(from_findings["steps"], other["steps"]) + 2,
    )
    return _approved(most, plans)


def _models(context: Context, role: str) -> int:
    """Return the most models that one question may be put to: a refusal by one is a reply, and the next is asked."""
    names = [role, *(f"{role}.{kind}" for kind in KINDS)]
    return max((context.fallbacks(name) for name in names), default=1)
