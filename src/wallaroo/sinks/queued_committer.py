"""The committer of sinks whose system commits by transaction: a thread that puts committed batches,
in order.

Where it runs: driver.

The invariants:

* ``commit`` hands a batch to the thread first (latency) and writes it to the pending list before it
  returns.  If the driver dies in between, the checkpoint's last commit still has the tokens, and
  ``recover`` hands the batch over again.
* The thread puts batches in order, several that wait together where the session can, and forgets a
  batch only when the system has confirmed its transaction.  What it cannot know (a connection broke
  during the commit, the driver died after it) it does again: `Session.put` finds out that it is
  there.
* What the system and the pending list remember they remember by commit.  A commit there that is not
  in the checkpoint's history means that the checkpoint was rolled back or is an older copy: output
  cannot be taken back, so the run is refused.
* What is transient (the system is away, restarting, full) is tried again without end.  What is not
  (no such table, a value that does not fit) ends the run; the batch stays in the list, and the
  next run goes on with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from wallaroo.errors import CheckpointError, InternalError, PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.staging import disk_errors, remove_staged
from wallaroo.sinks.system import Session, System
from wallaroo.sinks.target_record import begin_target, read_target
from wallaroo.sinks.waiting_batches import WaitingBatches

STOP_S = 3.0  # for the thread to end after its statement was cancelled
TOGETHER_BYTES_MAX = 4 << 20  # of batches that are put together
HISTORY_KEPT = 100  # commits that the system's last one is compared with


class QueuedCommitter(SinkCommitter):
    """Commits batches of staged output to one system; ``points`` is the prefix of its fault
    points.
    """

    def __init__(self, sink: str, system: System, staging: Path, *, is_durable: bool, points: str):
        self._sink = sink
        self._system = system
        self._points = points
        self._state = threading.Condition()
        self._waiting = WaitingBatches(staging, is_durable)  # until the system confirmed
        self._history = CommitHistory("")  # up to the last commit that this committer knows of
        self._in_hand: PendingBatch | None = None
        self._session: Session | None = None
        self._broken: WallarooError | None = None
        self._is_closing = False
        self._status = SinkStatus()
        self._thread = threading.Thread(
            target=self._live, name=f"wallaroo-{points}-{sink}", daemon=True
        )

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Take up what an earlier run committed and did not put; remove what was not committed;
        begin to put.
        """
        staging = self._waiting.staging
        record = read_target(staging, history, tokens)
        listed = self._waiting.listed()
        for found in listed:
            if not history.contains(found.commit):
                raise self._set_back(found.commit, history)
        self._history = history
        with disk_errors(staging):
            target = self._system.target
            begin_target(staging, record, target, history.last, self._waiting.is_durable)
            self._waiting.take_up(listed, history.last, tokens)
        self._note_committed()
        self._thread.start()

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Hand a committed batch over; again for the same commit does nothing.  Returns before the
        output is in the system.
        """
        made = PendingBatch.of(commit, 0, tokens)
        with self._state:
            self._refuse_broken()
            if commit.batch <= self._history.last.batch:
                return
            retained = (*self._history.retained, commit)[-HISTORY_KEPT:]
            self._history = CommitHistory(commit.checkpoint, retained)
            if made is not None:
                self._waiting.add(made)
            self._note_committed()
            self._state.notify_all()
        fault_point(f"{self._points}.handed")
        with self._state:
            if made is not None:
                self._waiting.record(made)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        """Drop what these uncommitted tokens staged."""
        remove_staged(self._waiting.staging, tokens)

    def status(self) -> SinkStatus:
        """A snapshot for display."""
        with self._state:
            self._status.pending_bytes = self._waiting.bytes
            return self._status.copy()

    def backlog(self) -> int:
        """Bytes of output that are not in the system yet; raises what the thread ended with: a run
        without input ends too.
        """
        with self._state:
            self._refuse_broken()
            return self._waiting.bytes

    def close(self, drain_s: float) -> None:
        """Wait until everything is in the system, at most so long, then stop; the rest stays in the
        outbox for the next run.

        Raises what the thread ended with, once.
        """
        deadline = time.monotonic() + drain_s
        with self._state:
            if self._is_closing:
                return
            while (
                self._waiting and self._broken is None and (rest := deadline - time.monotonic()) > 0
            ):
                self._state.wait(rest)
            self._is_closing = True
            self._state.notify_all()
            session = self._session if self._waiting else None
        if session is not None:
            session.cancel()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        self._refuse_broken()

    def _note_committed(self) -> None:
        self._status.committed_batch = self._waiting.last_left(self._history.last.batch)

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
        except OSError as error:
            where = error.filename or self._waiting.staging
            self._break(
                PeerError(
                    f"The outbox of sink '{self._sink}' cannot be written: {where}: "
                    f"{error.strerror or error}. Nothing is lost. Free or mount the disk and run "
                    f"again."
                )
            )
        except Exception as error:  # noqa: BLE001  # the thread's error boundary: else the driver would wait forever
            what = f"The thread of sink '{self._sink}' ended: {type(error).__name__}: {error}."
            self._break(InternalError(what))
        finally:
            self._disconnect()

    def _try(self) -> None:
        """Connect and put until the committer is closed; return early, after a pause, where trying
        again can help.
        """
        try:
            self._connect()
            while batches := self._next():
                for batch, is_new in zip(batches, self._put(batches), strict=True):
                    self._left(batch, is_new)
        except self._system.errors as error:
            self._disconnect()
            waiting_for = self._system.waiting_for(error)
            if not waiting_for:
                raise self._system.refused(error, self._in_hand, self._waiting.staging) from error
            with self._state:
                self._status.waiting_for = waiting_for
                self._state.wait_for(lambda: self._is_closing, self._system.pause_s(error))

    def _connect(self) -> None:
        self._in_hand = None
        self._session = session = self._system.connect(self._history.checkpoint)
        last = session.last()
        with self._state:
            self._status.waiting_for = ""
            history = self._history
        if not history.contains(last):
            raise self._set_back(last, history)

    def _disconnect(self) -> None:
        session = self._session
        self._session = None
        if session is not None:
            session.close()

    def _next(self) -> list[PendingBatch]:
        """Wait for output; return what is put together, nothing where the committer is closed."""
        assert self._session is not None
        with self._state:
            self._state.wait_for(lambda: self._waiting or self._is_closing)
            self._state.wait_for(lambda: self._is_closing, self._session.pause_s())
            if self._is_closing:
                self._in_hand = None
                return []
            waiting = self._waiting.in_order()
            self._in_hand = waiting[0]
        together = waiting[: self._session.batches_max]
        sizes = accumulate(batch.bytes for batch in together)
        fitting = sum(size <= TOGETHER_BYTES_MAX for size in sizes)
        return together[: max(1, fitting)]

    def _put(self, batches: list[PendingBatch]) -> list[bool]:
        assert self._session is not None
        return self._session.put_several([(batch, self._waiting.parts(batch)) for batch in batches])

    def _left(self, batch: PendingBatch, is_new: bool) -> None:
        fault_point(f"{self._points}.left")
        with self._state:
            self._waiting.remove(batch.commit)
            self._note_committed()
            if is_new:
                self._status.outputs += batch.outputs
                self._status.note_sent(batch.batch, time.time_ns())
            self._state.notify_all()

    def _break(self, error: WallarooError) -> None:
        with self._state:
            self._broken = error
            self._status.waiting_for = str(error)
            self._state.notify_all()

    def _set_back(self, found: CommitId, history: CommitHistory) -> CheckpointError:
        return CheckpointError(
            f"Sink '{self._sink}' has output of batch {found.batch} from a commit that its "
            f"checkpoint, which ends with batch {history.last.batch}, does not have: it was rolled "
            f"back or is an older copy, and would put the same output again. {self._system.ways_on}"
        )
