"""LangSmith: each node's run is named, tagged and described by its frame. Without tracing, nothing happens."""

from collections.abc import Mapping
from typing import Any, cast

from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import TracePolicy
from langsmith.run_helpers import get_current_run_tree

from frames.state import State
from graph.tracer import Tracer
from nodes.context import Context
from nodes.step import Step

_MANY = 50
"""Entries from which a list of the account is told by its length in a trace: the run's result has it whole."""

_ACCOUNT = ("traces", "calls", "notes", "gaps", "found")


def described(role: str, state: State, runtime: Runtime[Context]) -> Runtime[Context]:
    """Name the node's run ``solve 0.2 attempt 1`` and give it its frame, thread and checkpoint.

    Returns the runtime that the node is to have: its verdicts are sent as feedback.
    """
    run = get_current_run_tree()
    if run is None:
        return runtime
    frame, _, depth, attempt, _ = Step(role, state, runtime).ask.request
    run.name = f"{role} {frame} attempt {attempt}"
    run.add_tags([f"depth:{depth}", f"role:{role}"])
    run.add_metadata({"frame": frame, "role": role, "depth": depth, "attempt": attempt, **_where(runtime)})
    tracer = next((each for each in _handlers() if isinstance(each, Tracer)), None)
    if tracer is None:
        return runtime
    return runtime.override(stream_writer=tracer.watched(run, frame, role, runtime.stream_writer))


def _where(runtime: Runtime[Context]) -> dict[str, Any]:
    """Return the step's thread and checkpoint: what ``cactus replay --from-trace`` finds it by."""
    info = runtime.execution_info
    if info is None:
        return {}
    namespace = info.checkpoint_ns.rpartition("|")[0]
    return {"thread_id": info.thread_id, "checkpoint_id": info.checkpoint_id, "checkpoint_ns": namespace}


def _handlers() -> list[Any]:
    manager: Any = get_config().get("callbacks")
    return list(getattr(manager, "handlers", None) or [])


def _seen(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a trace has of a node's input: the frame at work, not the stack and the account of the whole run."""
    stack = state.get("stack")
    return {"task": state.get("task")} if not stack else {"frame": stack[-1]}


def _given(update: Any) -> Any:
    """Return what a trace has of a node's update, long lists of the account by their length."""
    if not isinstance(update, dict):
        return update
    return {name: _short(name, value) for name, value in cast("dict[str, Any]", update).items()}


def _short(name: str, value: Any) -> Any:
    if name not in _ACCOUNT or not isinstance(value, list):
        return value
    entries = cast("list[Any]", value)
    return f"{len(entries)} entries" if len(entries) > _MANY else entries


TRACED = TracePolicy(process_inputs=_seen, process_outputs=_given)
"""What traces have of a node: a state that is sent whole at every step grows with the square of the frames."""
