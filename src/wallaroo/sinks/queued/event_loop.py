"""An event loop in a thread of its own, for asyncio clients.

Where it runs: driver, beside a committer's thread.

The loop runs as long as the session, so that a client answers its server's pings while there is no
output.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from wallaroo.sinks.queued.system import BROKEN_OFF, DeliveryError

CLOSE_S_MAX = 1.0
Answer = TypeVar("Answer")


class EventLoop:
    """A loop that runs one coroutine at a time for another thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="wallaroo-sink-loop", daemon=True)
        self._running: concurrent.futures.Future[Any] | None = None
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Return a coroutine's result.  Raises what it raised; DeliveryError after `cancel`."""
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._running = running
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise DeliveryError(BROKEN_OFF, True) from None

    def cancel(self) -> None:
        """Cancel the running coroutine.  Called from another thread."""
        if self._running is not None:
            self._running.cancel()

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """Run a last coroutine for a moment, then end the loop."""
        if last is not None:
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(last, self._loop).result(CLOSE_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S_MAX)

    def _live(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
