"""Commits: one small file per batch; the only commit point.

Where it runs: driver writes, driver and workers read.

The law of a commit (batch n):

1. Tasks stage: one delta file per task under a fresh name, sink output under fresh names.  Nothing
   they write is ever overwritten.
2. The driver checks that all tasks read the same attempt of each producer, then publishes
   ``commits/<n>`` atomically.  Before that file exists batch n has not happened: its staged files
   are garbage.  After it exists batch n is never processed again.
3. Sinks are told to commit batch n: again after a restart, therefore idempotently.
4. Views apply ``commits/<n>``'s deltas at the start of the next batch that needs their key groups.
   A view never holds anything uncommitted, so nothing in it is ever rolled back.
5. Every commit has an id of its own.  Where commits were rolled back by hand (the newest files
   deleted while nothing ran), the ones made then have numbers that there were before, and other
   ids; what a view knows by number and id belongs to one line of commits only.
6. Source positions at or below ``commits/<n>``'s may be forgotten; files that no retained commit
   needs are deleted.

State of key group g after batch n = the snapshot ``snapshots[g]`` of commit n, then the deltas of
the commits behind that snapshot's batch, up to and including n, in order of batch.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from wallaroo.errors import CheckpointError
from wallaroo.state.storage import WAYS_OUT, Storage

FOLDER, VERSION = "commits", 1


@dataclass(frozen=True, slots=True)
class DeltaRef:
    """A delta file as a commit names it: the key groups of its task, half-open."""

    file: str
    first: int
    end: int
    size: int
    entries: int


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """State of key groups [first, end) after ``batch``."""

    file: str
    first: int
    end: int
    batch: int
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    batch: int
    offsets: dict[str, list[int]]  # source name -> [byte, events]: everything before is processed
    deltas: tuple[DeltaRef, ...] = ()
    snapshots: tuple[SnapshotRef, ...] = ()  # the ones in force after this batch
    sinks: dict[str, list[Any]] = field(default_factory=dict)  # sink name -> tokens in output order
    outputs: dict[str, int] = field(default_factory=dict)  # sink name -> outputs of this batch
    steps: tuple[str, ...] = ()  # the step table: names of state steps, by index
    time_ms: int = 0
    # fresh for every commit: two commits of one number are told apart by it; empty in commits of
    # early versions
    id: str = ""


def name_of(batch: int) -> str:
    """The commit's name in the storage."""
    return f"{FOLDER}/{batch:020d}"


def encode(commit: Commit) -> bytes:
    """Return the file's bytes: one line of facts (version, length, crc32 of the body), then the
    body as JSON.
    """
    body = json.dumps(asdict(commit), separators=(",", ":")).encode()
    return b"%d %d %08x\n" % (VERSION, len(body), zlib.crc32(body)) + body


def decode(content: bytes, name: str) -> Commit:
    """Undo ``encode``.  Raises CheckpointError for a newer version, a wrong length or a wrong
    checksum.
    """
    head, _, body = content.partition(b"\n")
    try:
        version, length, crc = head.split(b" ")
        if int(version) > VERSION:
            raise CheckpointError(
                f"{name} has format version {int(version)}; this program reads up to {VERSION}. "
                f"Use a newer wallaroo-spark."
            )
        is_whole = int(length) == len(body) and int(crc, 16) == zlib.crc32(body)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise CheckpointError(f"{name} is corrupt or truncated. {WAYS_OUT}")
    raw = json.loads(body)
    raw["deltas"] = tuple(DeltaRef(**delta) for delta in raw["deltas"])
    raw["snapshots"] = tuple(SnapshotRef(**snapshot) for snapshot in raw["snapshots"])
    raw["steps"] = tuple(raw["steps"])
    return Commit(**raw)


class CommitLog:
    """The commits of a checkpoint; keeps the ones it has read (they never change)."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._known: dict[int, Commit] = {}

    def batches(self) -> list[int]:
        """Numbers of the commits that are there, rising."""
        return [int(name) for name in self._storage.names(FOLDER)]

    def read(self, batch: int) -> Commit:
        """Return commit ``batch``."""
        if batch not in self._known:
            self._known[batch] = decode(self._storage.read(name_of(batch)), name_of(batch))
        return self._known[batch]

    def last(self) -> Commit | None:
        """Return the newest commit, or None in an empty checkpoint."""
        batches = self.batches()
        return self.read(batches[-1]) if batches else None

    def publish(self, commit: Commit) -> None:
        """The commit point."""
        self._storage.publish(name_of(commit.batch), encode(commit))
        self._known[commit.batch] = commit

    def delete(self, batch: int) -> None:
        """Remove an old commit."""
        self._known.pop(batch, None)
        self._storage.delete(name_of(batch))

    def forget_before(self, batch: int) -> None:
        """Drop cached commits older than ``batch`` from memory."""
        for old in [known for known in self._known if known < batch]:
            del self._known[old]
