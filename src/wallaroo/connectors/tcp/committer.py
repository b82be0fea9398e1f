"""The driver's side of a TCP sink.

It passes committed batches to the egress and tracks the output that was sent.

The invariants:

* A batch is handed to the egress at once, and listed as pending only if it is still unsent when the
  checkpoint is about to forget its commit.  Until then the commit has the tokens: if the driver
  dies, ``recover`` hands the batch over again; the egress's own record states how much of it was
  sent.
* Offsets are fixed by order alone (a batch begins where the one before it ended), so both runs mean
  the same bytes.
* Nothing in the outbox is used, changed or removed before `outbox.look_into` has found it to belong
  to the checkpoint.
* Sent output cannot be taken back: a rollback is possible only if no output after its commit has
  been sent.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallaroo.connectors.tcp.backlog import Backlog, end_of
from wallaroo.connectors.tcp.outbox import look_into
from wallaroo.connectors.tcp.pipe import EgressConfig, Message
from wallaroo.connectors.tcp.process import EgressProcess, EgressTimeouts
from wallaroo.connectors.tcp.progress import begin_progress, read_progress
from wallaroo.connectors.tcp.sink import TCPSinkConfig
from wallaroo.durable.commit_id import NO_BATCH, CommitHistory, CommitId
from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.errors import CheckpointError, InternalError, PeerError
from wallaroo.network.tls_sockets import client_context
from wallaroo.sinks.interface import CANNOT_FOLLOW, SinkCommitter, SinkStatus
from wallaroo.sinks.queued.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import remove_orphans, remove_staged

READY_S = 60.0  # for a new process on a busy machine to be ready
_LOG = logging.getLogger(__name__)


class OutboxCommitter(SinkCommitter):
    """The committer of one TCP receiver, in order, through one egress."""

    def __init__(self, config: EgressConfig, timeouts: EgressTimeouts | None = None):
        self._config = config
        self._timeouts = timeouts or EgressTimeouts()
        self._staging = Path(config.staging)
        if config.tls is not None:
            client_context(config.tls)  # files that cannot be used are reported at the start
        make_private(self._staging, is_durable=config.is_durable)
        self._list = PendingList(self._staging, config.is_durable)
        self._state = threading.Condition()
        self._backlog = Backlog(0, 0, NO_BATCH)
        self._left = 0  # offset after the last byte sent
        self._reasons = Reasons()
        self._status = SinkStatus()
        self._egress: EgressProcess | None = None
        self._is_closed = False

    @property
    def egress_pid(self) -> int:
        """Return the process id of the current egress."""
        return self._running().pid

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Send committed output that an earlier run did not send; remove uncommitted output.

        Does not wait for an earlier run's egress that still waits for the receiver: the new one
        begins to send when that one has ended.
        """
        self._list.writer = history.owner.epoch
        outbox = look_into(self._staging, self._list, history, tokens)
        if outbox.is_new:
            begin_progress(self._staging, outbox.progress, self._config.is_durable)
        for batch in outbox.released:
            self._list.remove(batch)
        for batch in outbox.unlisted:
            self._list.add(batch)
        with self._state:
            self._backlog = outbox.backlog(history.last.batch)
            self._backlog.note_listed()
            self._left = outbox.progress.acked
            self._status.committed_batch = self._backlog.committed
            self._backlog.start_again()
        kept = {token["file"] for token in outbox.tokens}
        remove_orphans(self._staging, kept, history.owner)
        config = replace(self._config, owner=history.owner.to_text())
        self._egress = EgressProcess(
            config, self._receive, self._pull, self._start_again, self._timeouts
        )
        self._await_start()

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Hand a committed batch over; do nothing for the same commit again.

        Returns before the output is sent, and never waits for the egress.
        """
        egress = self._running()
        self._refuse_broken()
        with self._state:
            if commit.batch <= self._backlog.last:
                return
            batch = PendingBatch.of(commit, self._backlog.end, tokens)
            if batch is None:
                self._backlog.last = commit.batch
                self._status.committed_batch = self._backlog.committed
                return
            self._backlog.add(batch)
        egress.wake()

    def retain_from(self, batch: int) -> None:
        """List as pending the output of earlier batches that has not left."""
        with self._state:  # else a batch could leave in between
            for late in self._backlog.take_unlisted(batch):
                self._list.add(late)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        remove_staged(self._staging, tokens)

    def check_rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Raise CheckpointError if output of a later commit has begun to leave."""
        progress = read_progress(self._staging)
        if progress is None:
            return
        os.close(self._locked())
        if progress.checkpoint != to.checkpoint:
            raise CheckpointError(f"its outbox belongs to checkpoint {progress.checkpoint}")
        if progress.begun_batch > to.batch:
            raise CheckpointError(
                f"output up to batch {progress.begun_batch} has left or begun to leave, and "
                f"{CANNOT_FOLLOW}"
            )

    def rollback(self, to: CommitId, tokens: Sequence[Any]) -> None:
        """Forget what later commits staged; none of it was sent."""
        self.check_rollback(to, tokens)
        lock = self._locked()
        try:
            progress = read_progress(self._staging)
            if progress is None:
                return
            end = progress.released_end + progress.skipped
            for batch in list(self._list.batches()):
                if batch.batch > to.batch:
                    self._list.remove(batch)
                else:
                    end = end_of(batch)
            if progress.last_batch > to.batch:
                rolled_back = replace(
                    progress, last_batch=to.batch, last_commit=to.id, last_end=end
                )
                begin_progress(self._staging, rolled_back, self._config.is_durable)
        finally:
            os.close(lock)

    def status(self) -> SinkStatus:
        with self._state:
            self._status.waiting_for = self._reasons.text
            self._status.pending_bytes = max(0, self._backlog.sent_end - self._left)
            return self._status.copy()

    def close(self, drain_s: float) -> None:
        """Wait at most ``drain_s`` until everything is sent and acknowledged, then stop.

        The rest stays in the outbox for the next run.  An egress whose receiver has not read
        everything continues alone until it has.  Closing again does nothing.
        """
        if self._egress is None or self._is_closed:
            return
        self._is_closed = True
        deadline = time.monotonic() + drain_s
        with self._state:
            while self._backlog and not self._reasons.broken:
                if (rest := deadline - time.monotonic()) <= 0:
                    break
                self._state.wait(rest)
        self._egress.close(max(0.0, deadline - time.monotonic()))
        if unfinished := self._reasons.ending:
            _LOG.warning("Stopped while waiting for %s.", unfinished)

    # -- called in the egress's thread ------------------------------------------------------------

    def _pull(self) -> Message | None:
        with self._state:
            return self._backlog.pull()

    def _start_again(self) -> None:
        with self._state:
            self._backlog.start_again()

    def _receive(self, message: Message) -> None:
        with self._state:
            self._reasons.note(message, self._config)
            if "ready" in message:
                self._left = message["acked"]
            if "accepted" in message and not self._config.is_resuming:
                self._left = message["accepted"]
            if "sent" in message:
                self._note_sent(message["sent"], message["t_ns"])
            if "released" in message:
                self._note_released(message["released"])
            self._state.notify_all()

    def _note_sent(self, batch: int, t_ns: int) -> None:
        sent = self._backlog.take_sent(batch)
        if sent is not None:
            self._status.outputs += sent.outputs
        if t_ns:
            self._status.note_sent(batch, t_ns)
        self._status.committed_batch = self._backlog.committed

    def _note_released(self, last: int) -> None:
        for batch in self._backlog.take_released(last):
            self._note_sent(batch.batch, 0)
            if self._backlog.is_listed(batch):
                self._list.remove(batch)
            else:
                remove_staged(self._staging, batch.tokens)
        if not self._backlog:
            self._left = self._backlog.sent_end

    # -- starting ---------------------------------------------------------------------------------

    def _await_start(self) -> None:
        deadline = time.monotonic() + READY_S
        with self._state:
            while not self._reasons.is_started and (rest := deadline - time.monotonic()) > 0:
                self._state.wait(rest)
            if not self._reasons.is_started:
                raise PeerError(
                    f"The sending process of {self._label} did not start within {READY_S:.0f} s; "
                    f"see {self._staging}/egress.log. Free memory or processes, then run again."
                )
        self._refuse_broken()

    def _refuse_broken(self) -> None:
        if self._reasons.broken:
            raise CheckpointError(f"{self._label} cannot continue: {self._reasons.broken}")

    def _running(self) -> EgressProcess:
        if self._egress is None:
            raise InternalError("a sink was used before it was recovered")
        return self._egress

    def _locked(self) -> int:
        try:
            return lock_file(self._staging / "lock")
        except LockedError as error:
            raise CheckpointError(
                f"its sending process still runs ({error.holder}); let it finish, or end it"
            ) from error

    @property
    def _label(self) -> str:
        return f"tcp {self._config.host}:{self._config.port}"


class Reasons:
    """The sink's reasons to wait, from its egress's reports and silence."""

    def __init__(self) -> None:
        self.broken = ""
        self.ending = ""
        self.is_started = False
        self._silent = ""
        self._waiting = ""

    @property
    def text(self) -> str:
        """Return the most important reason; empty if there is none."""
        return self.broken or self._silent or self.ending or self._waiting

    def note(self, message: Message, config: EgressConfig) -> None:
        if "silent" in message:
            self._silent = (
                f"the sending process {message['pid']}, which has not answered for "
                f"{message['silent']:.0f} s"
            )
            return
        self._silent = ""
        self.is_started = True
        self.broken = message.get("broken", self.broken)
        self._waiting = message.get("waiting", "" if "ready" in message else self._waiting)
        if "ending" in message:
            missing, sent = message["ending"]
            self.ending = (
                f"{config.host}:{config.port} to acknowledge {missing} of {sent} bytes; the next "
                f"run waits for that, and sends again what is never acknowledged"
                if missing
                else ""
            )


def open_committer(sink: TCPSinkConfig, staging: Path, is_durable: bool) -> OutboxCommitter:
    config = EgressConfig(
        sink.host, int(sink.port), str(staging), is_durable, sink.resume, tls=sink.tls
    )
    return OutboxCommitter(config)
