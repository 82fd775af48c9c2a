"""Trees of plans to follow: each subtask, those it depends on, and its own plan."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from frames.frame import KINDS
from graph import RecursiveTaskSolver, always_accept


@dataclass
class Node:
    """A subtask of a random plan: the places of those it depends on, and its own plan (none: it is a leaf)."""

    needs: list[int]
    plan: "list[Node]" = field(default_factory=list)


@st.composite
def plans(draw: st.DrawFn, depth: int = 2, most: int = 4) -> list[Node]:
    """Draw a plan of one to ``most`` subtasks that depend on earlier ones, planned themselves or not."""
    nodes = []
    for place in range(draw(st.integers(1, most))):
        needs = draw(st.lists(st.sampled_from(range(place)), unique=True, max_size=2)) if place else []
        inner = draw(plans(depth=depth - 1, most=3)) if depth > 1 and draw(st.booleans()) else []
        nodes.append(Node(needs, inner))
    return nodes


def named(plan: list[Node], prefix: str = "0") -> dict[str, Node]:
    """Return every node below ``prefix`` by its frame's id."""
    found = {f"{prefix}.{place}": node for place, node in enumerate(plan)}
    return found | {id_: inner for name, node in list(found.items()) for id_, inner in named(node.plan, name).items()}


def solver(plan: list[Node], work: Any, **options: Any) -> RecursiveTaskSolver:
    """Return a solver that follows ``plan`` and does each leaf by ``await work(frame)``."""
    nodes = named(plan)

    def split(task: str, depth: int) -> list[dict[str, Any]]:
        inner = plan if task == "0" else nodes[task].plan
        return [
            {"id": str(place), "task": f"{task}.{place}", "kind": "think", "depends_on": node.needs}
            for place, node in enumerate(inner)
        ]

    async def solve(text: str) -> str:
        return await work(text.partition("\n")[0]) or f"re {text}"

    return RecursiveTaskSolver.roma(
        lambda prompt: "never asked",
        atomizer=lambda task, depth: False,
        decomposer=split,
        executors=dict.fromkeys(KINDS, solve),
        aggregator=lambda task, results: f"{task}({' '.join(result['answer'] for result in results)})",
        verifier=options.pop("verifier", always_accept()),
        **{"max_subtasks": 9, "max_depth": 9, "parallel": 99, **options},
    )
