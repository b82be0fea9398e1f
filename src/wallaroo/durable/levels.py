"""Levels of durability: what has to hold input and commits before they are acknowledged.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class Durability(StrEnum):
    """The place that an acknowledgement, a commit and an output wait for."""

    MEMORY = "memory"  # this machine's memory: written, and synced a moment later
    DISK = "disk"  # this machine's disk
    STORE = "store"  # the object store of the checkpoint


DurabilityName = Literal["memory", "disk", "store"]
