"""Losses: reasons for events without a result, and their counts.

A count is a list of one number. Code that drops an event, fused or not, adds 1 to it in place.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

Cell = list[int]
UNCOUNTED: Cell = [0]  # a count that is never read


class Loss(StrEnum):
    """A reason; its value is its name in status and metrics."""

    FILTERED = "filtered"  # a filter, a None or an empty list
    LATE = "late"  # its windows had fired, or it was behind the watermark: dropped
    DEDUPLICATED = "deduplicated"
    REPLACED = "replaced"  # a later event of its key and batch, in latest_per_key()
    UNMATCHED = "unmatched"  # unmatched in an inner join
    EXPIRED = "expired"  # a key's state, not an event
    # Not losses, but needed to judge them: late events handled by a policy or `late()`, their delay
    # behind the watermark, and how many fewer accumulators than events passed a shuffle.
    LATE_KEPT = "late, kept"
    LATE_BY_NS = "late by, ns"
    ADDED_UP = "added up"


DROPPED = (
    *(Loss.FILTERED, Loss.LATE, Loss.DEDUPLICATED),
    *(Loss.REPLACED, Loss.UNMATCHED, Loss.EXPIRED),
)
CellOf = Callable[[Loss], Cell]
Losses = dict[tuple[str, str], int]  # (step name, loss) -> count


def uncounted(loss: Loss) -> Cell:
    """Return a count that is never read."""
    return UNCOUNTED
