"""What a run gives: the result of the Python API, which is also the JSON document of the command line."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from frames.limits import DIRECTLY, Bound
from frames.state import SCHEMA, Call, Status
from frames.trace import Trace, TraceType
from nodes.journal import Journal

Cost = Callable[[Call], float | None]
"""Says what a call cost in US dollars; ``None`` where nobody knows."""


@dataclass(frozen=True)
class SolveTrace:
    """One decision: see ``frames.trace``."""

    type: TraceType
    task: str
    detail: str
    depth: int
    attempt: int
    frame: str


@dataclass(frozen=True)
class SolveResult:
    """The outcome of a run.

    ``output`` is the accepted answer, ``None`` where there is none. ``partial`` is what was found before a
    limit was reached. ``gaps`` say which frames have no answer and why, ``notes`` what the machine decided and
    why. ``usage`` counts the model calls that gave a reply. ``pending`` are the plans that wait for a person.
    """

    success: bool
    output: str | None
    traces: list[SolveTrace]
    duration_ms: int
    status: Status
    run_id: str
    partial: str | None = None
    gaps: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    frames: int = 0
    bound: Bound | None = None
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document, its ``schema`` first; ``pending`` is there only where something is."""
        fields = asdict(self)
        if not self.pending:
            del fields["pending"]
        return {"schema": SCHEMA, "run_id": self.run_id, "status": self.status, **fields}


def from_dict(document: Mapping[str, Any]) -> SolveResult:
    """Return the result that ``to_dict`` made a document of."""
    traces: Any = [SolveTrace(**trace) for trace in document["traces"]]
    fields: dict[str, Any] = {
        name: value for name, value in document.items() if name in SolveResult.__dataclass_fields__
    }
    return SolveResult(**{**fields, "traces": traces})


def from_state(
    values: Mapping[str, Any],
    run_id: str,
    bound: Bound | None,
    unfinished: Status = "interrupted",
    saved: str | None = None,
    journal: Journal | None = None,
    cost: Cost = lambda _call: None,
) -> SolveResult:
    """Return the result that a run's state holds; ``unfinished`` is the status of one that has not ended.

    ``saved`` is when the state was saved, in ISO 8601: how long an unfinished run took until then. ``journal`` has
    the account of a run that has one: the state does not know of calls whose step was not saved.
    """
    ended = values.get("status") is not None
    return SolveResult(
        success=bool(values.get("success")) and ended,
        output=values.get("output") if ended else None,
        traces=[SolveTrace(**trace) for trace in values.get("traces", [])],
        duration_ms=values.get("duration_ms", 0) if ended else _until(values.get("started"), saved),
        status=values["status"] if ended else unfinished,
        run_id=run_id,
        partial=values.get("partial"),
        gaps=_current(values.get("gaps", []), values.get("traces", [])),
        notes=values.get("notes", []),
        frames=values.get("frames", 0),
        bound=bound,
        usage=usage(values.get("calls", []), journal, cost),
    )


def _current(gaps: list[str], traces: list[Trace]) -> list[str]:
    """Return the last gap of each frame that has no accepted answer: a frame may have been done anew since.

    That a limit had a frame solved directly is said whatever became of it.
    """
    accepted: dict[str, bool] = {}
    for trace in traces:
        if trace["type"] == "VERIFIED":
            accepted[trace["frame"]] = trace["detail"].startswith("ACCEPTED")
    last = {(gap.partition(": ")[0], gap.endswith(DIRECTLY)): gap for gap in gaps}
    return [gap for (frame, directly), gap in last.items() if directly or not accepted.get(frame)]


def _until(started: float | None, saved: str | None) -> int:
    if started is None or saved is None:
        return 0
    return max(0, round((datetime.fromisoformat(saved).timestamp() - started) * 1000))


def usage(made: list[Call], journal: Journal | None = None, cost: Cost = lambda _call: None) -> dict[str, Any]:
    """Return the account of the calls of a run: those of its journal where it has one; totals, by frame and role."""
    calls = journal.calls() if journal and not journal.empty else made
    return {
        "calls": len(calls),
        "repeated_calls": journal.repeated if journal else 0,
        "replayed_calls": journal.recalled if journal else 0,
        "saved_calls": journal.saved_calls() if journal else 0,
        **_sums(calls, cost),
        "estimated": any(call["estimated"] for call in calls),
        "by_frame": _grouped(calls, "frame", cost),
        "by_role": _grouped(calls, "role", cost),
    }


def _sums(calls: list[Call], cost: Cost) -> dict[str, Any]:
    """Return tokens and US dollars; these are unknown where one call's are."""
    costs = [cost(call) for call in calls]
    known = [each for each in costs if each is not None]
    return {
        "input_tokens": sum(call["input_tokens"] for call in calls),
        "output_tokens": sum(call["output_tokens"] for call in calls),
        "usd": sum(known) if known and len(known) == len(costs) else None,
    }


def _grouped(calls: list[Call], key: str, cost: Cost) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call[key], []).append(call)  # type: ignore[literal-required]
    return {name: {"calls": len(made), **_sums(made, cost)} for name, made in groups.items()}
