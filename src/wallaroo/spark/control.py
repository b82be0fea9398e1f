"""What the source planner, which Spark runs in a process of its own, takes into a batch: how much,
and when nothing.

Where it runs: driver writes, planner reads.  One small file, replaced atomically; nothing of it
matters after the run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from wallaroo.tuning import DEFAULT


@dataclass(frozen=True, slots=True)
class Control:
    events_max: int = DEFAULT.pace.events_first  # of the next batch, over all sources
    events_most: int = 0  # of the next batch, where several of that bound wait
    is_held: bool = False  # take nothing now: stopping, or a sink's backlog is at its bound
    limits: Mapping[str, int] | None = None  # of each source, where input is replayed
    wake: int = 0  # a batch that is due although there may be no events: higher for each one


def write_control(path: Path, control: Control) -> None:
    """Replace the file."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(asdict(control)))
    os.replace(unfinished, path)


def read_control(path: Path) -> Control:
    """Read what was written last; the defaults where nothing was."""
    try:
        return Control(**json.loads(path.read_text()))
    except FileNotFoundError:
        return Control()
