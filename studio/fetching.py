"""The progress bar of the embedded model's weights, on standard error."""

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn


class Fetching:
    """Shows how much is here: called with (bytes done, bytes in all); gone when all is."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None:
            self._console.print(f"fetching the embedded model, {total / 1e9:.1f} GB, once")
            columns = (TextColumn("  "), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
            self._bar.add_task("weights", total=total)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)
        if done >= total:
            self._bar.stop()
            self._bar = None
