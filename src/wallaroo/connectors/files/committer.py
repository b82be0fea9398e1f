"""The committer of rolling output: a thread that gathers batches into files.

The invariants:

* A file's content is decided once: ``roll.json`` in the outbox names the last batch of the next
  file, and is on disk, in durable mode, before the file is written.  After a crash the same batches
  are written under the same name, so a file is written again but never twice.
* A file's name holds its batches, its writer (checkpoint and sink) and the commit of its last
  batch.  A name that contradicts the checkpoint's history is refused.
* Batches are forgotten after ``roll.json`` records that their file exists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.connectors.file.committer import make_folder
from wallaroo.connectors.file.directory import writer_of
from wallaroo.connectors.files.rolling_files import Content, as_gzip, as_lines, as_parquet
from wallaroo.connectors.files.sink import RollingSinkConfig
from wallaroo.connectors.files.storage import FileStore
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.whole_file import USER_FILE, write_whole
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.group_committer import GroupCommitter, GroupSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import (
    ENDLESS_S,
    CommitContext,
    DeliveryError,
    Session,
)
from wallaroo.sinks.staging import Staged

ROLL = "roll.json"
PART = re.compile(r"part-(\d{12,})-(\d{12,})-([0-9a-f]{12})-([^.]+)(\..*)")
RETRY_S = 1.0


class Parts:
    """The place, content and names of files."""

    def __init__(self, config: RollingSinkConfig, context: CommitContext):
        self.sink = context.sink
        self.storage = FileStore(config.path, tuple(sorted(config.options.items())))
        self.content, self._suffix = _content_of(config)
        self._is_durable = context.is_durable

    def name(self, batch: PendingBatch) -> str:
        """Return the name of the file of some batches; ``start`` is the first one's number."""
        commit = batch.commit
        writer = writer_of(commit.checkpoint, self.sink)
        return f"part-{batch.start:012d}-{commit.batch:012d}-{writer}-{commit.id}{self._suffix}"

    def names(self) -> list[str]:
        """Return the names of all existing files."""
        try:
            return [name.rpartition("/")[2] for name in self.storage.sizes()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error(error) from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it appears whole; the same file again changes nothing."""
        fault_point("rolling.write")
        try:
            if self.storage.is_s3:
                self.storage.write_object(f"{self.storage.root}/{name}", content)
            else:
                self._write_file(Path(self.storage.root), name, content)
        except OSError as error:
            raise self._error(error) from error

    def _write_file(self, folder: Path, name: str, content: bytes) -> None:
        make_folder(folder, self._is_durable)
        write_whole(
            folder / name, content, is_durable=self._is_durable, points="rolling", mode=USER_FILE
        )

    def _error(self, error: OSError) -> DeliveryError:
        return DeliveryError(" ".join(str(error).split()), self.storage.is_transient(error))


class PartsSession(Session):
    """A session that writes parts for one checkpoint."""

    def __init__(self, parts: Parts, checkpoint: str):
        self._parts = parts
        self._checkpoint = checkpoint

    def last(self) -> CommitId:
        """Return the newest part's commit.  Raises PeerError for foreign parts."""
        writer = writer_of(self._checkpoint, self._parts.sink)
        newest = CommitId(self._checkpoint)
        for name in self._parts.names():
            found = PART.fullmatch(name)
            if found is not None and found[3] == writer:
                if int(found[2]) > newest.batch:
                    newest = CommitId(self._checkpoint, int(found[2]), found[4])
            elif name.startswith("part-"):
                raise PeerError(
                    f"{self._parts.storage.path} holds output of another checkpoint or sink "
                    f"({name}). Nothing was changed. Move it to another place, or choose another "
                    f"path."
                )
        return newest

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        self._parts.write(self._parts.name(batch), self._parts.content(parts))
        fault_point("rolling.put")
        return True


class PartsSystem(GroupSystem[RollingSinkConfig]):
    """A folder, or a prefix of an object store."""

    errors: ClassVar[tuple[type[Exception], ...]] = (DeliveryError,)
    stalled_s = ENDLESS_S  # requests to a store have bounds of their own
    ways_on: ClassVar[str] = (
        "Use the newer checkpoint; or move the output to another place, and this sink continues."
    )

    def __init__(self, config: RollingSinkConfig, context: CommitContext):
        super().__init__(config, context)
        self._parts = Parts(config, context)
        self.group_bytes = config.roll_bytes
        self.group_s = config.roll_s

    def connect(self, checkpoint: str) -> Session:
        return PartsSession(self._parts, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        assert isinstance(error, DeliveryError)
        return f"{self.target} ({error})" if error.is_transient else ""

    def pause_s(self, error: Exception) -> float:
        return RETRY_S

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        return PeerError(
            f"Sink '{self._context.sink}' cannot write to {self.target}: {error}. Nothing is lost: "
            f"committed output waits in {self._context.staging}. Correct the path, its permissions "
            f"or options, then run again."
        )


class RollingCommitter(GroupCommitter):
    """A committer that writes each group of batches as one file."""

    def __init__(self, system: PartsSystem, context: CommitContext, *, points: str):
        super().__init__(system, context, points=points)
        self._rolled: int | None = None  # the last batch of the file in hand
        self._is_resumed = False  # whether an earlier run's roll was finished

    def _next(self) -> list[PendingBatch]:
        if not self._is_resumed:
            self._resume()
        group = super()._next()
        if not group:
            return []
        whole = PendingBatch.joined(group)
        with self._state:
            self._in_hand = whole
        if self._rolled is None:
            self._note(whole.batch, is_written=False)
            self._rolled = whole.batch
        return [whole]

    def _left(self, batch: PendingBatch, is_new: bool) -> None:
        self._note(batch.batch, is_written=True)
        super()._left(batch, is_new)
        self._rolled = None

    def _is_due(self) -> bool:
        return super()._is_due() or (bool(self._waiting) and self._rolled is not None)

    def _group(self) -> list[PendingBatch]:
        """Return all waiting batches, or those of the file in hand."""
        return [
            batch
            for batch in self._waiting.in_order()
            if self._rolled is None or batch.batch <= self._rolled
        ]

    # -- decisions --------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Resume an earlier run's decision: write the file, or forget its batches."""
        self._is_resumed = True
        path = self._waiting.staging / ROLL
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            last = int(fields["last"])
            is_written = bool(fields["is_written"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{path} cannot be used ({error}), so which output is in a file is unknown. "
                f"Restore it from a backup."
            ) from error
        with self._state:
            held = [batch for batch in self._waiting.in_order() if batch.batch <= last]
            if is_written and held:
                self._waiting.remove(held[-1].commit)
                self._note_committed()
                self._state.notify_all()
            elif held:
                self._rolled = last

    def _note(self, last: int, *, is_written: bool) -> None:
        content = json.dumps({"last": last, "is_written": is_written}).encode()
        path = self._waiting.staging / ROLL
        is_durable = self._waiting.is_durable
        write_whole(path, content, is_durable=is_durable, points="rolling.decided")


def _content_of(config: RollingSinkConfig) -> tuple[Content, str]:
    """Return the function that creates the content of files, and their suffix."""
    if config.columns is not None:
        return as_parquet(dict(config.columns)), ".parquet"
    return (as_gzip, ".jsonl.gz") if config.compress else (as_lines, ".jsonl")
