"""An event loop in a thread of its own, so that synchronous callers can be served wherever they stand.

All synchronous calls of a process share one loop: clients of hosted models, which LangChain shares between
models, keep connections that belong to the loop they were opened on.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Return what ``work`` gives, whether or not an event loop runs here."""
    shared = _shared(os.getpid())  # a forked process has the object but not the thread
    return (LoopThread() if shared.is_current() else shared).run(work)


class LoopThread:
    """A running event loop; it ends when the object is collected."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cactus", daemon=True)
        self._thread.start()
        weakref.finalize(self, _stop, self._loop, self._thread)

    def is_current(self) -> bool:
        """Whether the caller stands on this very loop, so that waiting for it would never end."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` gives; an interrupted wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


@cache
def _shared(process: int) -> LoopThread:  # noqa: ARG001  # the cache's key
    return LoopThread()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(timeout=5)
    if not loop.is_running():
        loop.close()
