"""The run's log: lines on the terminal's stderr, beside the live table.

Where it runs: driver.
"""

from __future__ import annotations

import sys


def log(line: str) -> None:
    """Say one line, now."""
    print(line, file=sys.stderr, flush=True)
