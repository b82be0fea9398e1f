"""The driver's side of a PostgreSQL sink: a thread that puts committed batches into the table, in
order.

Where it runs: driver.

The law:

* ``commit`` hands a batch to the thread first (latency) and writes it to the pending list before it
  returns.  If the driver dies in between, the checkpoint's last commit still has the tokens, and
  ``recover`` hands the batch over again.
* The thread puts one batch after the other and forgets a batch only when the server has confirmed
  its transaction.  What it cannot know (a connection broke during COMMIT, the driver died behind
  it) it does again: the ledger makes that harmless.
* The *lineage* is a random name in the staging folder, as old as the folder.  Batches start at 0
  again with a fresh checkpoint, whose folder is new: its ledger lines are its own.  So a lineage
  may only be made where nothing was committed through it yet.
* What passes (server away, restarting, full) is tried again without end.  What does not (no such
  table, a value that does not fit) ends the run; the batch stays in the list, and the next run goes
  on with it.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from wallaroo.errors import CheckpointError, InternalError, PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.pending import PendingBatch, PendingList
from wallaroo.sinks.postgres.rows import Target
from wallaroo.sinks.postgres.table import Table, complete_dsn, first_line, is_passing
from wallaroo.sinks.staging import (
    fsync_directory,
    read_staged,
    remove_orphans,
    remove_staged,
)

LINEAGE = "lineage"
RETRY_SECONDS = 0.25  # between two tries
STOP_SECONDS = 3.0  # for the thread to end after its statement was cancelled


def open_lineage(staging: Path, is_new: bool, is_durable: bool) -> str:
    """Read the folder's lineage; make one where nothing was committed through it yet
    (``is_new``).
    """
    path = staging / LINEAGE
    if path.exists():
        if found := path.read_text(encoding="ascii", errors="replace").strip():
            return found
        raise CheckpointError(
            f"{path} is empty, so which rows of the table are this checkpoint's is unknown. "
            f"Restore it from a copy of the checkpoint, or start over with --fresh."
        )
    if not is_new:
        raise CheckpointError(
            f"{staging} holds committed output, but no file '{LINEAGE}': it was removed, or "
            f"another "
            f"kind of sink wrote the output. Restore the folder, configure the sink as it was, or "
            f"start over with --fresh."
        )
    partial = path.with_suffix(".tmp")
    with partial.open("w", encoding="ascii") as file:
        file.write(uuid.uuid4().hex)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    fault_point("postgres.lineage")
    partial.rename(path)
    if is_durable:
        fault_point("postgres.lineage.sync_folder")
        fsync_directory(staging)
    return path.read_text(encoding="ascii")


class PostgresCommitter(SinkCommitter):
    """Commits batches of staged rows to one table."""

    def __init__(self, target: Target, staging: Path, is_durable: bool):
        complete_dsn(target.dsn)  # what cannot be read is said now, not by the thread
        staging.mkdir(parents=True, exist_ok=True)
        self._target, self._staging, self._is_durable = target, staging, is_durable
        self._list = PendingList(staging, is_durable)
        self._state = threading.Condition()
        self._pending: dict[int, PendingBatch] = {}  # in order; until the server confirmed
        self._last = -1  # last batch this committer knows of
        self._in_hand: PendingBatch | None = None
        self._table: Table | None = None
        self._broken: WallarooError | None = None
        self._is_closing = False
        self._status = SinkStatus()
        self._thread = threading.Thread(
            target=self._live, name=f"wallaroo-postgres-{target.sink}", daemon=True
        )

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Take up what an earlier run committed and did not put; remove what nobody committed;
        begin to put.
        """
        pending = list(self._list.batches())
        batch, made = history.last.batch, PendingBatch.of(history.last, 0, tokens)
        lineage = open_lineage(self._staging, not pending and made is None, self._is_durable)
        self._target = replace(self._target, lineage=lineage)
        if pending and pending[-1].batch > batch:
            raise self._set_back(pending[-1].batch, batch)
        for found in pending:
            self._pending[found.batch] = found
        if made is not None and batch not in self._pending:
            self._pending[batch] = made
            self._list.add(made)
        remove_orphans(
            self._staging,
            {token["file"] for found in self._pending.values() for token in found.tokens},
        )
        self._last = batch
        self._note_committed()
        self._thread.start()

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Hand a committed batch over; again for the same batch does nothing.  Returns before the
        rows are in the table.
        """
        batch = commit.batch
        made = PendingBatch.of(commit, 0, tokens)
        with self._state:
            self._refuse_broken()
            if batch <= self._last:
                return
            self._last = batch
            if made is not None:
                self._pending[batch] = made
            self._note_committed()
            self._state.notify_all()
        fault_point("postgres.handed")
        with self._state:
            if made is not None and batch in self._pending:  # else it has left already
                self._list.add(made)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        """Drop what these uncommitted tokens staged."""
        remove_staged(self._staging, tokens)

    def status(self) -> SinkStatus:
        """A snapshot for people."""
        with self._state:
            self._status.pending_bytes = self._pending_bytes()
            return self._status.copy()

    def backlog(self) -> int:
        """Bytes of rows that are not in the table yet; raises what the thread ended with: a run
        without input ends too.
        """
        with self._state:
            self._refuse_broken()
            return self._pending_bytes()

    def close(self, drain_seconds: float) -> None:
        """Wait until everything is in the table, at most so long, then stop; the rest stays in the
        outbox for the next run.

        Raises what the thread ended with, once.
        """
        deadline = time.monotonic() + drain_seconds
        with self._state:
            if self._is_closing:
                return
            while (
                self._pending and self._broken is None and (rest := deadline - time.monotonic()) > 0
            ):
                self._state.wait(rest)
            self._is_closing = True
            self._state.notify_all()
            table = self._table if self._pending else None
        if table is not None:
            table.cancel()
        if self._thread.ident is not None:
            self._thread.join(STOP_SECONDS)
        self._refuse_broken()

    def _pending_bytes(self) -> int:
        return sum(batch.bytes for batch in self._pending.values())

    def _note_committed(self) -> None:
        self._status.committed_batch = min(self._pending) - 1 if self._pending else self._last

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- the thread -------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self._is_closing:
                self._try()
        except WallarooError as error:
            self._break(error)
        except Exception as error:  # noqa: BLE001  # the thread's gate: the driver is told instead of waiting for ever
            what = (
                f"The thread of sink '{self._target.sink}' ended: {type(error).__name__}: {error}."
            )
            self._break(InternalError(what))
        finally:
            self._disconnect()

    def _try(self) -> None:
        """Connect and put until told to stop; return early, after a pause, where trying again can
        help.
        """
        try:
            self._connect()
            while (batch := self._next()) is not None:
                self._left(batch, self._put(batch))
        except psycopg.Error as error:
            self._disconnect()
            if not is_passing(error):
                raise self._refused(error) from error
            with self._state:
                self._status.waiting_for = f"PostgreSQL ({first_line(error)})"
                self._state.wait_for(lambda: self._is_closing, RETRY_SECONDS)

    def _connect(self) -> None:
        self._in_hand = None
        self._table = table = Table(self._target, self._is_durable)
        last = table.last()
        with self._state:
            self._status.waiting_for = ""
            known = self._last
        if last > known:
            raise self._set_back(last, known)

    def _disconnect(self) -> None:
        table, self._table = self._table, None
        if table is not None:
            table.close()

    def _next(self) -> PendingBatch | None:
        with self._state:
            self._state.wait_for(lambda: self._pending or self._is_closing)
            self._in_hand = None if self._is_closing else self._pending[min(self._pending)]
            return self._in_hand

    def _put(self, batch: PendingBatch) -> bool:
        assert self._table is not None
        return self._table.put(batch, self._parts(batch))

    def _parts(self, batch: PendingBatch) -> Iterator[memoryview]:
        return (read_staged(self._staging, token).body for token in batch.tokens)

    def _left(self, batch: PendingBatch, is_new: bool) -> None:
        fault_point("postgres.left")
        with self._state:
            del self._pending[batch.batch]
            self._list.remove(batch)
            self._note_committed()
            if is_new:
                self._status.outputs += batch.outputs
                self._status.note_sent(batch.batch, time.time_ns())
            self._state.notify_all()

    def _break(self, error: WallarooError) -> None:
        with self._state:
            self._broken, self._status.waiting_for = error, str(error)
            self._state.notify_all()

    def _refused(self, error: psycopg.Error) -> PeerError:
        what = f"batch {self._in_hand.batch} for" if self._in_hand else "rows for"
        where = f" ({error.diag.context})" if error.diag.context else ""
        return PeerError(
            f"PostgreSQL refuses {what} table {self._target.table}: {first_line(error)}{where}. "
            f"Nothing is lost: "
            f"committed rows wait in {self._staging}. Change the table so that it takes them, "
            f"then run again."
        )

    def _set_back(self, found: int, known: int) -> CheckpointError:
        return CheckpointError(
            f"Sink '{self._target.sink}' has output of batch {found}, but its checkpoint ends "
            f"with batch {known}: it "
            f"was set back to an older commit or copy, and would put the same rows again. Restore "
            f"the newer "
            f"one; or start over with --fresh."
        )
