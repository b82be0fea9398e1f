"""The tail, below which everything is consumed and committed.

Where it runs: the driver writes it after a commit, the spool's writer reads it, and uses it to
answer senders that wait for commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.durable.slots import SlotFile, read_slots
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.format import TAIL, Boundary


def write_tail(folder: Path, position: Boundary, released: Boundary | None = None) -> None:
    """Note that everything below ``position`` is consumed and committed.

    Everything below ``released`` (the same, if not given) may be removed: no retained commit would
    read it again.
    """
    released = position if released is None else released
    file = _opened(folder)
    try:
        fault_point("spool.tail")
        file.write(
            TAIL.pack(position.byte, position.events) + TAIL.pack(released.byte, released.events)
        )
    finally:
        file.close()


def _opened(folder: Path) -> SlotFile:
    try:
        return SlotFile(f"{folder}/tail")
    except FileNotFoundError:  # nothing was received yet
        make_private(folder)
        return SlotFile(f"{folder}/tail")


def read_tail(folder: Path) -> Boundary:
    """Return the tail; the log's beginning if none was written."""
    content = read_slots(f"{folder}/tail")
    return Boundary(*TAIL.unpack_from(content)) if content else Boundary()


def read_released(folder: Path) -> Boundary:
    """Return the position below which nothing will be read again; at most the tail."""
    content = read_slots(f"{folder}/tail")
    if not content:
        return Boundary()
    return Boundary(*TAIL.unpack_from(content, TAIL.size if len(content) > TAIL.size else 0))


class CommitWaits:
    """Answers that are due once input is committed, in order."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._waiting: deque[tuple[int, Callable[[], object]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, position: Boundary, answer: Callable[[], object]) -> None:
        """Call ``answer`` from `look` once everything before ``position`` is committed."""
        self._waiting.append((position.byte, answer))

    def look(self) -> bool:
        """Read the tail; give the due answers, and return whether there were any."""
        if not self._waiting:
            return False
        committed = read_tail(self._folder).byte
        is_due = self._waiting[0][0] <= committed
        while self._waiting and self._waiting[0][0] <= committed:
            self._waiting.popleft()[1]()
        return is_due
