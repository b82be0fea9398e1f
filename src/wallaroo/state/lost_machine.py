"""Restart of a checkpoint after the loss of its machine.

Some of it was not on disk yet.

Where it runs: driver, and commands that open a checkpoint.

State, input and waiting output go back to the floor (`state.log.floor`), together.  Output sent
after it cannot be taken back, so sinks keep their position: empty commits take the numbers of lost
ones, so a sink is consistent whether or not it recorded one of them (`CommitHistory.recovered`).
Input after the floor is processed again, and its output is sent again.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import NO_BATCH
from wallaroo.durable.slots import read_slots, write_slots
from wallaroo.instrumentation.faults import fault_point
from wallaroo.spool.format import Boundary, SpoolHead, pack_head, segments_of, unpack_head
from wallaroo.spool.tail import read_released, write_tail
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.floor import LOST, Floor
from wallaroo.state.log.layout import OUTBOX, SPOOL

_log = logging.getLogger("wallaroo.run")


def set_back(root: Path, floor: Floor) -> None:
    """Set spools and outboxes back to the floor; safe to repeat."""
    for head in sorted((root / SPOOL).glob("*/head")):
        _set_spool_back(head.parent)
    for pending in sorted((root / OUTBOX).glob("*/pending/*.json")):
        if pending.stem.isdigit() and int(pending.stem) > floor.batch:
            fault_point("floor.pending")
            pending.unlink()
    _log.warning(
        "this machine was restarted, or another one continues, before everything was on disk: "
        "continuing after %s; what followed, and its output, comes again",
        "the beginning" if floor.batch == NO_BATCH else f"commit {floor.batch}",
    )


def fill_up(checkpoint: str, last: Commit | None, until: int) -> list[Commit]:
    """Return the empty commits from the one after ``last`` to number ``until``."""
    kept: dict[str, Any] = {"offsets": {}}
    if last is not None:
        kept = {
            "offsets": last.offsets,
            "snapshots": last.snapshots,
            "steps": last.steps,
            "watermarks": last.watermarks,
        }
    parent = last.id if last is not None else ""
    fillers: list[Commit] = []
    for batch in range(last.batch + 1 if last else 0, until + 1):
        fillers.append(
            Commit(
                batch=batch,
                time_ms=time.time_ns() // 1_000_000,
                checkpoint=checkpoint,
                id=uuid.uuid4().hex,
                parent=parent,
                edit=LOST,
                **kept,
            )
        )
        parent = fillers[-1].id
    return fillers


def _set_spool_back(folder: Path) -> None:
    """Publish nothing but the beginning: the writer continues as far as it is intact."""
    segments = segments_of(folder)
    position = segments[0].start if segments else Boundary()
    content = read_slots(folder / "head")
    head = unpack_head(content) if content else SpoolHead()
    if head.position.byte > position.byte:
        fault_point("floor.spool")
        write_slots(folder / "head", pack_head(replace(head, position=position)))
    released = read_released(folder)  # at most the floor
    write_tail(folder, released, released)
