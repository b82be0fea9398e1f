"""A source program: sends the events that are appended to the logs of a folder, a stream per log.
A message's id is the number of events up to it.

    python -m tests.endpoints.source_program FOLDER PORT

Where it runs: a process of its own.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from pathlib import Path

from tests.endpoints.interface import PARTITIONS
from tests.verification.applications.sequence import EVENT
from wallaroo.experimental import BaseIter, BaseSource, MultiSourceConnector

COOKIE = "cookie of the ends"
NOTHING = 2**64 - 1  # as a point of reference
CONNECT_S = 0.25


class Log(BaseIter, BaseSource):
    """A file of events of a fixed size, which grows."""

    def __init__(self, file: Path):
        self.name = file.name.encode()
        self._file = file.open("rb")
        self._at = 0

    def __str__(self) -> str:
        return f"log {self.name.decode()}"

    def point_of_ref(self) -> int:
        return self._at

    def reset(self, pos: int = 0) -> None:
        self._at = 0 if pos == NOTHING else pos

    def __next__(self) -> tuple[bytes | None, int]:
        self._file.seek(self._at * EVENT.size)
        content = self._file.read(EVENT.size)
        if len(content) < EVENT.size:
            return None, self._at
        self._at += 1
        return content, self._at

    def wallaroo_acked(self, point_of_ref: int) -> None:
        """Nothing is removed."""


def main(folder: Path, port: int) -> int:
    """Send until the process ends, or the application refuses."""
    logging.basicConfig()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    while True:
        connector = MultiSourceConnector("0.0.1", COOKIE, "logs", "1", "127.0.0.1", port)
        for number in range(PARTITIONS):
            connector.add_source(Log(folder / f"{number}.log"))
        try:
            connector.connect()
            break
        except OSError:
            time.sleep(CONNECT_S)
    error = connector.join()
    print(f"ended with {error!r}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
