"""The list of committed batches whose output has not left, as small files:
``pending/<batch>.json``.

Where it runs: driver.

The law: a batch's file is there (and on disk, in durable mode) before the next batch can commit,
because the checkpoint names only its last commit's tokens; it goes away when the egress has
released the batch, staged files first.  Published by rename, so it is whole or absent.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point
from wallaroo.sinks.staging import fsync_directory, remove_staged
from wallaroo.sinks.tcp.queue import Batch

FORMAT = 1


class PendingList:
    """The pending batches of one outbox, on disk."""

    def __init__(self, staging: Path, is_durable: bool):
        self._staging, self._folder, self._is_durable = staging, staging / "pending", is_durable
        self._folder.mkdir(parents=True, exist_ok=True)

    def add(self, batch: Batch) -> None:
        """Write a batch down."""
        body = json.dumps(asdict(batch), separators=(",", ":"))
        text = json.dumps({"format": FORMAT, "crc": zlib.crc32(body.encode()), "body": body})
        path = self._path(batch.batch)
        partial = path.with_suffix(".tmp")
        fault_point("outbox.pending")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            if self._is_durable:
                file.flush()
                fault_point("outbox.pending.fsync")
                os.fsync(file.fileno())
        fault_point("outbox.pending.rename")
        partial.rename(path)
        if self._is_durable:
            fault_point("outbox.pending.sync_folder")
            fsync_directory(self._folder)

    def remove(self, batch: Batch) -> None:
        """Forget a batch that was released, and its staged files."""
        remove_staged(self._staging, batch.tokens)
        fault_point("outbox.pending.remove")
        self._path(batch.batch).unlink(missing_ok=True)

    def batches(self) -> Iterator[Batch]:
        """All pending batches in order; unfinished writes are removed."""
        for partial in self._folder.glob("*.tmp"):
            fault_point("outbox.pending.litter")
            partial.unlink(missing_ok=True)
        for path in sorted(self._folder.glob("*.json")):
            yield self._read(path)

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:012d}.json"

    def _read(self, path: Path) -> Batch:
        try:
            envelope = json.loads(path.read_text(encoding="utf-8"))
            if envelope["format"] > FORMAT:
                raise CheckpointError(
                    f"{path} has format {envelope['format']}; this version of wallaroo reads up "
                    f"to {FORMAT}. "
                    f"Run the version that wrote it."
                )
            body = envelope["body"]
            if zlib.crc32(body.encode()) != envelope["crc"]:
                raise ValueError("its checksum does not match")
            fields = json.loads(body)
            return Batch(**{**fields, "tokens": tuple(fields["tokens"])})
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error}). It lists committed output that has not left: "
                f"restore it from "
                f"a copy of the checkpoint; or remove it, and that output is lost."
            ) from error
