"""The profiles: which components each of the published systems uses, as its settings name them."""

from collections.abc import Mapping
from dataclasses import replace

from nodes import aggregate, atomize, decompose, investigate, retry, solve, verify
from nodes.context import Components
from nodes.executors.assigned import Assigned
from nodes.executors.code import Code
from nodes.executors.kindless import Kindless
from nodes.executors.passes import CrossFile, PerFile, Tiered
from nodes.executors.search import Search
from nodes.executors.think import Think
from nodes.executors.write import Write
from nodes.settings import Settings
from nodes.solve import Executor


def components(settings: Settings, own: Mapping[str, Executor] | None = None) -> Components:
    """Return the components that ``settings`` name, each asking the run's models for its role.

    ``own`` are a user's executors by kind, in place of the built-in ones.
    """
    if settings.profile == "classic":
        return classic(settings)
    return (adaptive if settings.profile == "adaptive" else roma)(settings, own or {})


def classic(settings: Settings) -> Components:
    """Return text-parsing components that work one subtask at a time."""
    depth = settings.atomizer_depth
    return Components(
        atomizer=atomize.llm_based() if depth is None else atomize.depth_based(depth),
        decomposer=decompose.llm_based(max_subtasks=settings.max_subtasks),
        executors={"": solve.direct()},
        aggregator=aggregate.llm_based(),
        verifier=verify.llm_based() if settings.verifier == "llm" else verify.always_accept(),
        retry=retry.with_feedback if settings.feedback_on_retry else retry.same_task,
    )


def roma(settings: Settings, own: Mapping[str, Executor]) -> Components:
    """Return components with structured output, and an executor for each kind of task."""
    depth = settings.atomizer_depth
    return Components(
        atomizer=atomize.structured() if depth is None else atomize.depth_based(depth),
        decomposer=decompose.planner(max_subtasks=settings.max_subtasks),
        executors=executors(settings, own),
        aggregator=aggregate.synthesizer(),
        verifier=verify.structured() if settings.verifier == "llm" else verify.always_accept(),
        retry=retry.with_feedback if settings.feedback_on_retry else retry.same_task,
    )


def adaptive(settings: Settings, own: Mapping[str, Executor]) -> Components:
    """Return the components of ``roma`` with an investigator before them, and agents that tasks are assigned to."""
    parts = roma(settings, own)
    steps = settings.max_steps
    tiered = Tiered(PerFile(max_steps=steps), CrossFile(max_steps=steps), parts.executors[""])
    agents = len(settings.agents) or 1  # the built-in ones have a capability each, of which a task requires few
    kinds = {kind: Assigned(executor, agents) for kind, executor in {**parts.executors, "": tiered}.items()}
    investigators = {
        "llm": investigate.llm_based(max_steps=settings.investigate_steps),
        "text": investigate.from_text(),
        "off": None,
    }
    decomposer = decompose.Intent(settings.max_subtasks) if settings.decomposer == "intent" else parts.decomposer
    return replace(parts, executors=kinds, investigator=investigators[settings.investigator], decomposer=decomposer)


def executors(settings: Settings, own: Mapping[str, Executor]) -> Mapping[str, Executor]:
    """Return the executor of each kind of task, and under "" the one of a task without a kind."""
    kinds: dict[str, Executor] = {
        "search": Search(max_steps=settings.max_steps),
        "think": Think(),
        "write": Write(revise=settings.revise),
        "code": Code(max_steps=settings.max_steps),
        **own,
    }
    return {"": Kindless(kinds), **kinds}
