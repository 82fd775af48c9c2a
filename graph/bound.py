"""The bound of a run, from its settings and components."""

from frames.limits import Bound, Costs, Shape, bound
from nodes.atomize import DepthBased
from nodes.component import model_calls
from nodes.context import Context


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
    )
    costs = Costs(
        atomize=model_calls(parts.atomizer),
        decompose=model_calls(parts.decomposer),
        solve=model_calls(parts.executor),
        aggregate=model_calls(parts.aggregator),
        verify=model_calls(parts.verifier),
    )
    return bound(shape, costs)
