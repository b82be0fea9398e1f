"""The input, the output and the machines of runs with a checkpoint in an object store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.stores.conftest import Place

EVENTS = 1200
KILLED = -signal.SIGKILL


class Input:
    """The input file of a test, which grows."""

    def __init__(self, folder: Path):
        self._file = folder / "in.txt"
        self.events = 0

    def grow(self, events: int = EVENTS) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{each}\n" for each in range(self.events, self.events + events))
        self.events += events


def output(folder: Path) -> list[str]:
    return sorted((folder / "out.txt").read_text().splitlines())


def started(
    folder: Path, place: Place, machine: str, *options: str, port: int = 0, **variables: str
) -> subprocess.Popen[str]:
    """Start the program beside this one as a machine does that has a cache of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.stored_driver", str(folder), place.url, *options],
        env={**os.environ, **place.environment(folder / machine, port), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
