"""What is sent to LangSmith of a run: a trace within its limits, the costs of model calls, verdicts as feedback."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast
from uuid import UUID

from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import tracing_v2_callback_var
from langchain_core.tracers.langchain import LangChainTracer
from langchain_core.tracers.schemas import Run
from langsmith import Client
from langsmith.run_helpers import get_tracing_context
from langsmith.utils import LangSmithError, tracing_is_enabled  # pyright: ignore[reportUnknownVariableType]
from typing_extensions import override

from frames.state import Call
from frames.text import estimate_tokens, one_line
from graph.result import Cost

MOST_RUNS = 24_000
"""Runs that are sent of one trace: LangSmith takes 25,000, and the program around may have some of its own."""

_ROLES = ("solve", "aggregate")

_START = "__start__"  # LangGraph's own step, which only takes the input

_PATIENCE = 10
"""Seconds that the feedback of a trace waits for its runs to be sent."""

_log = logging.getLogger("cactus")


def tracing() -> bool:
    """Whether traces are sent, which the environment (``LANGSMITH_TRACING``) or a ``tracing_context`` says."""
    return bool(tracing_is_enabled())


def tracer(cost: Cost) -> "list[Tracer]":
    """Return the tracer of a run that starts; none where nothing is traced, or whoever calls the run traces it.

    Args:
        cost: says what a call cost.
    """
    calling = var_child_runnable_config.get() or {}
    if not tracing() or tracing_v2_callback_var.get() or calling.get("callbacks"):
        return []
    where = get_tracing_context()
    parent = where["parent"]
    named = parent.session_name if parent else where["project_name"]
    client = parent.client if parent else where["client"]
    return [Tracer(project_name=named, client=client, tags=where["tags"], metadata=where["metadata"]).priced(cost)]


@dataclass(frozen=True)
class _Verdict:
    """A verdict on an answer, and the runs in which it was given and judged."""

    run: UUID
    judge: UUID
    accepted: bool
    feedback: str


@dataclass
class _Sent:
    """What was sent of a trace: the first run, how many in all, those left out, and the frame at which it was cut."""

    most: int = field(default_factory=lambda: MOST_RUNS)
    root: Run | None = None
    count: int = 0
    left_out: int = 0
    missing: set[UUID] = field(default_factory=set[UUID])
    cut_at: str | None = None
    answers: dict[str, UUID] = field(default_factory=dict[str, UUID])
    verdicts: list[_Verdict] = field(default_factory=list[_Verdict])

    def notice(self) -> dict[str, Any]:
        """Return what the trace's first run says of its completeness."""
        if self.cut_at is None:
            return {"trace_complete": True}
        return {
            "trace_complete": False,
            "trace_cut": f"cut at frame {self.cut_at} after {self.most:,} runs, for LangSmith takes 25,000 of a trace; "
            "the run itself is whole: `cactus show` has all of it",
            "runs_left_out": self.left_out,
        }


class Tracer(LangChainTracer):
    """Sends the runs of one trace, the first ``MOST_RUNS`` of them: each of these with all runs above it.

    The trace's first run says whether it is complete (``trace_complete``), and where it was cut. Model runs get what
    they cost; verdicts are sent when the trace has ended, by a thread of their own.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cost: Cost = lambda _call: None
        self._sent = _Sent()

    def priced(self, cost: Cost) -> Self:
        """Return this tracer, which knows what calls cost."""
        self._cost = cost
        return self

    @override
    def copy_with_metadata_defaults(self, *, metadata: Any = None, tags: Any = None) -> LangChainTracer:
        copy = cast("Tracer", super().copy_with_metadata_defaults(metadata=metadata, tags=tags))
        copy._cost, copy._sent = self._cost, self._sent  # noqa: SLF001  # its own class
        return copy

    def watched(self, run: Any, frame: str, role: str, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return ``tell``, the events of a step, which takes its verdict down on the way.

        Args:
            run: the step's run.
            frame: the frame at work.
            role: the node's name.
            tell: takes the events.
        """
        if role in _ROLES:
            self._sent.answers[frame] = run.id

        def watch(event: Any) -> None:
            if event.get("event") == "verdict":
                self._take(run.id, event)
            tell(event)

        return watch if role == "verify" else tell

    def _take(self, judge: UUID, event: Mapping[str, Any]) -> None:
        run = self._sent.answers.get(event["frame"], judge)
        if not self._sent.missing.intersection((run, judge)):
            self._sent.verdicts.append(_Verdict(run, judge, event["accepted"], event["feedback"]))

    # --- the limit ----------------------------------------------------------------------------------------

    @override
    def _start_trace(self, run: Run) -> None:
        super()._start_trace(run)
        sent = self._sent
        sent.root = sent.root or run
        if run.name == _START:
            sent.missing.add(run.id)
            return
        about: dict[str, Any] = run.metadata
        if run.run_type == "llm" and "frame" in about:
            run.name = f"{about['role']} {about['frame']} attempt {about['attempt']}"
        if sent.count < sent.most:
            sent.count += 1
            return
        sent.left_out += 1
        sent.missing.add(run.id)
        if sent.cut_at is None:
            sent.cut_at = self._frame(run)
            self._say_cut(sent.root)

    def _say_cut(self, root: Run) -> None:
        """Say on the first run that the trace is cut, at once: it may never end."""
        root.add_metadata(self._sent.notice())
        root.add_tags("trace-cut")
        self.client.update_run(
            root.id, trace_id=root.trace_id, dotted_order=root.dotted_order, extra=root.extra, tags=root.tags
        )

    def _frame(self, run: Run) -> str:
        """Return the frame that a run is about: its own, or that of a run above it."""
        about: Run | None = run
        while about:
            top = cast("dict[str, Any]", about.inputs).get("frame")
            own = cast("dict[str, Any]", top).get("id") if isinstance(top, dict) else None
            named = own or about.metadata.get("frame")
            if named:
                return str(named)
            about = self.run_map.get(str(about.parent_run_id))
        return "0"

    @staticmethod
    @override
    def _add_child_run(parent_run: Run, child_run: Run) -> None:
        """Keep no tree in memory: nothing reads it, and it may be large."""

    @override
    def _persist_run_single(self, run: Run) -> None:
        if run.id not in self._sent.missing:
            super()._persist_run_single(run)

    @override
    def _update_run_single(self, run: Run) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if run.id in self._sent.missing:
            self._sent.missing.discard(run.id)
            return
        if run.run_type == "llm":
            _price(run, self._cost)
        if run is self._sent.root:
            run.add_metadata(self._sent.notice())
        super()._update_run_single(run)
        if run is self._sent.root:
            self._send_verdicts(run)

    def _send_verdicts(self, root: Run) -> None:
        verdicts, self._sent.verdicts = self._sent.verdicts, []
        if verdicts and self.client.tracing_mode != "otel":
            args = (self.client, root.session_name, root.trace_id, verdicts)
            threading.Thread(target=_send, args=args, name="cactus feedback").start()


def _send(client: Client, project: str, trace: UUID, verdicts: list[_Verdict]) -> None:
    """Send verdicts as feedback, as far as LangSmith takes it: nothing of a run depends on it."""
    try:
        client.flush(timeout=_PATIENCE)  # a new project is made by its first runs
        session = client.read_project(project_name=project).id
        for verdict in verdicts:
            client.create_feedback(
                verdict.run,
                "accepted",
                score=int(verdict.accepted),
                comment=verdict.feedback or None,
                trace_id=trace,
                session_id=session,
                feedback_source_type="model",
                source_run_id=verdict.judge,
                stop_after_attempt=2,
            )
    except (LangSmithError, OSError, ValueError) as error:
        _log.warning("LangSmith took no feedback: %s", one_line(str(error), 300))


def _price(run: Run, cost: Cost) -> None:
    """Give a model's run its tokens, estimated where the model reports none, and what they cost in US dollars."""
    metadata: dict[str, Any] = run.metadata
    counted: dict[str, Any] | None = metadata.get("usage_metadata")
    if counted is None and run.outputs is None:
        return
    used = counted or _estimated(run)
    given, got = used["input_tokens"], used["output_tokens"]
    call = Call(
        frame="", role="", attempt=1, model=str(metadata.get("model")), input_tokens=given, output_tokens=got,
        estimated=counted is None,
    )  # fmt: skip
    whole, asked = cost(call), cost({**call, "output_tokens": 0})
    if whole is not None and asked is not None:
        used = {**used, "input_cost": asked, "output_cost": whole - asked, "total_cost": whole}
    run.add_metadata({"usage_metadata": used, "usage_estimated": counted is None})


def _estimated(run: Run) -> dict[str, Any]:
    inputs, outputs = cast("dict[str, Any]", run.inputs), cast("dict[str, Any]", run.outputs or {})
    messages: list[list[dict[str, Any]]] = inputs.get("messages", [])
    generations: list[list[dict[str, Any]]] = outputs.get("generations", [])
    said = "".join(_content(each) for batch in messages for each in batch)
    replied = "".join(str(each.get("text", "")) for batch in generations for each in batch)
    given, got = estimate_tokens(said), estimate_tokens(replied)
    return {"input_tokens": given, "output_tokens": got, "total_tokens": given + got}


def _content(message: Mapping[str, Any]) -> str:
    return str(message.get("kwargs", {}).get("content", ""))
