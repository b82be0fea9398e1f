"""Commits: one small file per batch; the only commit point.

Where it runs: driver writes, driver and workers read.

The invariants of a commit (batch n):

1. Tasks stage: one delta file per task under a fresh name, sink output under fresh names.  Nothing
   they write is ever overwritten.
2. The driver checks that all tasks read the same attempt of each producer, then publishes
   ``commits/<n>`` atomically.  Before that file exists batch n has not happened: its staged files
   are garbage.  After it exists batch n is never processed again.
3. Sinks are asked to commit batch n: again after a restart, therefore idempotently.
4. Views apply ``commits/<n>``'s deltas at the start of the next batch that needs their key groups.
   A view never holds anything uncommitted, so nothing in it is ever rolled back.
5. Every commit has an id that is never used again, and names its checkpoint and the id of the
   commit before it.  After a rollback (`state.rollback`) numbers are used again, ids are not; a log
   with a gap, or with a commit of another line or checkpoint, is refused.
6. A commit names its files by content: a delta or snapshot whose size or digest is another one is
   refused, whatever its name.
7. Source positions at or below the oldest retained commit's may be forgotten; files that no
   retained commit needs are deleted.

State of key group g after batch n = the snapshot ``snapshots[g]`` of commit n, then the deltas of
the commits after that snapshot's batch, up to and including n, in order of batch.

A command that edits state (`wallaroo state drop`) publishes a commit without input and output; its
``sinks`` are those of the batch before it, whose output they stage (``emitted``).
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from wallaroo.errors import CheckpointError
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.state.layout import COMMITS, check_version
from wallaroo.state.storage import WAYS_OUT, Storage

VERSION = 2


@dataclass(frozen=True, slots=True)
class DeltaRef:
    """A delta file as a commit names it: the key groups of its task, half-open."""

    file: str
    first: int
    end: int
    size: int
    entries: int
    digest: str = ""  # of the content: state.delta


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """State of key groups [first, end) after ``batch``."""

    file: str
    first: int
    end: int
    batch: int
    size: int
    digest: str = ""


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
    checkpoint: str = ""  # its id
    id: str = ""  # of this commit, never used again
    parent: str = ""  # id of the commit before it; "" for the first
    edit: str = ""  # what a command changed; "" for a batch
    # how far time was, as ``engine.watermarks`` says; empty in an application without event time
    watermarks: dict[str, Any] = field(default_factory=dict)
    edits: tuple[int, str] | None = None  # number and id of the batch that an edit follows

    @property
    def identity(self) -> CommitId:
        return CommitId(self.checkpoint, self.batch, self.id)

    @property
    def emitted(self) -> CommitId:
        """The commit whose output ``sinks`` stages: this one, or the batch that an edit follows."""
        return CommitId(self.checkpoint, *self.edits) if self.edits else self.identity


def name_of(batch: int) -> str:
    """The commit's name in the storage."""
    return f"{COMMITS}/{batch:020d}"


def encode(commit: Commit) -> bytes:
    """Return the file's bytes: one line of facts (version, length, crc32 of the body), then the
    body as JSON.
    """
    body = json.dumps(asdict(commit), separators=(",", ":")).encode()
    return b"%d %d %08x\n" % (VERSION, len(body), zlib.crc32(body)) + body


def decode(content: bytes, name: str) -> Commit:
    """Undo ``encode``.  Raises CheckpointError for another version, a wrong length or a wrong
    checksum.
    """
    head, _, body = content.partition(b"\n")
    try:
        version, length, crc = head.split(b" ")
        check_version(name, int(version), VERSION)
        is_whole = int(length) == len(body) and int(crc, 16) == zlib.crc32(body)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise CheckpointError(f"{name} is corrupt or truncated. {WAYS_OUT}")
    raw = json.loads(body)
    raw["deltas"] = tuple(DeltaRef(**delta) for delta in raw["deltas"])
    raw["snapshots"] = tuple(SnapshotRef(**snapshot) for snapshot in raw["snapshots"])
    raw["steps"] = tuple(raw["steps"])
    raw["edits"] = tuple(raw["edits"]) if raw["edits"] else None
    return Commit(**raw)


class CommitLog:
    """The commits of a checkpoint; keeps the ones it has read (they never change)."""

    def __init__(self, storage: Storage):
        self._storage = storage
        self._known: dict[int, Commit] = {}

    def batches(self) -> list[int]:
        """Numbers of the commits that are there, rising."""
        return [int(name) for name in self._storage.names(COMMITS)]

    def read(self, batch: int) -> Commit:
        """Return commit ``batch``.  Raises CheckpointError where the file is absent, damaged, or
        another commit's under this name.
        """
        if batch not in self._known:
            commit = decode(self._storage.read(name_of(batch)), name_of(batch))
            if commit.batch != batch:
                raise CheckpointError(f"{name_of(batch)} holds commit {commit.batch}. {WAYS_OUT}")
            self._known[batch] = commit
        return self._known[batch]

    def _up_to(self, up_to: int | None) -> list[int]:
        return [batch for batch in self.batches() if up_to is None or batch <= up_to]

    def last(self, up_to: int | None = None) -> Commit | None:
        """Return the newest commit (at or before ``up_to``), or None where there is none."""
        batches = self._up_to(up_to)
        return self.read(batches[-1]) if batches else None

    def check(self, checkpoint: str, up_to: int | None = None) -> None:
        """Raise CheckpointError unless the log (up to ``up_to``) is one line of this checkpoint's
        commits, without a gap.
        """
        before: Commit | None = None
        for batch in self._up_to(up_to):
            commit = self.read(batch)
            if problem := broken_link(before, commit, checkpoint):
                raise CheckpointError(f"{problem} {WAYS_OUT}")
            before = commit

    def history(self, checkpoint: str) -> CommitHistory:
        """Return the identities of the batches that are there (edits have no output), for sinks."""
        commits = map(self.read, self.batches())
        seen = dict.fromkeys(commit.emitted for commit in commits)
        return CommitHistory(checkpoint, tuple(seen))

    def publish(self, commit: Commit) -> None:
        """The commit point."""
        self._storage.publish(name_of(commit.batch), encode(commit))
        self._known[commit.batch] = commit

    def delete(self, batch: int) -> None:
        """Remove a commit."""
        self._known.pop(batch, None)
        self._storage.delete(name_of(batch))

    def forget_before(self, batch: int) -> None:
        """Drop cached commits older than ``batch`` from memory."""
        for old in [known for known in self._known if known < batch]:
            del self._known[old]


def broken_link(before: Commit | None, commit: Commit, checkpoint: str) -> str:
    """Return what keeps ``commit`` from being the one after ``before``; "" where it is."""
    name = name_of(commit.batch)
    if not commit.id or commit.checkpoint != checkpoint:
        owner = f"checkpoint {commit.checkpoint}" if commit.checkpoint else "no checkpoint"
        return f"{name} belongs to {owner}, not to this one ({checkpoint})."
    if before is None:
        return ""
    if before.batch + 1 != commit.batch:
        gap = f"{name_of(before.batch + 1)} is missing"
        return f"{gap}: the log has commits {before.batch} and {commit.batch}."
    if before.id != commit.parent:
        return (
            f"{name} was not made after {name_of(before.batch)}: one of the two is of another "
            f"history, such as of before a rollback."
        )
    return ""
