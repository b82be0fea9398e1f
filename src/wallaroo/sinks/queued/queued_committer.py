"""The committer of sinks whose system commits by transaction.

A thread writes committed batches to the system, in order.

The invariants:

* ``commit`` hands a batch to the thread first (latency) and writes it to the pending list before it
  returns.  If the driver dies in between, the checkpoint's last commit still has the tokens, and
  ``recover`` hands the batch over again.
* The thread writes batches in order, several that wait together if the session can, and forgets a
  batch only when the system has confirmed its transaction.  If the outcome is unknown (a connection
  broke during the commit, the driver died after it), it writes again: `Session.write` detects that
  the batch is there.
* Records of the system and of the pending list name commits. A commit there that is not in the
  checkpoint's history means that the checkpoint was rolled back or is an older copy: output cannot
  be taken back, so the run is refused.  It is also refused if the system's ledger lacks a commit
  whose output was sent: the system was restored from an older copy, or a lagging replica took over.
* Nothing is written once another run has taken the checkpoint over: ownership is checked before
  each transaction. A pause after the check is fenced by the system, as after a crash.  The answer
  may come from another machine: no call into the system is timed meanwhile.
* Transient failures (the system is unavailable, restarting, full) are retried without end. Others
  (no such table, a value that does not fit) end the run; the batch stays in the list, and the next
  run continues with it.
* A call into the system that shows no sign of life for `ExternalSystem.stalled_s` is broken off:
  its session is closed and another one is opened.  A thread that hangs nevertheless, for example in
  a client's own code, is replaced if the system supports fencing; later actions of the old one
  change nothing here (`_require_current`) and nothing there. Without fencing, two would write at
  once: then the sink waits, and the log names it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.errors import CheckpointError, InternalError, PeerError, TakenOverError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.queued.attempt import Attempt, Outcome
from wallaroo.sinks.queued.delivery_queue import WaitingBatches
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import disk_errors, remove_staged
from wallaroo.sinks.target_record import begin_target, read_target

STOP_S = 3.0  # for the thread to end after its statement was cancelled
TOGETHER_BYTES_MAX = 4 << 20  # for batches that are written in one go
HISTORY_KEPT = 100  # commits that the system's last one is compared with
NAMED_S = 2.0  # without a sign of life: then the status names the system
LOOK_S = 1.0  # between two checks of the thread, while the last output is sent at the end of a run
_LOG = logging.getLogger(__name__)


class _ReplacedError(Exception):
    """The end of a thread that was replaced by another one."""


class QueuedCommitter(SinkCommitter):
    """A committer of staged batches to one system.

    ``points``: its fault points' prefix.
    """

    def __init__(self, system: ExternalSystem[Any], context: CommitContext, *, points: str):
        self._sink = context.sink
        self._system = system
        self._points = points
        self._state = threading.Condition()
        # until the system confirmed
        self._waiting = WaitingBatches(context.staging, context.is_durable, system.ledger)
        self._history = CommitHistory("")  # up to the last commit that this committer knows of
        self._in_hand: PendingBatch | None = None
        self._broken: WallarooError | None = None
        self._is_closing = False
        self._status = SinkStatus()
        self._attempt = Attempt(system.stalled_s)
        self._thread = self._new_thread()

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Begin to write, starting with output that an earlier run committed but did not write.

        Uncommitted output is removed.
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
            self._waiting.take_up(listed, history, tokens)
        self._note_committed()
        self._thread.start()

    def check(self, seconds: float) -> None:
        """Wait until a session is open, or the cause of a wait is known, for a limited time."""
        with self._state:
            self._state.wait_for(lambda: self._attempt.is_at_rest or self._is_known(), seconds)
            self._refuse_broken()

    def _is_known(self) -> bool:
        return self._broken is not None or bool(self._status.waiting_for)

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Hand a committed batch over; do nothing for the same commit again.

        Returns before the output is in the system.
        """
        batch = PendingBatch.of(commit, 0, tokens)
        with self._state:
            self._refuse_broken()
            if commit.batch <= self._history.last.batch:
                return
            retained = (*self._history.retained, commit)[-HISTORY_KEPT:]
            self._history = replace(self._history, retained=retained, tokens=())
            if batch is not None:
                self._waiting.add(batch)
            self._note_committed()
            self._state.notify_all()
        fault_point(f"{self._points}.handed")
        with self._state:
            if batch is not None:
                self._waiting.record(batch)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        remove_staged(self._waiting.staging, tokens)

    def status(self) -> SinkStatus:
        with self._state:
            self._status.pending_bytes = self._waiting.bytes
            status = self._status.copy()
            silent_s = self._attempt.silent_s
            if self._attempt.is_asking:
                status.waiting_for = self._history.owner.waiting_for or status.waiting_for
            elif silent_s >= NAMED_S and not status.waiting_for:
                status.waiting_for = self._silence(silent_s)
            return status

    def backlog(self) -> int:
        """Return the bytes not in the system yet, or raise the thread's error."""
        with self._state:
            self._refuse_broken()
            return self._waiting.bytes

    def poll(self) -> None:
        """Break off a hanging call; replace a thread that hangs nevertheless."""
        with self._state:
            session = self._attempt.session
            silent_s = self._attempt.silent_s
            verdict = self._attempt.judge()
            if verdict is Outcome.FINE or self._is_closing or self._broken is not None:
                return
            self._status.waiting_for = self._silence(silent_s)
            if verdict is Outcome.ABANDON and self._system.is_fencing:
                self._replace()
        if verdict is Outcome.BREAK_OFF:
            outcome = "it is closed and opened again"
        elif self._system.is_fencing:
            outcome = "it is given up and opened again"
        else:
            outcome = "it cannot be ended; restart the application if it stays so"
        _LOG.warning("Sink '%s': %s; %s.", self._sink, self._silence(silent_s), outcome)
        if verdict is Outcome.BREAK_OFF and session is not None:
            session.cancel()

    def close(self, drain_s: float) -> None:
        """Wait at most ``drain_s`` until everything is in the system, then stop.

        The rest stays in the outbox for the next run.  Raises what the thread ended with, once.
        """
        deadline = time.monotonic() + drain_s
        while self._is_draining(deadline):
            self.poll()
        with self._state:
            if self._is_closing:
                return
            self._is_closing = True
            self._state.notify_all()
            session = self._attempt.session if self._waiting else None
        if session is not None:
            session.cancel()
        if self._thread.ident is not None:
            self._thread.join(STOP_S)
        self._refuse_broken()

    def _is_draining(self, deadline: float) -> bool:
        """Wait a moment; return whether waiting output may leave before the deadline."""
        with self._state:
            rest = deadline - time.monotonic()
            if not self._waiting or self._broken is not None or self._is_closing or rest <= 0:
                return False
            self._state.wait(min(rest, LOOK_S))
            return True

    def _silence(self, seconds: float) -> str:
        return f"{self._system.place} (no answer for {seconds:.0f} s)"

    def _note_committed(self) -> None:
        self._status.committed_batch = self._waiting.last_left(self._history.last.batch)

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- the thread -------------------------------------------------------------------------------

    def _new_thread(self) -> threading.Thread:
        name = f"wallaroo-{self._points}-{self._sink}"
        return threading.Thread(target=self._live, name=name, daemon=True)

    def _replace(self) -> None:
        """Start a thread that replaces the current one; the caller holds the lock."""
        self._attempt.end()
        self._thread = self._new_thread()
        self._thread.start()

    def _require_current(self) -> None:
        """Raise if this thread was replaced; the caller holds the lock."""
        if threading.current_thread() is not self._thread:
            raise _ReplacedError

    def _live(self) -> None:
        try:
            while not self._is_closing:
                self._try()
        except _ReplacedError:
            pass
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

    def _try(self) -> None:
        """Connect and write until the committer is closed.

        Returns early, after a pause, if a retry can help.
        """
        try:
            self._serve()
        except self._system.errors as error:
            with self._state:
                self._require_current()
            waiting_for = self._system.waiting_for(error)
            if not waiting_for:
                raise self._system.permanent_error(error, self._in_hand) from error
            with self._state:
                self._require_current()
                self._attempt.end()  # no pause, and no question before the next one, is silence
                self._status.waiting_for = waiting_for
                self._state.notify_all()
                self._state.wait_for(lambda: self._is_closing, self._system.pause_s(error))

    def _serve(self) -> None:
        """Open a session, write waiting and new batches, and close it."""
        self._require_owner()  # a new session may end that of another run
        self._begin()
        self._system.is_written = self._last_entered() is not None
        session = self._system.connect(self._history.checkpoint)
        try:
            self._take_over(session)
            while batches := self._next():
                self._require_owner()  # they were committed a while ago
                self._begin()
                for batch, is_new in zip(batches, self._write(session, batches), strict=True):
                    self._left(batch, is_new)
                self._rest(session)
        finally:
            self._rest(None)
            session.close()

    def _require_owner(self) -> None:
        self._attempt.is_asking = True
        try:
            self._history.owner.require()
        finally:
            self._attempt.is_asking = False

    def _begin(self) -> None:
        with self._state:
            self._require_current()
            self._attempt.begin()

    def _rest(self, session: Session | None) -> None:
        """Note that nothing is called; with the session, if one stays open."""
        with self._state:
            if threading.current_thread() is self._thread:
                self._attempt.end(session)
                self._state.notify_all()

    def _take_over(self, session: Session) -> None:
        """Use a session, unless the system has output of unknown commits."""
        with self._state:
            self._require_current()
            self._attempt.session = session
            self._in_hand = None
        last = session.last()
        with self._state:
            self._require_current()
            history = self._history
            if not history.contains(last):
                raise self._set_back(last, history)
            left = self._last_entered()
            if left is not None and last.batch < left.batch:
                raise self._older_copy(last, left)
            self._status.waiting_for = ""
        self._rest(session)

    def _last_entered(self) -> CommitId | None:
        """Return the checkpoint's last commit that the system's ledger should know, if any."""
        left = self._waiting.last_entered()
        return left if left is not None and self._history.contains(left) else None

    def _next(self) -> list[PendingBatch]:
        """Wait for output; return the batches to write, none if the committer is closed."""
        with self._state:
            self._require_current()
            session = self._attempt.session
            assert session is not None
            self._state.wait_for(lambda: self._waiting or self._is_closing)
            self._state.wait_for(lambda: self._is_closing, session.pause_s())
            if self._is_closing:
                self._in_hand = None
                return []
            waiting = self._waiting.in_order()
            self._in_hand = waiting[0]
        together = waiting[: session.batches_max]
        sizes = accumulate(batch.bytes for batch in together)
        fitting = sum(size <= TOGETHER_BYTES_MAX for size in sizes)
        return together[: max(1, fitting)]

    def _write(self, session: Session, batches: list[PendingBatch]) -> list[bool]:
        return session.write_several([(batch, self._waiting.parts(batch)) for batch in batches])

    def _left(self, batch: PendingBatch, is_new: bool) -> None:
        fault_point(f"{self._points}.left")
        with self._state:
            self._require_current()
            self._waiting.remove(batch.commit)
            self._attempt.succeed()
            self._status.waiting_for = ""
            self._note_committed()
            if is_new:
                self._status.outputs += batch.outputs
                self._status.note_sent(batch.batch, time.time_ns())
            self._state.notify_all()

    def _break(self, error: WallarooError) -> None:
        with self._state:
            if threading.current_thread() is not self._thread:
                return  # the other thread will notice
            self._broken = error
            is_over = isinstance(error, TakenOverError)  # then the sink waits for nothing
            self._status.waiting_for = "" if is_over else str(error)
            self._state.notify_all()

    def _older_copy(self, last: CommitId, left: CommitId) -> CheckpointError:
        known = f"only up to batch {last.batch}" if last.exists else "none"
        return CheckpointError(
            f"Sink '{self._sink}': output up to batch {left.batch} has left, and "
            f"{self._system.ledger} records {known} of this checkpoint: {self._system.target} is "
            f"an older copy, or was replaced, and what lies between would be missing. Restore the "
            f"newer one; or {self._system.without_it}, and the sink continues with new output."
        )

    def _set_back(self, found: CommitId, history: CommitHistory) -> CheckpointError:
        return CheckpointError(
            f"Sink '{self._sink}' has output of batch {found.batch} from a commit that its "
            f"checkpoint, which ends with batch {history.last.batch}, does not have: it was rolled "
            f"back or is an older copy, and would put the same output again. {self._system.ways_on}"
        )
