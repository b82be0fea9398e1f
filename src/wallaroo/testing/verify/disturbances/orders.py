"""Faults of disk and clock, ordered from a run's processes.

Where it runs: the verifier, while the processes run.  An order names fault points; the first
process that passes one of them takes the order and executes it (`wallaroo.instrumentation.faults`).

Invariant: an order is executed once, by one process at one point, or withdrawn; the process that
renames its file has it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from wallaroo.instrumentation.fault_actions import OFFSET
from wallaroo.instrumentation.faults import ORDER, TAKEN

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
# points that batches of resident tasks pass instead
RESIDENT: Mapping[str, str] = {
    "storage.write": "storage.append",
    "storage.fsync": "storage.append_sync",
    "storage.rename": "storage.append",
    "storage.sync_folder": "storage.append_sync",
    "outbox.write": "storage.append",
}
CHOSEN_S_MAX = 4.0
EVERY_S_MAX = 20.0


class Orders:
    """The folder of orders, and the clock of the run's processes.

    A process has ``chosen_s`` to take an order at the chosen point, then ``every_s`` to take one at
    any point.
    """

    def __init__(self, folder: Path, chosen_s: float = CHOSEN_S_MAX, every_s: float = EVERY_S_MAX):
        folder.mkdir(mode=0o700)
        self.chosen_s = chosen_s
        self.every_s = every_s
        self.folder = folder
        self._order = folder / ORDER
        self._ahead_ns = 0
        clock = folder / "clock"
        clock.write_bytes(OFFSET.pack(0))
        with clock.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), OFFSET.size)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables that the run's processes need."""
        return {"WALLAROO_FAULT_ORDERS": str(self.folder)}

    def place(self, points: Iterable[str], action: str) -> None:
        """Order ``action`` for the first process that passes one of ``points``."""
        for taken in self.folder.glob(f"*{TAKEN}"):
            taken.unlink()
        self._order.write_text(action, encoding="ascii")
        for point in points:
            (self.folder / point).touch()

    @property
    def is_taken(self) -> bool:
        """Return whether a process took the last order."""
        return not self._order.exists()

    def withdraw(self, points: Iterable[str]) -> str | None:
        """Withdraw the order; return the point at which it was taken, None if nowhere."""
        try:
            os.rename(self._order, self.folder / ".withdrawn")
        except FileNotFoundError:
            withdrawn: str | None = next(self.folder.glob(f"*{TAKEN}")).name.removesuffix(TAKEN)
        else:
            withdrawn = None
        for point in points:
            (self.folder / point).unlink(missing_ok=True)
        return withdrawn

    def step_clock(self, seconds: float) -> None:
        """Step the clock of all the run's processes."""
        self._ahead_ns += int(seconds * 1e9)
        OFFSET.pack_into(self._clock, 0, self._ahead_ns)
