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

GATE = threading.Event()  # what a slow event waits for
GATE.set()


@wallaroo.decoder(header_length=4, length_fmt=">I")
def text(payload: bytes) -> str:
    GATE.wait(60)
    return payload.decode()


@wallaroo.encoder
def line(event: str) -> bytes:
    return event.encode() + b"\n"


def new_run(folder: Path, host: Any = None, lines: int = 100, **options: Any) -> Run:
    """Return a run that copies lines of a file to another one."""
    (folder / "in.txt").write_text("".join(f"{number}\n" for number in range(lines)))
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(folder / "in.txt"), text))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    application = wallaroo.build_application("copy", source.to_sink(sink))
    return Run(application, RunOptions(status_address=None, **options), host or InProcessHost())


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Poll until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)
