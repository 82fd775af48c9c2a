"""What a person sees while a run works: a live tree on a terminal, plain lines elsewhere, on standard error."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from frames.text import one_line
from studio.tree import Node, Tree

FRAMES_A_SECOND = 8
_MARKS = {"done": ("✓", "green"), "failed": ("✗", "red"), "running": ("●", "cyan")}


def printable(text: str, width: int = 400) -> str:
    """Return ``text`` on one line, without characters that would move the cursor or turn the line around."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in one_line(text, width))


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
        self._console = console or Console(stderr=True)
        self._clock = clock
        self.tree = Tree()
        self._picture = Picture(self.tree, calls_bound, clock)
        self._quiet = quiet
        drawn = self._console.is_terminal and not quiet
        self._live = (
            Live(self._picture, console=self._console, refresh_per_second=FRAMES_A_SECOND, transient=False)
            if drawn
            else None
        )

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show what an event changed."""
        self.tree.apply(event, self._clock())
        if self._live is None and not self._quiet:
            line = plain_line(event)
            if line:
                self._console.print(Text(line), soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._picture.ended = True
            self._live.stop()


def plain_line(event: Mapping[str, Any]) -> str | None:
    """Return one line about an event that is worth one."""
    frame = event.get("frame")
    match event["event"]:
        case "frame":
            return f"{frame} {printable(event['task'], 100)}"
        case "plan":
            return f"{frame} split into {len(event['subtasks'])} subtasks"
        case "plan_refused":
            return f"{frame} plan refused: {printable(event['reason'])}"
        case "step" if event["role"] in {"solve", "aggregate"}:
            attempt = f" attempt {event['attempt']}" if event["role"] == "solve" else ""
            return f"{frame} {event['role']}{attempt}"
        case "verdict" if not event["accepted"]:
            return f"{frame} rejected: {printable(event['feedback'])}"
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
        self._spinner = Spinner("dots", style="cyan")
        self.ended = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max((options.height or console.size.height) - 2, 3)
        grid = Table.grid(padding=0)
        grid.add_column(no_wrap=True, overflow="ellipsis", width=options.max_width)
        for line in _folded(self._lines(console), height):
            grid.add_row(line)
        grid.add_row(self._footer())
        yield grid

    def _lines(self, console: Console) -> list[tuple[bool, Text]]:
        """Return the lines, each with whether it lies on the path being worked on."""
        lines: list[tuple[bool, Text]] = []
        path = set() if self.ended else set(self._tree.path())
        if "0" in self._tree.nodes:
            self._add(self._tree.nodes["0"], path, lines, console)
        return lines

    def _add(self, root: Node, path: set[str], lines: list[tuple[bool, Text]], console: Console) -> None:
        waiting: list[Node | tuple[str, str]] = [root]
        while waiting:
            entry = waiting.pop()
            if isinstance(entry, tuple):
                lines.append((False, Text(f"{_indent(entry[0])}· {entry[0]} {printable(entry[1])}", "dim")))
                continue
            lines.append((entry.id in path, self._line(entry, console)))
            if entry.state == "running" or (self.ended and entry.state == "failed") or entry.id == "0":
                started = [self._tree.nodes[child] for child in entry.children]
                rest = enumerate(entry.planned[len(started) :], start=len(started))
                pending = [(f"{entry.id}.{index}", task) for index, task in rest]
                waiting += reversed([*started, *pending])

    def _line(self, node: Node, console: Console) -> Text:
        mark, colour = _MARKS[node.state]
        working = node.id == self._tree.active and node.state == "running" and not self.ended
        head = self._spinner.render(console.get_time()) if working else Text(mark, colour)
        line = Text(_indent(node.id)).append_text(head if isinstance(head, Text) else Text(mark, colour))
        line.append(f" {node.id} ", "bold").append(printable(node.task, 60 if node.answer else 400))
        if working:
            attempt = f" attempt {node.attempt}" if node.attempt > 1 else ""
            line.append(f"  {node.role}{attempt} {self._clock() - node.began:.0f} s", "cyan")
        if node.note:
            line.append(f"  {printable(node.note)}", "yellow")
        elif node.state == "done" and node.answer:
            line.append(f"  {printable(node.answer)}", "dim")
        return line

    def _footer(self) -> Text:
        tree = self._tree
        most = f" of at most {self._bound}" if self._bound is not None else ""
        seconds = self._clock() - self._began
        frames = f"{len(tree.nodes)} frames, {tree.done} done"
        return Text(f"{frames} · {tree.calls} calls{most} · {tree.tokens} tokens · {seconds:.0f} s", "dim")


def _indent(frame: str) -> str:
    return "  " * min(frame.count("."), 20)


def _folded(lines: list[tuple[bool, Text]], height: int) -> list[Text]:
    """Return at most ``height`` lines: those around the last one of the path, the rest counted."""
    if len(lines) <= height:
        return [line for _, line in lines]
    last = max((index for index, (on_path, _) in enumerate(lines) if on_path), default=0)
    room = height - 2
    first = min(max(last - room * 2 // 3, 0), len(lines) - room)
    kept = [line for _, line in lines[first : first + room]]
    above, below = first, len(lines) - first - room
    head = [Text(f"… {above} more above", "dim")] if above else []
    foot = [Text(f"… {below} more below", "dim")] if below else []
    return [*head, *kept, *foot]
