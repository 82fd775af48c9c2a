"""What the branches of an unfinished fork have done: it joins the run's account when the fork ends, or is read here."""

from collections.abc import Mapping
from typing import Any, cast

from langgraph._internal._constants import CONFIG_KEY_CHECKPOINTER
from langgraph.checkpoint.base import BaseCheckpointSaver

from frames.stack import found_so_far, found_text
from graph.build import Solver

_LISTS = ("traces", "calls", "notes", "gaps")


async def with_branches(graph: Solver, run_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's state with the account of branches that have not been joined, and the answers found so far.

    Args:
        graph: compiled with the checkpointer that keeps the run.
        run_id: the run's LangGraph thread.
        values: the run's own state; that of one that has ended is returned as it is.
    """
    if values.get("status") is not None:
        return dict(values)
    found: dict[str, Any] = {**values, "found": found_so_far(values.get("stack", []))}
    saver = cast("BaseCheckpointSaver[Any] | bool | None", graph.checkpointer)
    if _forks(values) and saver is not None and not isinstance(saver, bool):
        found = await _Gathering(graph, run_id, saver).gather(values, "")
    return {**found, "partial": found_text(found.pop("found"))}


class _Gathering:
    """Reads the branches of a run. ``_spans`` are the first and the last checkpoint of each namespace, by id."""

    def __init__(self, graph: Solver, run_id: str, saver: BaseCheckpointSaver[Any]) -> None:
        self._graph, self._run_id, self._saver = graph, run_id, saver
        self._spans: dict[str, tuple[str, str]] = {}

    async def _look(self) -> None:
        config: Any = {"configurable": {"thread_id": self._run_id}}
        async for item in self._saver.alist(config):
            where: Any = item.config.get("configurable")
            id_, name = where["checkpoint_id"], where["checkpoint_ns"]
            first, last = self._spans.get(name, (id_, id_))
            self._spans[name] = (min(first, id_), max(last, id_))  # ids rise with time

    async def gather(self, values: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        """Return the state of the run, or of a branch, with those of its unjoined branches."""
        if not self._spans:
            await self._look()
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
        """Return the checkpoint namespaces of the branches of a frame that forks now, not of an earlier task's."""
        prefix = f"{namespace}|fork:" if namespace else "fork:"
        depth, since = prefix.count("|") + 1, self._spans[namespace][1]
        below = [name for name in self._spans if name.startswith(prefix) and name.count("|") == depth]
        return [name for name in below if _frame(name).rpartition(".")[0] == frame and self._spans[name][0] > since]

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
