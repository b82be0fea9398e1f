"""Durability levels: where input and commits must be before acknowledgement.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Durability(StrEnum):
    """Storage that acknowledgements, commits and outputs wait for."""

    MEMORY = "memory"  # this machine's memory: written, and synced a moment later
    DISK = "disk"  # this machine's disk
    REPLICATED = "replicated"  # this machine's disk, and that of a second host
    STORE = "store"  # the object store of the checkpoint


DurabilityName = Literal["memory", "disk", "replicated", "store"]


def is_synced(level: Durability | None, default: bool) -> bool:
    """Return whether input of a level is on disk before it is published; ``default`` without one.

    >>> [is_synced(level, False) for level in (Durability.MEMORY, Durability.STORE, None)]
    [False, True, False]
    """
    return default if level is None else level is not Durability.MEMORY
