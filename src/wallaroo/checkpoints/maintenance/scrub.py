"""The scrub: a slow, repeated check of the retained commits' files.

Where it runs: driver.  While a view exists the log is not read, so a damaged file may go unnoticed
for weeks. The scrub finds it while the state can still be rewritten from the views.  Files are read
one at a time, each in a thread of its own, past the page cache.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from wallaroo.checkpoints.maintenance.check_log import damaged_groups, refs_of, sentence
from wallaroo.errors import CheckpointError
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef

INTERVAL_S = 10.0  # between two files: some 300 files take most of an hour

Ref = DeltaRef | SnapshotRef


class Scrub:
    """Scrub of one checkpoint.

    ``damaged`` holds the damage by file; each is reported once.
    """

    def __init__(self, root: Path, interval_s: float = INTERVAL_S):
        self._root = root
        self._interval_s = interval_s
        self._waiting: deque[Ref] = deque()
        self._next_s = time.monotonic() + interval_s
        self._reader: threading.Thread | None = None
        self.damaged: dict[str, str] = {}

    def look(self, retained: Iterable[Commit], report: Callable[[str], None]) -> None:
        """Start to read the next file of these commits if it is time; return immediately."""
        is_reading = self._reader is not None and self._reader.is_alive()
        if is_reading or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._interval_s
        needed = refs_of({commit.batch: commit for commit in retained})
        if not self._waiting:
            self._waiting.extend(needed.values())
        while self._waiting:
            ref = self._waiting.popleft()
            if ref.file in needed and ref.file not in self.damaged:
                self._reader = threading.Thread(
                    target=self._read, args=(ref, report), name="wallaroo-scrub", daemon=True
                )
                self._reader.start()
                return

    def _read(self, ref: Ref, report: Callable[[str], None]) -> None:
        try:
            found = damaged_groups(_from_disk(self._root / ref.file), ref)
            what = f"the checksum of key groups {found} is wrong" if found else ""
        except FileNotFoundError:
            return  # usually no longer needed; a missing file is detected at the next start
        except CheckpointError as error:
            what = sentence(error)
        except OSError as error:
            what = f"it cannot be read: {error.strerror}"
        if what:
            self.damaged[ref.file] = what
            report(
                f"checkpoint file {self._root / ref.file} is damaged: {what}. The run continues: "
                f"it works from views of the state, and writes new snapshots from them. `wallaroo "
                f"state verify {self._root}` says what the file is needed for."
            )


def _from_disk(path: Path) -> bytes:
    with open(path, "rb") as file:
        with contextlib.suppress(OSError):  # a hint
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()
