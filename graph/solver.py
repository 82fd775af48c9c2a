"""The solver that Python users import: the machine with its components, as one object."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from frames.errors import UsageError
from frames.frame import KINDS
from frames.limits import Bound
from graph.bound import bound_of
from graph.build import Solver, make_graph
from graph.loop import run_sync
from graph.result import SolveResult
from graph.run import asked_models, finish, run
from graph.runs import Runs
from graph.store import open_store
from nodes import aggregate, atomize, profiles, retry, solve, verify
from nodes.aggregate import Aggregator
from nodes.atomize import Atomizer
from nodes.change import Change
from nodes.context import Components, Context
from nodes.decompose import Decomposer
from nodes.investigate import Investigator
from nodes.models.local import LocalServer
from nodes.models.resolve import ModelLike, Models
from nodes.settings import MODEL_ROLES
from nodes.solve import Executor
from nodes.tools.load import as_tools
from nodes.verify import Verifier


class RecursiveTaskSolver:
    """Splits a task that is too big for one call, solves the parts, checks and combines them.

    The ``classic`` profile, with the defaults of its seed (``RecursiveTaskSolver`` of tnsai's roma package).

    Args:
        solver: the model that answers atomic tasks and combines sub-results: a LangChain chat model, a
            ``provider:model`` string, or a callable ``str -> str``, sync or async.
        decomposer: splits a task: ``(task, depth) -> list[str]``; none means: solve it directly.
        atomizer: ``(task, depth) -> bool``; by default atomic from depth 3.
        verifier: ``(task, result, attempt) -> Verdict``; by default every answer is accepted.
        aggregator: ``(task, results) -> str``; by default the solver is asked.
        max_depth: depth at which every task is solved directly, 0 or more.
        max_retries: attempts per atomic task, the first included, 1 or more.
        feedback_on_retry: whether a retry is told why the last answer was rejected.
        checkpointer: where steps are kept; by default in memory, for the length of one call.
        db: where runs live, a file or ``postgresql://…``: with it they can be resumed, replayed and forked, also by
            the command line. It takes the place of ``checkpointer`` and ``store``.
        settings: further settings (``max_frames``, ``deadline``, …): see ``nodes.settings``.

    Raises:
        UsageError: a setting is out of its range, or a component is no function; the message names it.
    """

    def __init__(
        self,
        *,
        solver: ModelLike,
        decomposer: Decomposer,
        atomizer: Atomizer | None = None,
        verifier: Verifier | None = None,
        aggregator: Aggregator | None = None,
        max_depth: int = 5,
        max_retries: int = 2,
        feedback_on_retry: bool = False,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        store: BaseStore | None = None,
        db: str | Path | None = None,
        **settings: Any,
    ) -> None:
        if solver is None:  # type: ignore[reportUnnecessaryComparison]  # users may pass anything
            raise UsageError("solver is required: a chat model, provider:model or a callable str -> str")
        context = Context.checked(
            max_depth=max_depth, max_retries=max_retries, feedback_on_retry=feedback_on_retry, **settings
        )
        if decomposer is None:  # type: ignore[reportUnnecessaryComparison]  # users may pass anything
            raise UsageError("decomposer is required: a function (task, depth) -> list of subtask texts")
        _check_functions(atomizer=atomizer, decomposer=decomposer, verifier=verifier, aggregator=aggregator)
        parts = Components(
            atomizer=atomizer or atomize.depth_based(3),
            decomposer=decomposer,
            executors={"": solve.direct(solver)},
            aggregator=aggregator or aggregate.llm_based(solver),
            verifier=verifier or verify.always_accept(),
            retry=retry.with_feedback if feedback_on_retry else retry.same_task,
        )
        self._set(context.with_components(parts, Models(context.call_timeout)), checkpointer, store, db)

    @classmethod
    def roma(
        cls,
        model: ModelLike | None = None,
        *,
        atomizer: Atomizer | None = None,
        decomposer: Decomposer | None = None,
        executors: Mapping[str, Executor] | None = None,
        aggregator: Aggregator | None = None,
        verifier: Verifier | None = None,
        role_models: Mapping[str, ModelLike | Sequence[ModelLike]] | None = None,
        tools: Sequence[BaseTool | Callable[..., Any] | str] = (),
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        store: BaseStore | None = None,
        db: str | Path | None = None,
        **settings: Any,
    ) -> Self:
        """Return a solver of the ``roma`` profile: typed subtasks in a dependency graph, worked on side by side.

        Args:
            model: the model of every role; a chat model, a ``provider:model`` string, or a callable
                ``str -> str``.
            atomizer: ``(task, depth) -> bool``; by default a model judges each task.
            decomposer: ``(task, depth) -> list`` of texts, or of mappings of ``id``, ``task``, ``kind`` and
                ``depends_on``; by default a model plans.
            executors: ``(task) -> str`` by kind (search, think, write, code; "" for a task without one), in place of
                the built-in ones.
            aggregator: ``(task, results) -> str``; by default a model checks, cites and compresses.
            verifier: ``(task, result, attempt) -> Verdict``; by default a model judges each answer.
            role_models: a model, or a list of which each is asked where the one before fails, by role
                (``atomize``, …, ``solve.code``).
            tools: tools for search tasks: LangChain's, functions with a docstring, or dotted names.
            checkpointer: where its steps are kept; by default in memory, for the length of one call.
            store: where artifacts are kept; by default in memory likewise.
            db: where runs live, in place of ``checkpointer`` and ``store``: see above.
            settings: further settings (``docs``, ``parallel``, ``max_subtasks``, …): see ``nodes.settings``.

        Raises:
            UsageError: a setting is out of its range, or a component is no function; the message names it.
        """
        _check_functions(atomizer=atomizer, decomposer=decomposer, verifier=verifier, aggregator=aggregator)
        _check_executors(executors or {})
        context = Context.checked(**{"profile": "roma", **settings})
        parts = profiles.components(context, executors)
        given = {"atomizer": atomizer, "decomposer": decomposer, "aggregator": aggregator, "verifier": verifier}
        parts = replace(parts, **{name: component for name, component in given.items() if component is not None})
        models = {role: _listed(role, named) for role, named in dict(_mapping("role_models", role_models)).items()}
        if model is not None:
            models[""] = [model]
        solver = cls.__new__(cls)
        with_models = context.with_components(parts, Models(context.call_timeout), given=models, tools=as_tools(tools))
        solver._set(with_models, checkpointer, store, db)  # noqa: SLF001  # its own class
        return solver

    @classmethod
    def adaptive(
        cls,
        model: ModelLike | None = None,
        *,
        investigator: Investigator | str | None = None,
        agents: Sequence[Mapping[str, Any]] = (),
        root: str | Path | None = None,
        **given: Any,
    ) -> Self:
        """Return a solver of the ``adaptive`` profile: it looks first, then splits a task by the files it found.

        Args:
            model: the model of every role that no agent plays.
            investigator: ``(task) -> Findings`` or a mapping of ``files`` and ``observations``; by default a model
                looks below ``root``, and without one the task's own words are gone by. Or the setting: ``text`` (no
                model looks), or ``off`` (single-shot: as ``roma`` plans).
            agents: who subtasks are assigned to: mappings of ``name``, ``model``, ``tools``, ``capabilities`` (weights
                from 0 to 1) and ``instructions``.
            root: a folder whose files may be listed, searched and read.
            given: what ``roma`` takes, and settings (``max_files``, ``investigate_steps``, …): see ``nodes.settings``.

        Raises:
            UsageError: a setting is out of its range, or a component is no function; the message names it.
        """
        if isinstance(investigator, str):
            given, investigator = {**given, "investigator": investigator}, None
        _check_functions(investigator=investigator)
        named: dict[str, Any] = {"agents": [dict(agent) for agent in agents], "profile": "adaptive"}
        named |= {"root": str(root)} if root is not None else {}
        solver = cls.roma(model, **{**given, **named})
        if investigator is not None:
            parts = replace(solver.context.components, investigator=investigator)
            context = solver.context
            solver.context = context.with_components(parts, context.models)
        return solver

    @classmethod
    def agent(
        cls,
        model: ModelLike | None = None,
        *,
        verifier: Verifier | None = None,
        role_models: Mapping[str, ModelLike | Sequence[ModelLike]] | None = None,
        tools: Sequence[BaseTool | Callable[..., Any] | str] = (),
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        store: BaseStore | None = None,
        db: str | Path | None = None,
        **settings: Any,
    ) -> Self:
        """Return a solver of the ``agent`` profile: a model that writes Python and launches copies of itself.

        Args:
            model: the model that writes the code, and plays every other role that is asked for.
            verifier: ``(task, result, attempt) -> Verdict``; by default every answer is accepted.
            role_models: a model, or a list of which each is asked where the one before fails, by role (``solve``,
                ``verify``, or ``solve.code`` for subagents of that kind).
            tools: what the code can call: LangChain's tools, functions with a docstring, or dotted names.
            checkpointer: where its steps are kept; by default in memory, for the length of one call.
            store: where sessions are kept; by default in memory likewise.
            db: where runs live, in place of ``checkpointer`` and ``store``.
            settings: further settings (``agent_steps``, ``agent_tokens``, ``max_children``, …): see ``nodes.settings``.

        Raises:
            UsageError: a setting is out of its range, or a component is no function; the message names it.
        """
        named: dict[str, Any] = {**settings, "profile": "agent"}
        return cls.roma(
            model,
            verifier=verifier,
            role_models=role_models,
            tools=tools,
            checkpointer=checkpointer,
            store=store,
            db=db,
            **named,
        )

    def _set(
        self,
        context: Context,
        checkpointer: BaseCheckpointSaver[Any] | None,
        store: BaseStore | None,
        db: str | Path | None,
    ) -> None:
        if db is not None and (checkpointer or store):
            raise UsageError("db takes the place of checkpointer and store: give one or the other")
        _resolve_models(context)
        self.context = context
        self._checkpointer, self._store, self._db = checkpointer, store, db

    @property
    def bound(self) -> Bound:
        """The most frames, model calls and steps that a run can need."""
        return bound_of(self.context)

    def solve(self, task: str, *, run_id: str | None = None) -> SolveResult:
        """Return the result of ``task``; works inside a running event loop (a notebook) too."""
        return run_sync(self.asolve(task, run_id=run_id))

    async def asolve(self, task: str, *, run_id: str | None = None) -> SolveResult:
        """Return the result of ``task``."""
        if self._db is not None:
            async with self._runs() as runs:
                return await runs.outcome(runs.start(self.context, task, run_id or str(uuid.uuid4())))
        return await finish(self._graph(), self.context, task, run_id or str(uuid.uuid4()))

    async def astream(self, task: str, *, run_id: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the run's events (``frames.events``) as they happen; the last is ``end``, with the result."""
        name = run_id or str(uuid.uuid4())
        if self._db is not None:
            async with self._runs() as runs:
                async for event in runs.start(self.context, task, name):
                    yield event
            return
        async for event in run(self._graph(), self.context, task, name):
            yield event

    def resume(self, run_id: str, decisions: Mapping[str, Any] | None = None) -> SolveResult:
        """Return the result of a run of ``db``, gone on with; nothing that was answered is asked again.

        Args:
            run_id: the run's name.
            decisions: replies to the plans in its result's ``pending``, by their ``id``: see ``nodes.approve``.

        Raises:
            UsageError: there is no such run, another process works on it, or the solver has no ``db``.
        """
        return run_sync(self.aresume(run_id, decisions))

    async def aresume(self, run_id: str, decisions: Mapping[str, Any] | None = None) -> SolveResult:
        """Return the result of a run, gone on with: ``resume``."""
        async with self._runs() as runs:
            return await runs.outcome(runs.resume(self.context, run_id, decisions=decisions))

    def replay(self, run_id: str) -> SolveResult:
        """Return the result of a run of ``db``, worked through again from its journal alone.

        Raises:
            ReplayError: the solver would ask something else; the message names the frame and shows the difference.
        """
        return run_sync(self.areplay(run_id))

    async def areplay(self, run_id: str) -> SolveResult:
        """Return the result of a run, worked through again from its journal alone: ``replay``."""
        async with self._runs() as runs:
            return await runs.replay(self.context, run_id)

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events (``frames.events``) of a run of ``db``, each call with what was asked and said."""
        return run_sync(self.aevents(run_id))

    async def aevents(self, run_id: str) -> list[dict[str, Any]]:
        """Return the events of a run: ``events``."""
        async with self._runs() as runs:
            return await runs.events(run_id)

    def fork(self, run_id: str, change: Change, *, new_id: str | None = None) -> SolveResult:
        """Return the result of a new run: ``run_id`` with one frame changed, all else shared."""
        return run_sync(self.afork(run_id, change, new_id=new_id))

    async def afork(self, run_id: str, change: Change, *, new_id: str | None = None) -> SolveResult:
        """Return the result of a new run, with one frame changed: ``fork``."""
        async with self._runs() as runs:
            return await runs.outcome(runs.fork(self.context, run_id, new_id or str(uuid.uuid4()), change))

    @asynccontextmanager
    async def _runs(self) -> AsyncGenerator[Runs]:
        if self._db is None:
            raise UsageError("the solver keeps no runs: make it with db=, a file or postgresql://…")
        async with open_store(self._db) as store:
            yield Runs(store)

    def _graph(self) -> Solver:
        return make_graph(self._checkpointer or InMemorySaver(), store=self._store or InMemoryStore())

    def close(self) -> None:
        """End what was started for the solver: the embedded model."""
        self.context.models.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_functions(**components: object) -> None:
    for name, component in components.items():
        if component is not None and not callable(component):
            raise UsageError(f"{name} must be a function, not {type(component).__name__}")


def _check_executors(executors: Any) -> None:
    for kind, executor in _mapping("executors", executors).items():
        if kind not in ("", *KINDS):
            raise UsageError(f"executors: there is no kind {kind!r}: kinds are {', '.join(KINDS)}")
        _check_functions(**{f"executors[{kind!r}]": executor})


def _mapping(name: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{name} must be a mapping, not {type(given).__name__}")
    return cast("Mapping[str, Any]", given or {})


def _listed(role: str, named: ModelLike | Sequence[ModelLike]) -> list[ModelLike]:
    if role not in MODEL_ROLES:
        raise UsageError(f"role_models: there is no role {role!r}: roles are {', '.join(MODEL_ROLES)}")
    return list(cast("Sequence[ModelLike]", named)) if isinstance(named, list | tuple) else [cast("ModelLike", named)]


def _resolve_models(context: Context) -> None:
    """Resolve every model that a component or role names, so that a wrong one is refused before a run starts."""
    for model in asked_models(context):
        if isinstance(model, str):
            context.models.resolve(model)
        elif not callable(model) and not isinstance(model, Runnable | LocalServer):
            raise UsageError(f"solver must be a chat model, provider:model or a callable, not {type(model).__name__}")
