"""A run that copies a source to a file, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.sources.own import copying
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import SparkSourceConfig


def copy_to_end(source: SparkSourceConfig[Any], folder: Path) -> None:
    """Run until the source has ended; what it read is in ``out.txt``."""
    options = RunOptions(checkpoint=folder / "state", status_address=None)
    run = Run(copying(source, folder / "out.txt"), options, InProcessHost(2))
    run.begin()
    assert run.wait(400)
    if run.exception is not None:
        raise run.exception
