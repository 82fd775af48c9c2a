"""Plans that wait for a person, at the terminal: shown, and decided on by exact words.

``decide`` asks whoever sits there; ``decisions_from`` reads options. Both give what ``Command(resume=...)`` takes:
the replies of ``nodes.approve`` by interrupt id. What is not decided goes on waiting.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import click
import yaml
from langgraph.types import Interrupt
from rich.console import Console
from rich.text import Text

from frames import plan as plans
from frames.errors import UsageError
from frames.frame import KINDS, Named, Subtask
from nodes.approve import listed
from nodes.decompose import said_of_form
from studio.live import visible

HELP = "a approve, e edit, r TEXT reject; q leaves the rest waiting"
HELP_FOR_SEVERAL = "a FRAME approve, e FRAME edit, r FRAME TEXT reject; q leaves the rest waiting"

_FRAME = r"0(?:\.\d+)*"
_LINE = re.compile(
    rf"(?:(?P<before>{_FRAME})\s+)?(?P<verb>approve|a|edit|e|reject|r)(?:\s+(?P<rest>.+))?",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_FRAME_FIRST = re.compile(rf"(?P<frame>{_FRAME})(?:\s+(?P<text>.+))?", re.DOTALL | re.ASCII)
_ACTIONS: dict[str, Literal["approve", "edit", "reject"]] = {"a": "approve", "e": "edit", "r": "reject"}
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True)
class Pending:
    """A plan that waits for a decision: the interrupt's id, and its value (``nodes.approve.Question``)."""

    id: str
    value: dict[str, Any]

    @property
    def frame(self) -> str:
        """The frame whose plan it is."""
        return self.value["frame"]


@dataclass(frozen=True)
class Decision:
    """A line that was understood: what is to be done with which plan; ``text`` is a rejection's."""

    pending: Pending
    action: Literal["approve", "edit", "reject"]
    text: str = ""


def pendings_of(interrupts: Iterable[Interrupt]) -> list[Pending]:
    """Return the plans that wait among the interrupts of a state (``(await graph.aget_state(...)).interrupts``)."""
    values: list[tuple[str, Any]] = [(each.id, each.value) for each in interrupts]
    found = [Pending(id_, value) for id_, value in values if isinstance(value, dict) and value.get("kind") == "plan"]
    return sorted(found, key=lambda pending: [int(part) for part in pending.frame.split(".")])


# --- what is shown -------------------------------------------------------------------------------------------


def shown(pendings: Sequence[Pending]) -> Text:
    """Return the plans that wait, each under its frame and task."""
    return Text("\n\n").join([_shown(pending.value) for pending in pendings])


def _shown(question: Mapping[str, Any]) -> Text:
    text = Text().append("plan of ", "dim").append(question["frame"], "bold").append(f"  {_kept(question['task'], 4)}")
    for line in listed(question["plan"]).splitlines():
        text.append(f"\n  {visible(line)}")
    if question.get("difference"):
        text.append("\n  not the plan that was approved:", "yellow")
        for line in question["difference"].splitlines()[2:]:  # the first two name the sides
            text.append(f"\n    {visible(line)}", _COLOURS.get(line[:1], ""))
    if question["revision"]:
        text.append(f"\n  {_left(question)}", "dim")
    if question["problem"]:
        text.append(f"\n  not taken: {_kept(question['problem'], 4)}", "yellow")
    return text


def _left(question: Mapping[str, Any]) -> str:
    made, left = question["revision"], question["revisions_left"]
    rejected = f"rejected {'once' if made == 1 else f'{made} times'}"
    if left > 1:
        return f"{rejected}; {left} rejections are left"
    return f"{rejected}; the next rejection has the task solved without a plan"


def _kept(text: str, indent: int) -> str:
    """Return ``text`` with its lines, those after the first indented, without what would move the cursor."""
    return ("\n" + " " * indent).join(map(visible, text.splitlines()))


# --- what is typed -------------------------------------------------------------------------------------------


def read_decision(line: str, pendings: Sequence[Pending]) -> Decision | str:
    """Return the decision that a typed line is, or why it is none.

    A line is ``a``, ``e`` or ``r TEXT``, or the whole word, with the frame's id before or after it. The id may be
    left out where one plan waits. Nothing else is a decision, however much it resembles one.
    """
    match = _LINE.fullmatch(line.strip())
    if not match:
        return f"that is no decision: {HELP_FOR_SEVERAL if len(pendings) > 1 else HELP}"
    action, frame, rest = _ACTIONS[match["verb"][0].lower()], match["before"], match["rest"] or ""
    named = None if frame else _FRAME_FIRST.fullmatch(rest)
    if named:
        frame, rest = named["frame"], named["text"] or ""
    if action != "reject" and rest:
        return f"that is no decision: {HELP_FOR_SEVERAL if len(pendings) > 1 else HELP}"
    if frame is None and len(pendings) > 1:
        return f"several plans wait; name the frame of one: {_waiting(pendings)}"
    found = [pending for pending in pendings if frame in (None, pending.frame)]
    if not found:
        return f"no plan of {frame} waits; those that do: {_waiting(pendings)}"
    if action == "reject" and not rest:
        return "say what to change: r TEXT"
    return Decision(found[0], action, rest)


def _waiting(pendings: Iterable[Pending]) -> str:
    return ", ".join(pending.frame for pending in pendings)


def decide(
    pendings: Sequence[Pending],
    read: Callable[[str], str] | None = None,
    console: Console | None = None,
    edit: Callable[[str], str | None] | None = None,
) -> dict[str, Any]:
    """Ask about each plan until all are decided, or whoever is asked types ``q`` or Ctrl-C, or ends the input.

    Args:
        pendings: the plans that wait.
        read: gives the line typed at a prompt, as ``input`` does; by default the prompt stands on standard error.
        console: where plans are shown; by default standard error.
        edit: has a text edited; ``None`` where it was left as it is. By default the program that ``VISUAL`` or
            ``EDITOR`` names, or without one the lines typed up to a single dot.

    Returns:
        The replies by interrupt id, for ``Command(resume=...)``.
    """
    asking = _Asking(pendings, read or _read_line, console or Console(stderr=True), edit)
    asking.run()
    return asking.replies


def _read_line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


class _Asking:
    """One round of questions. ``drafts`` are edits that would not do, by interrupt id: the next edit begins there."""

    def __init__(
        self,
        pendings: Sequence[Pending],
        read: Callable[[str], str],
        console: Console,
        edit: Callable[[str], str | None] | None,
    ) -> None:
        self.waiting = list(pendings)
        self.replies: dict[str, Any] = {}
        self.drafts: dict[str, str] = {}
        self._read, self._console, self._edit = read, console, edit or self._edited

    def run(self) -> None:
        self._say(shown(self.waiting))
        while self.waiting:
            try:
                line = self._read(f"{HELP_FOR_SEVERAL if len(self.waiting) > 1 else HELP}\n> ")
            except (EOFError, KeyboardInterrupt):
                return
            if line.strip().lower() == "q":
                return
            self._take(line)

    def _take(self, line: str) -> None:
        decision = read_decision(line, self.waiting)
        if isinstance(decision, str):
            self._say(Text(visible(decision), "yellow"))
            return
        reply = self._reply(decision)
        if reply is not None:
            self.waiting.remove(decision.pending)
            self.replies[decision.pending.id] = reply

    def _reply(self, decision: Decision) -> Any:
        """Return what is resumed with; ``None`` where an edit came to nothing, which has been said."""
        if decision.action == "approve":
            return "approve"
        if decision.action == "reject":
            return {"action": "reject", "text": decision.text}
        question = decision.pending.value
        before = self.drafts.get(decision.pending.id) or as_yaml(question["plan"], question)
        after = self._edit(before)
        plan = question["plan"] if after is None else read_plan(after, question)
        if after is None or plan == question["plan"]:
            self._say(Text("the plan is as it was; `a` approves it", "yellow"))
            return None
        if isinstance(plan, str):
            self.drafts[decision.pending.id] = after
            self._say(Text(_kept(f"{plan}; `e` goes on editing", 2), "yellow"))
            return None
        return {"action": "edit", "plan": plan}

    def _edited(self, text: str) -> str | None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            return self._typed(text)
        try:
            return click.edit(text, editor=editor, extension=".yaml")
        except (click.ClickException, ValueError) as error:  # ValueError: open quotes in EDITOR, or no UTF-8 text
            self._say(Text(visible(str(error)), "yellow"))
            return None

    def _typed(self, text: str) -> str | None:
        """Return the lines typed up to a single dot; ``None`` where there were none."""
        self._say(Text(_kept(text, 0)))
        lines: list[str] = []
        line = self._line("type the plan anew, a single . ends it (set EDITOR for an editor)\n")
        while line is not None and line.strip() != ".":
            lines.append(line)
            line = self._line("")
        return "\n".join(lines) if any(map(str.strip, lines)) and line is not None else None

    def _line(self, prompt: str) -> str | None:
        try:
            return self._read(prompt)
        except EOFError:
            return None

    def _say(self, text: Text) -> None:
        self._console.print(text, soft_wrap=not self._console.is_terminal)


# --- plans as YAML -------------------------------------------------------------------------------------------


def as_yaml(plan: Sequence[Subtask], question: Mapping[str, Any]) -> str:
    """Return a plan as text to be edited."""
    entries = [{name: value for name, value in subtask.items() if value or name == "id"} for subtask in plan]
    about = " ".join(f"plan of {question['frame']}: {question['task']}".split())
    head = f"# {about}\n# kind ({', '.join(KINDS)}) and depends_on (ids of the plan) may be left out\n"
    return head + yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)


def read_plan(text: str, question: Mapping[str, Any]) -> list[Subtask] | str:
    """Return the plan that an edited text is, or what is wrong with it; the run checks it once more by its settings."""
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        return f"that is no YAML: {str(error) or type(error).__name__}"
    if isinstance(entries, dict) and set(cast("dict[str, Any]", entries)) == {
        "subtasks"
    }:  # as a model's plan is written
        entries = cast("dict[str, Any]", entries)["subtasks"]
    path = [Named(id=question["frame"], task=question["task"])]
    try:
        plan = plans.from_entries(entries, question["plan"])
        follows = any(subtask["depends_on"] for subtask in plan)
        (plans.check_graph if follows else plans.check)(plan, path, None)
    except plans.PlanFormError as fault:
        return f"that is no plan: {said_of_form(fault)}"
    except plans.PlanError as fault:
        return f"that is no plan: {fault}"
    return plan or "that is no plan: it has no subtask"


# --- options -------------------------------------------------------------------------------------------------


def decisions_from(options: Sequence[str], pendings: Sequence[Pending]) -> dict[str, Any]:
    """Return the replies that options give, by interrupt id.

    An option is ``FRAME=approve``, ``FRAME=reject:TEXT`` or ``FRAME=@plan.yaml`` (an edited plan), and
    ``all=approve`` for every plan that no other option names.

    Raises:
        UsageError: the form or the frame is unknown, a frame is named twice, or the file holds no plan.
    """
    by_frame = {pending.frame: pending for pending in pendings}
    replies: dict[str, Any] = {}
    for option in (given for given in options if given != "all=approve"):
        frame, _, said = option.partition("=")
        reply = _option(option, said)
        if frame not in by_frame:
            waiting = f"those that do: {_waiting(pendings)}" if pendings else "none does"
            raise UsageError(f"{option!r}: no plan of frame {frame!r} waits for a decision; {waiting}")
        if by_frame[frame].id in replies:
            raise UsageError(f"{option!r}: frame {frame} is decided on twice")
        if isinstance(reply, Path):
            reply = {"action": "edit", "plan": _from_file(option, reply, by_frame[frame].value)}
        replies[by_frame[frame].id] = reply
    if "all=approve" in options:
        replies = {**{pending.id: "approve" for pending in pendings}, **replies}
    return replies


def _option(option: str, said: str) -> Any:
    """Return the reply that stands behind the ``=`` of an option; the path of a plan that is to be read."""
    if said == "approve":
        return "approve"
    if said.startswith("reject:") and said.removeprefix("reject:").strip():
        return {"action": "reject", "text": said.removeprefix("reject:").strip()}
    if said.startswith("@") and said != "@":
        return Path(said[1:])
    raise UsageError(
        f"{option!r} is no decision: give FRAME=approve, FRAME=reject:TEXT, FRAME=@plan.yaml or all=approve"
    )


def _from_file(option: str, file: Path, question: Mapping[str, Any]) -> list[Subtask]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option!r}: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{option!r}: {file} is no UTF-8 text (byte {error.start})") from error
    plan = read_plan(text, question)
    if isinstance(plan, str):
        raise UsageError(f"{option!r}: {file}: {plan}")
    return plan
