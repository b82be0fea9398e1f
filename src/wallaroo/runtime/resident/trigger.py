"""When the next epoch begins: as soon as there is something, and without looking often where there
is nothing.

Where it runs: driver.

Epochs adapt to the load by themselves: one takes what has come while the one before ran, within the
pacer's bound.  Looks at sources are close to each other shortly after input, and become rare.
"""

from __future__ import annotations

import time

LOOK_S = 0.001  # between looks while input flows
LOOK_IDLE_S = 0.03  # at most between looks: an idle run takes less than 1 % of a core
SLOWER = 0.05  # of the time without input: how long the next pause is


class Looks:
    """How long to wait before the next look at the sources."""

    def __init__(self) -> None:
        self._input_at = time.monotonic()

    def found(self) -> None:
        """Note that there was input."""
        self._input_at = time.monotonic()

    def pause_s(self) -> float:
        """Return the seconds to wait where there was none."""
        idle_s = time.monotonic() - self._input_at
        return min(max(LOOK_S, SLOWER * idle_s), LOOK_IDLE_S)
