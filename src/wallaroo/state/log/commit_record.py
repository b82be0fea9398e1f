"""The record of one batch's commit, and the file that holds it.

Where it runs: driver writes, driver and workers read.  The invariants are in ``state.commits``.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field, fields
from typing import Any

from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import check_version
from wallaroo.state.log.storage import WAYS_OUT
from wallaroo.user_code.compact_pickles import pickled_by_values

VERSION = 2


@pickled_by_values
@dataclass(frozen=True, slots=True)
class DeltaRef:
    """A commit's reference to a delta file.

    It has its task's half-open key groups.
    """

    file: str
    first: int
    end: int
    size: int
    entries: int
    digest: str = ""  # the content's: state.delta
    inline: str = ""  # the file's content, base64, if it is small: then there is no file


def packed_inline(content: bytes) -> str:
    """Return a delta's content in the form that a reference carries."""
    return base64.b64encode(content).decode()


@pickled_by_values
@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """State of key groups [first, end) after ``batch``."""

    file: str
    first: int
    end: int
    batch: int
    size: int
    digest: str = ""


def content_of(ref: DeltaRef | SnapshotRef) -> bytes:
    """Return the content that a reference carries; nothing if it is in a file."""
    return base64.b64decode(ref.inline) if isinstance(ref, DeltaRef) else b""


@dataclass(frozen=True, slots=True)
class Commit:
    batch: int
    # source name -> [place, events], a position of its log: everything before is processed
    offsets: dict[str, list[Any]]
    deltas: tuple[DeltaRef, ...] = ()
    snapshots: tuple[SnapshotRef, ...] = ()  # snapshots in force after this batch
    sinks: dict[str, list[Any]] = field(default_factory=dict)  # sink name -> tokens in output order
    outputs: dict[str, int] = field(default_factory=dict)  # sink name -> outputs of this batch
    steps: tuple[str, ...] = ()  # the step table: names of state steps, by index
    time_ms: int = 0
    checkpoint: str = ""  # its id
    id: str = ""  # this commit's, never used again
    parent: str = ""  # id of the commit before it; "" for the first
    edit: str = ""  # a command's change; "" for a batch
    # progress of event time, as in ``engine.watermarks``; empty in an application without it
    watermarks: dict[str, Any] = field(default_factory=dict)
    edits: tuple[int, str] | None = None  # number and id of the batch that an edit follows

    @property
    def identity(self) -> CommitId:
        return CommitId(self.checkpoint, self.batch, self.id)

    @property
    def emitted(self) -> CommitId:
        """Return the commit whose output ``sinks`` stages: this one, or that before an edit."""
        return CommitId(self.checkpoint, *self.edits) if self.edits else self.identity


_COMMIT = tuple(each.name for each in fields(Commit))
_DELTA = tuple(each.name for each in fields(DeltaRef))
_SNAPSHOT = tuple(each.name for each in fields(SnapshotRef))


def body_of(commit: Commit, *, has_snapshots: bool = True) -> bytes:
    """Return a commit as JSON; without ``has_snapshots``, null instead of them."""
    stated = {name: getattr(commit, name) for name in _COMMIT}
    stated["deltas"] = [_stated(delta, _DELTA) for delta in commit.deltas]
    snapshots = [_stated(ref, _SNAPSHOT) for ref in commit.snapshots] if has_snapshots else None
    stated["snapshots"] = snapshots
    return json.dumps(stated, separators=(",", ":")).encode()


def _stated(value: DeltaRef | SnapshotRef, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the named values like ``asdict``, but without copying: it runs for every batch."""
    return {name: getattr(value, name) for name in names}


def encode(commit: Commit) -> bytes:
    """Return the bytes: a line of version, length and crc32, then the body as JSON."""
    body = body_of(commit)
    return b"%d %d %08x\n" % (VERSION, len(body), zlib.crc32(body)) + body


def decode(content: bytes, name: str) -> Commit:
    """Undo ``encode``.  Raises CheckpointError if version, length or checksum is wrong."""
    head, _, body = content.partition(b"\n")
    try:
        version, length, crc = head.split(b" ")
        check_version(name, int(version), VERSION)
        is_whole = int(length) == len(body) and int(crc, 16) == zlib.crc32(body)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise CheckpointError(f"{name} is corrupt or truncated. {WAYS_OUT}")
    return commit_of(json.loads(body))


def commit_of(raw: dict[str, Any], snapshots: tuple[SnapshotRef, ...] | None = None) -> Commit:
    """Return the commit of a decoded body; ``snapshots``: those in force, if it states none."""
    raw["deltas"] = tuple(DeltaRef(**delta) for delta in raw["deltas"])
    if snapshots is None:
        snapshots = tuple(SnapshotRef(**snapshot) for snapshot in raw["snapshots"])
    raw["snapshots"] = snapshots
    raw["steps"] = tuple(raw["steps"])
    raw["edits"] = tuple(raw["edits"]) if raw["edits"] else None
    return Commit(**raw)
