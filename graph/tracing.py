"""LangSmith: each node's run is named, tagged and described by its frame. Without tracing, nothing happens."""

from langgraph.runtime import ExecutionInfo
from langsmith.run_helpers import get_current_run_tree

from frames.state import State


def describe_run(role: str, state: State, info: ExecutionInfo | None) -> None:
    """Name the node's run ``solve 0.2 attempt 1`` and give it its frame, thread and checkpoint."""
    run = get_current_run_tree()
    if run is None:
        return
    stack = state.get("stack") or []
    frame, depth, attempt = ("0", 0, 1) if not stack else (stack[-1]["id"], stack[-1]["depth"], stack[-1]["attempt"])
    run.name = f"{role} {frame} attempt {attempt}"
    run.add_tags([f"depth:{depth}", f"role:{role}"])
    where = {"thread_id": info.thread_id, "checkpoint_id": info.checkpoint_id} if info else {}
    run.add_metadata({"frame": frame, "role": role, "depth": depth, "attempt": attempt, **where})
