"""A small application whose input is a file, and a run of it without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wallaroo
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

ROOT = str(Path(__file__).parents[3])  # where feeders find this module
GATE = threading.Event()  # what a slow event waits for
GATE.set()


@wallaroo.decoder(header_length=4, length_fmt=">I")
def text(payload: bytes) -> str:
    GATE.wait(400)
    return payload.decode()


@wallaroo.encoder
def line(event: str) -> bytes:
    return event.encode() + b"\n"


class Numbers:
    """Generates texts "0", "1", ...: what it makes lies in a spool until it is read."""

    def __init__(self, count: int):
        self.count = count

    def initial_value(self) -> str:
        return "0"

    def apply(self, value: str) -> str | None:
        return str(int(value) + 1) if int(value) + 1 < self.count else None


def new_generated_run(folder: Path, host: Any = None, lines: int = 100) -> Run:
    """Return a run that copies generated lines to a file."""
    source = wallaroo.source("in", wallaroo.GenSourceConfig("in", Numbers(lines)))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    application = wallaroo.build_application("copy", source.to_sink(sink))
    options = RunOptions(status_address=None, module_paths=(ROOT,))
    return Run(application, options, host or InProcessHost())


def new_run(folder: Path, host: Any = None, lines: int = 100, **options: Any) -> Run:
    """Return a run that copies lines of a file to another one."""
    (folder / "in.txt").write_text("".join(f"{number}\n" for number in range(lines)))
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(folder / "in.txt"), text))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    application = wallaroo.build_application("copy", source.to_sink(sink))
    return Run(application, RunOptions(status_address=None, **options), host or InProcessHost())


def until(condition: Callable[[], object], seconds: float = 400.0) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)
