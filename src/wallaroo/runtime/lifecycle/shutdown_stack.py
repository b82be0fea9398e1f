"""The stop of a run's parts, and of all runs when the program ends.

Where it runs: driver; `stop_at_exit` in the main thread, before Python ends the executors that a
stop needs.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # hooks run in reverse order: its own runs later
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from wallaroo.errors import InternalError, WallarooError


class ShutdownStack:
    """An ``ExitStack`` that continues after errors, for closing a run."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], object]] = []

    def add(self, close: Callable[[], object]) -> None:
        """Add a function to call at the end, before all earlier ones."""
        self._closers.append(close)

    def close(self) -> WallarooError | None:
        """Close everything; return the first error."""
        first: WallarooError | None = None
        while self._closers:
            try:
                self._closers.pop()()
            except WallarooError as error:
                first = first or error
            except Exception as error:  # noqa: BLE001  # closing continues: the first error is reported
                first = first or InternalError(f"while closing: {type(error).__name__}: {error}")
        return first


EXIT_S = 15.0  # then the program ends anyway, and the next run repeats what is not committed


class Stoppable(Protocol):
    def stop_at_exit(self, until: float) -> None:
        """Stop unless a thread that outlives the main one waits; return by ``until``."""


_live: WeakSet[Stoppable] = WeakSet()


def stop_at_exit(run: Stoppable) -> None:
    """Stop ``run`` when the program ends, if it is alive then."""
    _live.add(run)


def _stop_all() -> None:
    until = time.monotonic() + EXIT_S
    for run in list(_live):
        run.stop_at_exit(until)


os.register_at_fork(after_in_child=_live.clear)  # the runs are the parent's
# atexit's hooks run after executors have ended, and there is no public way to run before that
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]  # CPython's own, not in typeshed
