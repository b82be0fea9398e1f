"""SIGINT and SIGTERM while a run is watched.

Where it runs: driver, main thread.

Invariant: a handler only counts.  The watching loop acts on the first signal, outside of the
handler, so that ``stop`` never waits for a lock the interrupted code holds.  The second ends the
process at once with 130; commits stay as they are.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

_INTERRUPTED = 130  # the exit code by shell convention for a process that Ctrl-C ended


class StopSignals:
    """A counter of SIGINT and SIGTERM.

    The second signal calls ``at_second`` and ends the process.
    """

    def __init__(self, at_second: Callable[[], None]) -> None:
        self.count = 0
        self._at_second = at_second
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Install the handler, or reinstall it if it was replaced."""
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.signal(number, self._handle)
            self._previous.setdefault(number, previous)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *exception: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= 2:
            try:
                self._at_second()
            finally:
                os._exit(_INTERRUPTED)
