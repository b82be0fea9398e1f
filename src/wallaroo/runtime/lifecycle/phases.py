"""The phases of a run's start and end.

A phase is shown in the status and timed; each start phase first checks for a stop request.
"""

from __future__ import annotations

import logging
import threading
import time

from wallaroo.monitoring.metrics.meter import RunMeter

_log = logging.getLogger("wallaroo.run")


class StoppedError(Exception):
    """A request to stop the run while it started."""


class Phases:
    """The current phase of a run."""

    def __init__(self, meter: RunMeter, stop: threading.Event):
        self._meter = meter
        self._stop = stop
        self._name = ""
        self._began = time.monotonic()

    @property
    def is_stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop.is_set()

    def enter(self, name: str) -> None:
        """Begin a phase of the start.  Raises StoppedError if a stop was requested."""
        if self._stop.is_set():
            raise StoppedError
        self.note(name)

    def note(self, name: str) -> None:
        """Begin a phase; "" ends the last one."""
        now = time.monotonic()
        if self._name:
            _log.debug("%s: %.1f s", self._name, now - self._began)
        self._name = name
        self._began = now
        self._meter.starting(name)
