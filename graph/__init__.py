"""The machine: the solver that Python users import, and the LangGraph app."""

from graph.build import make_graph
from graph.result import SolveResult, SolveTrace
from graph.solver import RecursiveTaskSolver
from nodes.change import Change
from nodes.verify import Verdict, always_accept

graph = make_graph()
"""The compiled default app: input ``{"task": str}``, context the settings."""

__all__ = [
    "Change",
    "RecursiveTaskSolver",
    "SolveResult",
    "SolveTrace",
    "Verdict",
    "always_accept",
    "graph",
    "make_graph",
]
