"""The tail: everything below it is consumed and committed.

Where it runs: the driver writes it after a commit, the spool's writer reads it.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.durable.two_slots import TwoSlotFile, read_two_slots
from wallaroo.faults import fault_point
from wallaroo.spool.format import TAIL, Position


def write_tail(folder: Path, position: Position) -> None:
    """Note that everything below ``position`` is consumed and committed; it may be removed from now
    on.
    """
    make_private(folder)
    file = TwoSlotFile(folder / "tail")
    try:
        fault_point("spool.tail")
        file.write(TAIL.pack(position.byte, position.events))
    finally:
        file.close()


def read_tail(folder: Path) -> Position:
    """Return the tail; the log's beginning where none was written."""
    content = read_two_slots(folder / "tail")
    return Position(*TAIL.unpack(content)) if content else Position()
