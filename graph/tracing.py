"""LangSmith: each node's run is named, tagged and described by its frame. Without tracing, nothing happens."""

from langgraph.runtime import Runtime
from langsmith.run_helpers import get_current_run_tree

from frames.state import State
from nodes.context import Context
from nodes.step import Step


def describe_run(role: str, state: State, runtime: Runtime[Context]) -> None:
    """Name the node's run ``solve 0.2 attempt 1`` and give it its frame, thread and checkpoint."""
    run = get_current_run_tree()
    if run is None:
        return
    frame, _, depth, attempt, _ = Step(role, state, runtime).ask.request
    run.name = f"{role} {frame} attempt {attempt}"
    run.add_tags([f"depth:{depth}", f"role:{role}"])
    info = runtime.execution_info
    where = {"thread_id": info.thread_id, "checkpoint_id": info.checkpoint_id} if info else {}
    run.add_metadata({"frame": frame, "role": role, "depth": depth, "attempt": attempt, **where})
