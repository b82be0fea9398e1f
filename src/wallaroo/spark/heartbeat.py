"""The planner process shows that it goes on.

Where it runs: Spark's planner process.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

HEARTBEAT = "planner"  # the file of its sign of life, beside the control file
HEARTBEAT_S = 0.5  # between two signs


class Heartbeat:
    """Shows that the planner goes on: a file that holds its pid, written again and again."""

    def __init__(self, path: Path):
        self._path = path  # written by the first beat: Spark makes readers in other processes, too
        self._at = 0.0

    def beat(self) -> None:
        """Show it, if it is time."""
        now = time.monotonic()
        if self._at and now - self._at <= HEARTBEAT_S:
            return
        with contextlib.suppress(OSError):  # the run has gone
            if self._at:
                os.utime(self._path)
            else:
                self._path.write_text(str(os.getpid()))
        self._at = now
