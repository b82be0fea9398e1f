"""The tail: everything below it is consumed and committed.

Where it runs: the driver writes it after a commit, the spool's writer reads it.
"""

from __future__ import annotations

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
        return SlotFile(folder / "tail")
    except FileNotFoundError:  # nothing was ever received
        make_private(folder)
        return SlotFile(folder / "tail")


def read_tail(folder: Path) -> Boundary:
    """Return the tail; the log's beginning if none was written."""
    content = read_slots(folder / "tail")
    return Boundary(*TAIL.unpack_from(content)) if content else Boundary()


def read_released(folder: Path) -> Boundary:
    """Return the position below which nothing will be read again; at most the tail."""
    content = read_slots(folder / "tail")
    if not content:
        return Boundary()
    return Boundary(*TAIL.unpack_from(content, TAIL.size if len(content) > TAIL.size else 0))
