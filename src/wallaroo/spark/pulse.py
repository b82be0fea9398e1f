"""The planner process shows that it goes on.

Where it runs: Spark's planner process.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PULSE = "planner"  # the file of its sign of life, beside the control file
PULSE_S = 0.5  # between two signs


class Pulse:
    """Shows that the planner goes on: a file that holds its pid, written again and again."""

    def __init__(self, path: Path):
        self._path = path
        self._at = 0.0
        path.write_text(str(os.getpid()))

    def beat(self) -> None:
        """Show it, if it is time."""
        now = time.monotonic()
        if now - self._at > PULSE_S:
            self._at = now
            with contextlib.suppress(OSError):  # the run has gone
                os.utime(self._path)
