"""The sign of life of Spark's planner process, which asks the sources how far the next batch goes.

Where it runs: driver.  What the planner does for it is in ``spark.heartbeat``.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

COMMAND = "python_streaming_source_runner"  # in the planner's command line
START_S = 45.0  # a process that begins is given so much more time, as machines are crowded


class Planner:
    """The planner as the driver sees it."""

    def __init__(self, path: Path):
        self._path = path
        self._seen_ns = 0
        self._alive_at = time.monotonic()

    def silent_s(self, is_asked: bool) -> float:
        """For how long it has shown no sign of life; 0 where Spark does not ask it now, and below 0
        while it begins.
        """
        now = time.monotonic()
        try:
            seen_ns = self._path.stat().st_mtime_ns
        except OSError:
            return 0.0  # not started yet
        if not is_asked or seen_ns != self._seen_ns:
            self._alive_at = now
            self._seen_ns = seen_ns
        return now - self._alive_at

    def expect(self) -> None:
        """Wait again for its next sign of life: it is started, or killed, now."""
        self._alive_at = time.monotonic() + START_S

    @property
    def is_gone(self) -> bool:
        """Whether a planner that showed itself has ended."""
        return self._path.exists() and self._process() is None

    def kill(self) -> None:
        """End it."""
        self.expect()
        process = self._process()
        if process is not None:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(int(self._path.read_text()))
            is_planner = any(COMMAND in word for word in process.cmdline())
            is_there = is_planner and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error):
            return None
        return process if is_there else None
