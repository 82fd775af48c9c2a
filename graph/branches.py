"""What the branches of an unfinished fork have done: it joins the run's account when the fork ends, or is read here."""

from collections.abc import Mapping
from typing import Any, cast

from langgraph._internal._constants import CONFIG_KEY_CHECKPOINTER
from langgraph.checkpoint.base import BaseCheckpointSaver

from frames.stack import found_so_far
from graph.build import Solver

_LISTS = ("traces", "calls", "notes", "gaps")


async def with_branches(graph: Solver, run_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's state with the account of branches that have not been joined, and the answers found so far.

    Args:
        graph: compiled with the checkpointer that keeps the run.
        run_id: the run's LangGraph thread.
        values: the run's own state; that of one that has ended is returned as it is.
    """
    saver = cast("BaseCheckpointSaver[Any] | bool | None", graph.checkpointer)
    if values.get("status") is not None or not _forks(values) or saver is None or isinstance(saver, bool):
        return dict(values)
    config: Any = {"configurable": {"thread_id": run_id}}
    names = {item.config["configurable"]["checkpoint_ns"] async for item in saver.alist(config)}  # type: ignore[typeddict-item]
    found = await _Gathering(graph, run_id, saver, names).gather(values, "")
    text = "\n\n".join(f"{result['frame']} {result['task']}\n{result['answer']}" for result in found.pop("found"))
    return {**found, "partial": text or None}


class _Gathering:
    def __init__(self, graph: Solver, run_id: str, saver: BaseCheckpointSaver[Any], names: set[str]) -> None:
        self._graph, self._run_id, self._saver, self._names = graph, run_id, saver, names

    async def gather(self, values: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return the state of the run, or of a branch, with those of its unjoined branches."""
        whole: dict[str, Any] = {**values, "found": found_so_far(values.get("stack", []))}
        if not _forks(values):
            return whole
        for name in sorted(self._branches_of(values["stack"][-1]["id"], namespace)):
            state = await self._state(name)
            if not state.get("stack"):
                continue
            branch = await self.gather(state, name)
            for key in _LISTS:
                whole[key] = [*whole.get(key, []), *branch.get(key, [])]
            whole["frames"] += branch.get("frames", 0)
            first = branch["stack"][0]
            done = branch.get("status") == "succeeded"
            answer = {"frame": first["id"], "task": first["task"], "answer": first["answer"]}
            whole["found"] = [*whole["found"], *([answer] if done else branch["found"])]
        return whole

    def _branches_of(self, frame: str, namespace: str) -> list[str]:
        """Return the checkpoint namespaces of the branches of a frame that forks."""
        prefix = f"{namespace}|fork:" if namespace else "fork:"
        below = [name for name in self._names if name.startswith(prefix) and name.count("|") == prefix.count("|") + 1]
        return [name for name in below if _frame(name).rpartition(".")[0] == frame]

    async def _state(self, namespace: str) -> dict[str, Any]:
        configurable = {"thread_id": self._run_id, "checkpoint_ns": namespace, CONFIG_KEY_CHECKPOINTER: self._saver}
        return dict((await self._graph.aget_state({"configurable": configurable})).values)


def _frame(namespace: str) -> str:
    """Return the frame of a branch by its namespace, which ends with ``branch FRAME:ID``."""
    return namespace.rpartition("|")[2].partition(":")[0].removeprefix("branch ")


def _forks(values: Mapping[str, Any]) -> bool:
    """Whether a run or branch stands at a fork whose branches have not been joined."""
    stack = values.get("stack")
    return bool(stack) and stack[-1]["phase"] == "fork" and values.get("status") is None
