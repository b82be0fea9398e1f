"""The tail: how far a spool has been consumed, for good.

Where it runs: the driver writes it after a commit, the spool's writer reads it.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.faults import fault_point
from wallaroo.spool.format import TAIL, Position
from wallaroo.spool.slots import SlotWriter, read_slots


def write_tail(folder: Path, position: Position) -> None:
    """Say that everything below ``position`` is consumed and committed; it may be removed from now
    on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = SlotWriter(folder / "tail")
    try:
        fault_point("spool.tail")
        writer.write(TAIL.pack(position.byte, position.events))
    finally:
        writer.close()


def read_tail(folder: Path) -> Position:
    """Return the tail; the log's beginning where none was written."""
    content = read_slots(folder / "tail")
    return Position(*TAIL.unpack(content)) if content else Position()
