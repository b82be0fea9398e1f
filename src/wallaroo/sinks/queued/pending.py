"""The list on disk of commits whose output is not yet sent.

It is a small file per commit: ``pending/<batch>.json``.

The invariant: a batch's file is there (and on disk, in durable mode) before the checkpoint forgets
the batch's commit, which names the same tokens; it is removed when the batch's output was sent,
staged files first.  It is written whole and names its commit.  Batches are listed in order.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.folders import make_private
from wallaroo.durable.whole_file import sync_folder, write_whole
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.staging import WAYS_ON, StagedToken, disk_errors, remove_staged

PENDING = "pending"  # the folder in an outbox
LISTED = "[0-9]*.json"
FORMAT = 2  # format 1 named batches by number only


@dataclass(frozen=True, slots=True)
class PendingBatch:
    commit: CommitId
    start: int  # offset of its first byte, if the sink's output is one stream of bytes
    bytes: int
    outputs: int
    tokens: tuple[StagedToken, ...]
    skipped_bytes: int = 0  # output that was given up (``wallaroo sink skip``); else 0
    skipped_outputs: int = 0  # -1: not known

    @property
    def batch(self) -> int:
        return self.commit.batch

    @property
    def end(self) -> int:
        """Return the offset after its last byte."""
        return self.start + self.bytes

    @property
    def checksum(self) -> int:
        """Return the checksum of all its staged parts, in order."""
        return zlib.crc32(",".join(str(token["crc"]) for token in self.tokens).encode())

    @staticmethod
    def of(commit: CommitId, start: int, tokens: Sequence[Any]) -> PendingBatch | None:
        """Return the batch of a commit's tokens; None if the sink had no output in it."""
        staged: tuple[StagedToken, ...] = tuple(token for token in tokens if token is not None)
        if not commit.exists or not staged:
            return None
        return PendingBatch(
            commit,
            start,
            sum(token["bytes"] for token in staged),
            sum(token["outputs"] for token in staged),
            staged,
        )

    @staticmethod
    def joined(batches: Sequence[PendingBatch]) -> PendingBatch:
        """Return consecutive batches as one, named by the last; ``start``: the first's number."""
        return PendingBatch(
            batches[-1].commit,
            batches[0].batch,
            sum(batch.bytes for batch in batches),
            sum(batch.outputs for batch in batches),
            tuple(token for batch in batches for token in batch.tokens),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the batch as it is written into files."""
        return {
            **self.commit.to_json(),
            "start": self.start,
            "bytes": self.bytes,
            "outputs": self.outputs,
            "tokens": self.tokens,
            "skipped_bytes": self.skipped_bytes,
            "skipped_outputs": self.skipped_outputs,
        }

    @staticmethod
    def from_json(fields: dict[str, Any]) -> PendingBatch:
        """Undo `to_json`.  Raises KeyError, TypeError or ValueError for anything else."""
        return PendingBatch(
            CommitId.from_json(fields),
            int(fields["start"]),
            int(fields["bytes"]),
            int(fields["outputs"]),
            tuple(fields["tokens"]),
            int(fields.get("skipped_bytes", 0)),
            int(fields.get("skipped_outputs", 0)),
        )


class PendingList:
    """The pending batches of one outbox, on disk."""

    def __init__(self, staging: Path, is_durable: bool):
        self._staging = staging
        self._folder = staging / PENDING
        self._is_durable = is_durable
        self.writer = ""  # the run's epoch, once it is known: another run may list the same batch
        make_private(self._folder, is_durable=is_durable)
        if is_durable:  # a run may have died after it listed one, before the sync
            with disk_errors(self._folder):
                sync_folder(self._folder)

    def add(self, batch: PendingBatch) -> None:
        body = json.dumps(batch.to_json(), separators=(",", ":"))
        text = json.dumps({"format": FORMAT, "crc": zlib.crc32(body.encode()), "body": body})
        path = self._path(batch.batch)
        with disk_errors(path):
            write_whole(
                path,
                text.encode(),
                is_durable=self._is_durable,
                points="outbox.pending",
                writer=self.writer,
            )

    def remove(self, batch: PendingBatch) -> None:
        """Remove the record of a sent batch, and its staged files."""
        remove_staged(self._staging, batch.tokens)
        fault_point("outbox.pending.remove")
        self._path(batch.batch).unlink(missing_ok=True)

    def batches(self) -> Iterator[PendingBatch]:
        """Yield all pending batches in order; remove unfinished writes."""
        for partial in self._folder.glob("*.tmp"):
            fault_point("outbox.pending.orphan")
            partial.unlink(missing_ok=True)
        for batch in self.numbers():
            yield self.read(batch)

    def numbers(self) -> list[int]:
        """Return the numbers of all pending batches in order."""
        return sorted(int(path.stem) for path in self._folder.glob(LISTED))

    def read(self, batch: int) -> PendingBatch:
        """Read one pending batch.  Raises CheckpointError if its file is damaged."""
        return read_pending(self._path(batch))

    def set_aside(self, batch: int) -> None:
        """Move a damaged file out of the list, if there is one, and keep it for people."""
        with contextlib.suppress(FileNotFoundError):
            self._path(batch).rename(self._path(batch).with_suffix(".damaged"))

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:012d}.json"


def read_pending(path: Path) -> PendingBatch:
    """Read one pending batch.  Raises CheckpointError if it is damaged or of another format."""
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        if envelope["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {envelope['format']}, this version of wallaroo reads format "
                f"{FORMAT}. It lists committed output that has not left: run the version that "
                f"wrote it until nothing is left in the outbox."
            )
        body = envelope["body"]
        if zlib.crc32(body.encode()) != envelope["crc"]:
            raise ValueError("its checksum does not match")
        return PendingBatch.from_json(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({error}). It lists committed output that has not left. {WAYS_ON}"
        ) from error
