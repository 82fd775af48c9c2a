"""A step of a run by its checkpoint, as a trace has it, in the run itself or in a branch of a fork."""

from typing import Any, cast

from langgraph._internal._constants import CONFIG_KEY_CHECKPOINTER
from langgraph.checkpoint.base import BaseCheckpointSaver

from frames.errors import UsageError
from frames.text import one_line
from graph.build import make_graph


async def stack_from_trace(saver: BaseCheckpointSaver[Any], thread: str, checkpoint: str) -> dict[str, Any]:
    """Return where a run stood at a checkpoint: before the step that the checkpoint's id is in the trace of.

    Args:
        saver: keeps the run.
        thread: the trace's ``thread_id``, which is the run's name.
        checkpoint: the ``checkpoint_id`` of one of its steps.

    Returns:
        ``run_id``, ``checkpoint_id``, ``checkpoint_ns`` (empty outside of any branch), ``branch`` (its frame's id or
        ``None``), ``step``, ``next`` (the nodes), ``above`` (the frames above the branch) and the ``stack``.

    Raises:
        UsageError: the thread has no such checkpoint.
    """
    where = {"thread_id": thread, "checkpoint_id": checkpoint}
    found = [item.config async for item in saver.alist({"configurable": where})]
    if not found:
        raise UsageError(
            f"run {one_line(thread, 60)!r} has no checkpoint {one_line(checkpoint, 60)!r}: give thread_id and "
            "checkpoint_id as a step's trace has them, and the --db that keeps the run"
        )
    namespace = str(cast("dict[str, Any]", found[0].get("configurable"))["checkpoint_ns"])
    configurable = {**where, "checkpoint_ns": namespace, CONFIG_KEY_CHECKPOINTER: saver}
    snapshot = await make_graph(saver).aget_state({"configurable": configurable})
    return {
        "run_id": thread,
        "checkpoint_id": checkpoint,
        "checkpoint_ns": namespace,
        "branch": _branch(namespace),
        "step": (snapshot.metadata or {}).get("step", 0),
        "next": list(snapshot.next),
        "above": snapshot.values.get("above") or [],
        "stack": snapshot.values.get("stack") or [],
    }


def _branch(namespace: str) -> str | None:
    """Return the frame of a branch by its namespace, whose last part is ``branch FRAME:ID``."""
    last = namespace.rpartition("|")[2].partition(":")[0]
    return last.removeprefix("branch ") if last.startswith("branch ") else None
