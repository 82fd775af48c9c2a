"""What a person sees while a run works: a live tree on a terminal, plain lines elsewhere, on standard error."""

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from frames.text import one_line
from studio.tree import Node, Tree

FRAMES_A_SECOND = 8
FOOTER = 2  # rows below the tree: the counts and the cursor's

Entry = tuple[str, str | None]  # a line: a frame's id, and its task where it is only planned

_DROPPED = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\u200d")
_MARKS = {"done": ("✓", "green"), "failed": ("✗", "red"), "running": ("●", "cyan")}
_ASCII = str.maketrans({"✓": "+", "✗": "x", "●": "*", "·": ".", "…": "~"})  # each as wide as before

SPENT_FROM = 72
"""Columns from which on a line ends with what its frame has spent."""


def visible(text: str) -> str:
    """Return ``text`` without ANSI sequences, and U+FFFD for what would move the cursor or turn the line around.

    Joiners are dropped: terminals do not agree on how wide a joined emoji is.
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in _DROPPED.sub("", text))


def printable(text: str, width: int = 400) -> str:
    """Return the ``visible`` form of ``text`` on one line of at most ``width`` characters."""
    return visible(one_line(_DROPPED.sub("", text[: width * 8]), width))


class _BestEffort(Console):
    """A console that falls silent where nobody reads it any more, instead of ending the program."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class LiveView:
    """Shows a run: called with each event, used as a context manager.

    Args:
        calls_bound: the most model calls that the run can need.
        quiet: show nothing.
        console: where to write; by default standard error.
        clock: seconds, for the time that a step takes.
    """

    def __init__(
        self,
        calls_bound: int | None = None,
        *,
        quiet: bool = False,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or _standard_error()
        self._clock = clock
        self.tree = Tree()
        self._picture = Picture(self.tree, calls_bound, clock)
        self._quiet = quiet
        drawn = self._console.is_interactive and not quiet
        self._live = (
            Live(
                self._picture,
                console=self._console,
                refresh_per_second=FRAMES_A_SECOND,
                redirect_stdout=sys.stdout.isatty(),  # what is piped must not end up on standard error
            )
            if drawn
            else None
        )

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show what an event changed."""
        self.tree.apply(event, self._clock())
        if self._live is None and not self._quiet:
            line = plain_line(event)
            if line:
                self._print(Text(line))

    def know(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Take in what a run told before this."""
        for event in told:
            self.tree.apply(event, self._clock())
        self.tree.rest()

    def _print(self, line: Text) -> None:
        try:
            self._console.print(line, soft_wrap=True)
        except OSError:  # nobody reads it any more; the run goes on
            self._quiet = True

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._picture.ended = True
            with contextlib.suppress(OSError):
                self._live.stop()


def beside(line: Text, title: Text, about: Text, width: int) -> Text:
    """Return ``line``, ``title`` and ``about`` in a row, the title cut so that at least part of ``about`` is seen."""
    room = width - line.cell_len
    title.truncate(max(room - min(about.cell_len, max(room // 2, 26)), 1), overflow="ellipsis")
    return line.append_text(title).append_text(about)


def _standard_error() -> Console:
    """Return a console on standard error that draws on a terminal only, even where ``FORCE_COLOR`` is set."""
    return _BestEffort(stderr=True, force_terminal=None if sys.stderr.isatty() else False)


def _of_cell(event: Mapping[str, Any]) -> str:
    """Return what became of an agent's code: its error, or that it finished or waits, or what it printed."""
    launches = len(event["launches"])
    if event["error"]:
        return f"failed: {printable(event['error'].splitlines()[-1], 100)}"
    if event["finished"]:
        return "finished"
    if launches:
        return f"launched {launches} subagent{'s' * (launches > 1)}"
    return f"printed: {printable(event['output'], 100)}" if event["output"].strip() else "ran"


def plain_line(event: Mapping[str, Any]) -> str | None:  # noqa: C901  # one case an event
    """Return one line about an event that is worth one."""
    frame = event.get("frame")
    match event["event"]:
        case "frame":
            return f"{frame} {printable(event['task'], 100)}"
        case "findings":
            left_out = f", {len(event['left_out'])} left out" if event["left_out"] else ""
            files = len(event["files"])
            return f"{frame} {files} file{'s' * (files != 1)} found ({event['source']}){left_out}"
        case "assigned":
            return f"{frame} assigned to {printable(event['agent'], 40)} ({event['score']:.2f})"
        case "plan":
            return f"{frame} split into {len(event['subtasks'])} subtasks"
        case "plan_refused":
            return f"{frame} plan refused: {printable(event['reason'])}"
        case "approval" if event["decision"] != "asked":
            return f"{frame} plan {event['decision']} by a person"
        case "step" if event["role"] in {"solve", "aggregate"}:
            attempt = f" attempt {event['attempt']}" if event["role"] == "solve" else ""
            return f"{frame} {event['role']}{attempt}"
        case "verdict" if not event["accepted"]:
            return f"{frame} rejected: {printable(event['feedback'])}"
        case "tool":
            return f"{frame} {printable(event['tool'], 40)} {printable(event['arguments'], 80)}" + (
                "" if event["ok"] else " failed"
            )
        case "cell":
            return f"{frame} step {event['step']}: {_of_cell(event)}"
        case "wait":
            return f"{frame} waiting {event['seconds']:.1f} s: {printable(event['reason'])}"
        case "done":
            return f"{frame} {'done' if event['success'] else 'failed'}"
        case _:
            return None


class Picture:
    """The tree as it is drawn: the path being worked on in full, what is finished on one line each."""

    def __init__(self, tree: Tree, calls_bound: int | None, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._bound = calls_bound
        self._clock = clock
        self._began = clock()
        self._spinners = {False: Spinner("dots", style="cyan"), True: Spinner("line", style="cyan")}
        self.ended = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, width = options.height or console.size.height, options.max_width
        entries = self._entries()
        path = set() if self.ended else set(self._tree.path())
        on_path = [index for index, entry in enumerate(entries) if entry[0] in path]
        plain = options.ascii_only
        footer = [self._footer()] if height > FOOTER else []
        for item in _folded(len(entries), on_path, max(height - FOOTER, 1)):
            seconds = console.get_time()
            line = (
                self._line(entries[item], seconds, width, plain=plain)
                if isinstance(item, int)
                else _hidden(item, entries, width)
            )
            yield _fitted(line, width, plain=plain)
        for line in footer:
            yield _fitted(line, width, plain=plain)

    def _entries(self) -> list[Entry]:
        """Return the id of each line, and the task where it has not begun; finished subtrees are one line."""
        entries: list[Entry] = []
        waiting: list[Entry] = [("0", None)] if "0" in self._tree.nodes else []
        while waiting:
            frame, task = entry = waiting.pop()
            entries.append(entry)
            if task is None and self._open(self._tree.nodes[frame]):
                started: list[Entry] = [(child, None) for child in self._tree.nodes[frame].children]
                waiting += reversed([*started, *self._tree.pending(frame)])
        return entries

    def _open(self, node: Node) -> bool:
        return node.state == "running" or (self.ended and node.state == "failed") or node.id == "0"

    def _line(self, entry: Entry, seconds: float, width: int, *, plain: bool) -> Text:
        frame, task = entry
        if task is not None:
            return Text(f"{_indent(frame, width)}· {frame} {printable(task)}", "dim")
        node = self._tree.nodes[frame]
        working = frame in self._tree.working and node.state == "running" and not self.ended
        mark, colour = _MARKS[node.state]
        head = self._spinners[plain].render(seconds) if working else None
        line = Text(_indent(frame, width)).append_text(head if isinstance(head, Text) else Text(mark, colour))
        line.append(f" {frame} ", "bold red" if node.state == "failed" else "bold")
        title = Text(f"{node.kind}  " if node.kind else "", "magenta")
        title.append(printable(node.task), "red" if node.state == "failed" else "")
        spent = self._spent(node) if width >= SPENT_FROM else Text()
        line = beside(line, title, self._about(node, working=working), width - spent.cell_len)
        line.truncate(width - spent.cell_len, overflow="ellipsis", pad=True)
        return line.append_text(spent)

    def _spent(self, node: Node) -> Text:
        """Return how long a frame has taken, and what it and all below it have spent, in columns."""
        until = self._clock() if node.ended is None else node.ended
        dollars = f"{money(node.usd)}" if node.usd is not None else ""
        return Text(f" {_took(until - node.made):>6} {amount(node.tokens):>5} tok {dollars:>7}".rstrip(), "dim")

    def _about(self, node: Node, *, working: bool) -> Text:
        """Return what stands behind the task: the step under way, what went wrong, or the answer."""
        about = Text()
        if working:
            attempt = f" attempt {node.attempt}" if node.attempt > 1 else ""
            tool = f" · {printable(node.tool, 30)}" if node.tool else ""
            about.append(f"  {node.role}{attempt}{tool} {self._clock() - node.began:.0f} s", "cyan")
        if node.note:
            about.append(f"  {printable(node.note)}", "red" if node.state == "failed" else "yellow")
        elif node.state == "done" and node.answer:
            about.append(f"  {printable(node.answer)}", "dim")
        return about

    def _footer(self) -> Text:
        tree = self._tree
        most = f" of at most {self._bound}" if self._bound is not None else ""
        seconds = self._clock() - self._began
        frames = f"{len(tree.nodes)} frames, {tree.done} done"
        dollars = f" · {money(tree.usd)}" if tree.usd else ""
        return Text(f"{frames} · {tree.calls} calls{most} · {tree.tokens} tokens{dollars} · {seconds:.0f} s", "dim")


def _indent(frame: str, width: int) -> str:
    return " " * min(frame.count(".") * 2, width // 3)


def _took(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} m"
        if seconds < 6000
        else f"{seconds / 3600:.0f} h"
    )


def amount(count: int) -> str:
    """Return a number of tokens in at most five characters: ``940``, ``12.3k``, ``4.5M``."""
    return str(count) if count < 1000 else f"{count / 1e3:.1f}k" if count < 999_950 else f"{count / 1e6:.1f}M"


def money(usd: float) -> str:
    """Return US dollars, small sums with their first digits."""
    return f"${usd:.2f}" if usd >= 0.995 or not usd else f"${usd:.4f}"


def _fitted(line: Text, width: int, *, plain: bool) -> Text:
    """Return ``line`` cut to one row of ``width`` cells; ``plain``: in ASCII, for a console that has no more."""
    line.truncate(width, overflow="ellipsis")
    if plain:
        line.plain = _in_ascii(line.plain)
    line.no_wrap = True
    return line


def _in_ascii(text: str) -> str:
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text.translate(_ASCII))


def _hidden(lines: range, entries: list[Entry], width: int) -> Text:
    return Text(f"{_indent(entries[lines.start][0], width)}… {len(lines)} more", "dim")


def _folded(count: int, path: list[int], room: int) -> list[int | range]:
    """Return what fits into ``room`` rows out of ``count`` lines: lines by index, and ranges to fold into one row.

    The lines of ``path`` are kept, from the last one up, then those around the last one.
    """
    if count <= room:
        return list(range(count))
    if room < 3:
        return [path[-1] if path else 0]
    kept = path[-((room - 1) // 2) :] or [0]
    before, after = kept[-1] - 1, kept[-1] + 1
    while before >= 0 or after < count:
        wider = sorted({*kept, *(index for index in (before, after) if 0 <= index < count)})
        if len(_with_gaps(wider, count)) > room:
            break
        kept, before, after = wider, before - 1, after + 1
    return _with_gaps(kept, count)


def _with_gaps(kept: list[int], count: int) -> list[int | range]:
    """Return the indexes ``kept`` and, between them, those left out: as a range, or by index where it is one."""
    rows: list[int | range] = []
    expected = 0
    for index in [*kept, count]:
        gap = range(expected, index)
        rows += [gap] if len(gap) > 1 else list(gap)
        rows += [index] if index < count else []
        expected = index + 1
    return rows
