"""The committer of rolling output: a thread that gathers batches into files.

The invariants:

* A file's content is decided once: ``roll.json`` in the outbox names the last batch of the next
  file, and is on disk, in durable mode, before the file is written.  After a crash the same batches
  are written under the same name, so a file is written again but never twice.
* A file's name holds its batches, its writer (checkpoint and sink) and the commit of its last
  batch.  A name that contradicts the checkpoint's history is refused.  If batches of the newest
  file wait, the note of it was lost: it is written again under its name, those before it are not.
* Batches are forgotten after ``roll.json`` records that their file exists.
* With ``partition_by`` a file is one for each folder.  The same batches fill the same folders, so
  all of the above holds for the files of a decision together; ``roll.json`` has their layout.
* A folder is marked as complete when the watermark of a commit has passed its time, and all output
  of that commit and of those before is in files.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from errno import EACCES
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.connectors.file.committer import make_folder
from wallaroo.connectors.file.directory import writer_of
from wallaroo.connectors.files.forms import CSV, LINES, PARQUET
from wallaroo.connectors.files.rolling_files import contents_of
from wallaroo.connectors.files.sink import RollingSinkConfig
from wallaroo.connectors.files.storage import FileStore
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.whole_file import USER_FILE, write_whole
from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.queued.group_committer import GroupCommitter, GroupSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_committer import LOOK_S
from wallaroo.sinks.queued.system import ENDLESS_S, CommitContext, DeliveryError, Session
from wallaroo.sinks.staging import Staged

ROLL = "roll.json"
PART = re.compile(r"part-(\d{12,})-(\d{12,})-([0-9a-f]{12})-([^.]+)(\..*)")
RETRY_S = 1.0
SUCCESS = "_SUCCESS"
SUFFIX_OF = {PARQUET: ".parquet", CSV: ".csv", LINES: ".jsonl"}
ENDLESS = float("inf")


class Parts:
    """The place, content and names of files."""

    def __init__(self, config: RollingSinkConfig, context: CommitContext):
        self.sink = context.sink
        self.storage = FileStore(config.path, tuple(sorted(config.options.items())))
        columns = config.columns
        form = LINES if columns is None else config.form or PARQUET
        self._suffix = SUFFIX_OF[form] + (".gz" if config.compress else "")
        self.partitions = config.partitions
        self.layout = "/".join([*config.partition_by, self._suffix])
        self.contents = contents_of(columns, form, self.partitions, config.compress)
        self._is_durable = context.is_durable
        # by folder that has files: when its time ends; never, if it is marked
        self._ends: dict[str, float] = {}
        self._first_end_ns = ENDLESS
        self._is_marking = config.mark_success

    def name(self, batch: PendingBatch) -> str:
        """Return the name of the file of some batches; ``start`` is the first one's number."""
        commit = batch.commit
        writer = writer_of(commit.checkpoint, self.sink)
        return f"part-{batch.start:012d}-{commit.batch:012d}-{writer}-{commit.id}{self._suffix}"

    def prepare(self) -> None:
        """Create the folder.  Raises DeliveryError if it cannot be written."""
        if self.storage.is_s3:
            return
        try:
            make_folder(Path(self.storage.root), self._is_durable)
            if not os.access(self.storage.root, os.W_OK | os.X_OK):
                raise PermissionError(EACCES, os.strerror(EACCES), self.storage.root)
        except OSError as error:
            raise self._error(error) from error

    def names(self) -> list[str]:
        """Return the names of all existing files; note which folders have no mark."""
        try:
            paths = self.storage.names(is_deep=self.partitions is not None)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error(error) from error
        places = [(folder, name) for folder, _, name in (path.rpartition("/") for path in paths)]
        if self._is_marking:
            self._ends = {folder: ENDLESS for folder, name in places if name == SUCCESS}
            for folder, _ in places:
                self._note(folder)
        return [name for _, name in places]

    def write(self, folder: str, name: str, content: bytes) -> None:
        """Write a file so that it appears whole; the same file again changes nothing."""
        fault_point("rolling.write")
        try:
            if self.storage.is_s3:
                path = "/".join(filter(None, (self.storage.root, folder, name)))
                self.storage.write_object(path, content)
            else:
                self._write_file(Path(self.storage.root, folder), name, content)
        except OSError as error:
            raise self._error(error) from error
        if self._is_marking:
            self._note(folder)

    def has_passed(self, watermark_ns: float) -> bool:
        """Return whether a watermark has passed the time of an unmarked folder."""
        return self._first_end_ns <= watermark_ns

    def mark(self, watermark_ns: float) -> None:
        """Mark the folders whose time has passed."""
        for folder in [each for each, end_ns in self._ends.items() if end_ns <= watermark_ns]:
            self.write(folder, SUCCESS, b"")
            self._ends[folder] = ENDLESS
            fault_point("rolling.marked")
        self._first_end_ns = min(self._ends.values(), default=ENDLESS)

    def _note(self, folder: str) -> None:
        assert self.partitions is not None
        timed = self.partitions.timed(folder)
        if timed not in self._ends:
            end_ns = self.partitions.end_ns(folder)
            self._ends[timed] = ENDLESS if end_ns is None else end_ns
            self._first_end_ns = min(self._first_end_ns, self._ends[timed])

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
        self.newest = -1, -1  # the first and the last batch of the newest part

    def last(self) -> CommitId:
        """Return the newest part's commit.  Raises PeerError for foreign parts."""
        writer = writer_of(self._checkpoint, self._parts.sink)
        newest = CommitId(self._checkpoint)
        for name in self._parts.names():
            found = PART.fullmatch(name)
            if found is not None and found[3] == writer:
                if int(found[2]) > newest.batch:
                    newest = CommitId(self._checkpoint, int(found[2]), found[4])
                    self.newest = int(found[1]), newest.batch
            elif name.startswith("part-"):
                raise PeerError(
                    f"{self._parts.storage.path} holds output of another checkpoint or sink "
                    f"({name}). Nothing was changed. Move it to another place, or choose another "
                    f"path."
                )
        return newest

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        name = self._parts.name(batch)
        for folder, content in self._parts.contents(parts):
            self._parts.write(folder, name, content)
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
        self.parts = Parts(config, context)
        self.group_bytes = config.roll_bytes
        self.group_s = config.roll_s

    def connect(self, checkpoint: str) -> Session:
        self.parts.prepare()
        return PartsSession(self.parts, checkpoint)

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
    """A committer that writes a file per folder and group of batches."""

    def __init__(self, system: PartsSystem, context: CommitContext, *, points: str):
        super().__init__(system, context, points=points)
        self._parts = system.parts
        self._rolled: int | None = None  # the last batch of the current file
        self._is_resumed = False  # whether an earlier run's roll was finished
        # watermarks of commits: the newest one, and one whose output may still be waiting
        self._newest = self._awaited = (-1, TIME_MIN)

    def passed(self, batch: int, watermark_ns: int) -> None:
        """Note the watermark of a commit."""
        with self._state:
            self._newest = (batch, watermark_ns)
            if not self._is_awaiting():
                self._awaited = self._newest
            self._state.notify_all()

    def _is_draining(self, deadline: float) -> bool:
        with self._state:
            if self._waiting or not self._is_marking():
                pass
            elif self._broken is None and time.monotonic() < deadline:
                self._state.wait(LOOK_S)
                return True
        return super()._is_draining(deadline)

    def _next(self) -> list[PendingBatch]:
        if not self._is_resumed:
            self._resume()
            self._adopt()
            self._is_resumed = True
        self._mark()
        while not (group := super()._next()) and not self._is_closing:
            self._mark()
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
        with self._state:
            self._require_current()
        self._note(batch.batch, is_written=True)
        super()._left(batch, is_new)
        self._rolled = None

    def _is_due(self) -> bool:
        is_due = super()._is_due() or (bool(self._waiting) and self._rolled is not None)
        return is_due or self._is_marking()

    def _group(self) -> list[PendingBatch]:
        """Return all waiting batches, or those of the current file; none before marks."""
        if self._is_marking():
            return []
        return [
            batch
            for batch in self._waiting.in_order()
            if self._rolled is None or batch.batch <= self._rolled
        ]

    # -- marks ------------------------------------------------------------------------------------

    def _is_marking(self) -> bool:
        """Return whether marks are to be written now; the caller holds the lock."""
        if self._is_awaiting():
            return False
        if not self._parts.has_passed(self._awaited[1]):
            self._awaited = self._newest
        return not self._is_awaiting() and self._parts.has_passed(self._awaited[1])

    def _is_awaiting(self) -> bool:
        """Return whether output of the awaited commit, or of one before it, waits."""
        waiting = self._waiting.in_order()
        return bool(waiting) and waiting[0].batch <= self._awaited[0]

    def _mark(self) -> None:
        with self._state:
            self._require_current()
            if not self._is_marking():
                return
            watermark_ns = self._awaited[1]
        self._begin()
        self._parts.mark(watermark_ns)
        self._rest(self._attempt.session)
        with self._state:
            self._state.notify_all()

    # -- decisions --------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Carry out an earlier run's decision: write the file, or forget its batches."""
        path = self._waiting.staging / ROLL
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            last = int(fields["last"])
            is_written = bool(fields["is_written"])
            layout = str(fields.get("layout", self._parts.layout))
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
            elif held and layout != self._parts.layout:
                raise CheckpointError(
                    f"Sink '{self._sink}' was stopped while it wrote files of {layout!r} below "
                    f"{self._system.target}, and is now to write those of {self._parts.layout!r}: "
                    f"what is in both would be there twice. Run once with partition_by, form and "
                    f"compress as they were."
                )
            elif held:
                self._rolled = last

    def _adopt(self) -> None:
        """Continue with the newest existing file, if batches of it wait."""
        session = self._attempt.session
        assert isinstance(session, PartsSession)
        first, last = session.newest
        with self._state:
            held = [batch for batch in self._waiting.in_order() if batch.batch <= last]
            earlier = [batch for batch in held if batch.batch < first]
            if earlier:
                self._waiting.remove(earlier[-1].commit)
                self._note_committed()
            if len(held) > len(earlier):
                self._rolled = last

    def _note(self, last: int, *, is_written: bool) -> None:
        fields = {"last": last, "is_written": is_written, "layout": self._parts.layout}
        content = json.dumps(fields).encode()
        path = self._waiting.staging / ROLL
        is_durable = self._waiting.is_durable
        write_whole(path, content, is_durable=is_durable, points="rolling.decided")
