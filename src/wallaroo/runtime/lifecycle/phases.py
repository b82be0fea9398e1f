"""The phases of a run's start and end: named in the status, timed, and where a stop is honoured.

Where it runs: driver.
"""

from __future__ import annotations

import logging
import threading
import time

from wallaroo.metrics.meter import RunMeter

_log = logging.getLogger("wallaroo.run")


class StoppedError(Exception):
    """The run was asked to stop while it started."""


class Phases:
    """Knows in which phase a run is."""

    def __init__(self, meter: RunMeter, stop: threading.Event):
        self._meter = meter
        self._stop = stop
        self._name = ""
        self._began = time.monotonic()

    def enter(self, name: str) -> None:
        """Begin a phase of the start.  Raises StoppedError where a stop was asked for."""
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
