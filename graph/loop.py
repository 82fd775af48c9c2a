"""An event loop in a thread of its own, so that synchronous callers can be served wherever they stand.

One loop serves all calls of a solver: clients of hosted models keep connections that belong to the loop they
were opened on.
"""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A running event loop; it ends with ``close`` or when the object is collected."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name="cactus", daemon=True)
        thread.start()
        self.close = weakref.finalize(self, _stop, self._loop, thread)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` gives; an interrupted wait cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join(timeout=5)
    if not loop.is_running():
        loop.close()
