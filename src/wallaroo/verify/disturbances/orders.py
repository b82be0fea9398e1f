"""Faults of disk and clock, ordered from the processes of a run while they run.

Where it runs: the verifier.  An order is a file that is named as a fault point; the process that
passes the point takes it and does what it says (`wallaroo.faults`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

from wallaroo.broken_calls import OFFSET
from wallaroo.faults import TAKEN

# The points right before a write, a sync or a rename of the protocol.
WRITES = (
    "spool.append",
    "storage.write",
    "outbox.pending.write",
    "outbox.write",
    "egress.progress",
    "spool.head",
    "spool.tail",
)
SYNCS = (
    "spool.fsync",
    "storage.fsync",
    "storage.rename",
    "storage.sync_folder",
    "outbox.pending.fsync",
    "outbox.pending.rename",
    "outbox.pending.sync_folder",
)
# what batches at low latency write instead
LOW_LATENCY: Mapping[str, str] = {
    "storage.write": "storage.append",
    "storage.fsync": "storage.append_sync",
    "storage.rename": "storage.append",
    "storage.sync_folder": "storage.append_sync",
    "outbox.write": "storage.append",
}
CHOSEN_S_MAX = 4.0
EVERY_S_MAX = 20.0


class Orders:
    """The folder of orders, and the clock of the run's processes.  A process has ``chosen_s`` to
    take an order at the chosen point, then ``every_s`` to take one of all.
    """

    def __init__(self, folder: Path, chosen_s: float = CHOSEN_S_MAX, every_s: float = EVERY_S_MAX):
        folder.mkdir(mode=0o700)
        self.chosen_s = chosen_s
        self.every_s = every_s
        self.folder = folder
        self._ahead_ns = 0
        clock = folder / "clock"
        clock.write_bytes(OFFSET.pack(0))
        with clock.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), OFFSET.size)

    @property
    def environment(self) -> dict[str, str]:
        """What the run's processes need in theirs."""
        return {"WALLAROO_FAULT_ORDERS": str(self.folder)}

    def place(self, point: str, action: str) -> None:
        """Have the next process that passes ``point`` do ``action``."""
        unfinished = self.folder / ".order"
        unfinished.write_text(action, encoding="ascii")
        (self.folder / f"{point}{TAKEN}").unlink(missing_ok=True)
        os.rename(unfinished, self.folder / point)

    def is_taken(self, point: str) -> bool:
        """Whether a process did what was ordered last at this point."""
        return (self.folder / f"{point}{TAKEN}").exists()

    def withdraw(self, point: str) -> bool:
        """Take an order back; False where it was taken meanwhile."""
        try:
            os.unlink(self.folder / point)
        except FileNotFoundError:
            return False
        return True

    def step_clock(self, seconds: float) -> None:
        """Let the clock of all the run's processes jump."""
        self._ahead_ns += int(seconds * 1e9)
        OFFSET.pack_into(self._clock, 0, self._ahead_ns)
