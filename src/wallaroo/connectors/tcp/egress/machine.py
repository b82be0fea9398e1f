"""The egress as a state machine.

It decides which output is sent, repeated, recorded and released.

Bytes, the committer's messages, the kernel's count of acknowledged bytes and the time come in as
arguments; actions come out as values (`actions`). Staged output is read by the loader that the
queue is given.

The invariants:

* Only what the committer handed over is sent, in batch order, and nothing before the committer has
  handed over all output of earlier runs.
* On one connection every byte is sent at most once, without a gap.
* A new connection starts at the output that the first unacknowledged byte belongs to, never after
  it: at least once, in order.  A resuming receiver gets exactly the bytes after those it reports.
* A connection that a killed egress left continues at the byte after the last one that its kernel
  accepted.
* A batch is released only if the receiver has acknowledged it whole.  Skipped output is released
  only once a resuming receiver has agreed to it.
* The beginning of a batch is recorded before its first byte is sent.
* Once the committer has closed, only the current output is finished.  This side ends between two
  outputs (inside one only if egress and driver die together: an inherited connection then lacks the
  batch it is in).  The connection is closed after the receiver has acknowledged everything and
  ended its side, or after the bounds of `ending`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wallaroo.connectors.tcp.egress.ending import Ending
from wallaroo.connectors.tcp.egress.resume import ResumeStream
from wallaroo.connectors.tcp.egress.states import (
    BEGUN,
    COMMITTER,
    CONNECTION,
    OPEN,
    Action,
    Begin,
    Close,
    Committer,
    Dial,
    Event,
    HalfClose,
    Place,
    ReceiverState,
    Record,
    Release,
    Send,
    State,
    Tell,
    step,
)
from wallaroo.connectors.tcp.pipe import EgressConfig, Message
from wallaroo.connectors.tcp.progress import OutputProgress
from wallaroo.connectors.tcp.queue import Loader, SendQueue
from wallaroo.sinks.queued.pending import PendingBatch

SLICE_BYTES = 128 * 1024  # per send; pings and the receiver's bytes wait meanwhile
RETRY_S = 0.25  # between two attempts to connect; Wallaroo's figure
ACK_POLL_S = 0.01  # between two readings of the kernel's count while bytes are unacknowledged
IDLE_POLL_S = 0.5
# Between two releases, each of which costs a sync.  Acknowledged output stays on disk for longer.
RELEASE_S = 0.25


class EgressMachine:
    """The decisions of one outbox's egress.

    Every input returns the actions that follow from it.

    ``acked`` is the offset up to which the receiver's kernel has acknowledged output, None if the
    kernel does not count it; ``now`` is in seconds of a clock that never goes back.
    """

    def __init__(self, config: EgressConfig, progress: OutputProgress, load: Loader):
        self.state = State.DISCONNECTED
        self.receiver = ReceiverState.WRITING
        self.committer = Committer.LISTING
        self.queue = SendQueue(progress.acked, progress.released_end, load)
        self._config = config
        self._progress = progress
        self._acked = progress.acked
        self._retry_at = 0.0
        self._release_at = 0.0
        # the current connection's
        self._start = 0
        self._reported = ResumeStream()
        self._ending = Ending(0.0)

    @property
    def has_output(self) -> bool:
        """Return whether there is output to send now."""
        if self.state is State.FINISHING:
            return self.queue.rest_of_output() > 0
        return self.state in (State.CONNECTED, State.SENDING) and self.queue.has_more()

    @property
    def is_ended(self) -> bool:
        """Return whether both sides have ended the connection."""
        return self.state is State.DRAINING and self.receiver is ReceiverState.ENDED

    def timeout_s(self, now: float) -> float:
        """Return the seconds after which `settle` is due if nothing else happens."""
        if self.state in (State.FINISHING, State.DRAINING):
            return ACK_POLL_S
        if self.state is State.DISCONNECTED and self.committer is Committer.SUPPLYING:
            return min(IDLE_POLL_S, max(0.0, self._retry_at - now))
        if self.state is State.SENDING:
            if not self._config.is_resuming and self._acked < self.queue.offset:
                return ACK_POLL_S
            if self.queue.is_releasable(self._acked):
                return min(IDLE_POLL_S, max(0.0, self._release_at - now))
        return IDLE_POLL_S

    # -- the committer ----------------------------------------------------------------------------

    def receive_message(self, message: Message) -> list[Action]:
        if "commit" in message:
            return self._accept(PendingBatch.from_json(message["commit"]), message["end"])
        if "ping" in message:
            return [Tell({"alive": True})]
        if "start" in message:
            self.committer = step(COMMITTER, self.committer, Event.START)
        elif "close" in message:
            self.close()
        return []

    def close(self) -> None:
        """Note that the committer asked for the end, or has ended."""
        self.committer = step(COMMITTER, self.committer, Event.CLOSE)

    def _accept(self, batch: PendingBatch, end: int) -> list[Action]:
        released = self._progress.released_batch
        if batch.batch <= released:
            return [Tell({"released": released, "accepted": self.queue.offset})]
        if not self.queue.add(batch):
            return []
        actions: list[Action] = [
            self._record(last_batch=batch.batch, last_commit=batch.commit.id, last_end=end)
        ]
        if batch.end <= self.queue.offset:
            actions.append(Tell({"sent": batch.batch, "t_ns": 0}))
        return actions

    # -- the start of a connection ----------------------------------------------------------------

    def connect(self) -> list[Action]:
        """Note that the attempt to connect succeeded."""
        is_resuming = self._config.is_resuming
        self._move(Event.GREET if is_resuming else Event.CONNECT)
        self.receiver = ReceiverState.WRITING
        self._reported = ResumeStream()
        return [Tell({"waiting": "receiver to report how much it has" if is_resuming else ""})]

    def refuse(self, reason: str, now: float) -> list[Action]:
        """Note that the attempt to connect failed."""
        self._move(Event.REFUSE)
        self._retry_at = now + RETRY_S
        return [self._await_receiver(reason)]

    def take_over(self, accepted: int, acked: int, is_ended: bool, now: float) -> None:
        """Continue the connection that a killed egress left; call before anything else.

        Its kernel has accepted all output up to ``accepted``.  ``is_ended``: the killed egress had
        ended its side.
        """
        self._move(Event.TAKE_OVER_ENDED if is_ended else Event.TAKE_OVER)
        self.queue.offset = accepted
        self._start = self._config.inherited_start
        self._note_acked(acked)
        self._ending = Ending(now)

    def _begin(self, start: int) -> Action:
        self._move(Event.BEGIN)
        self.queue.seek(start)
        self._start = start
        return Begin(start)

    # -- sending ----------------------------------------------------------------------------------

    def send(self, limit: int = SLICE_BYTES) -> list[Action]:
        """Return the actions that send the next bytes; call if the connection has room."""
        actions: list[Action] = []
        if self.state is State.CONNECTED:
            actions.append(self._begin(self.queue.boundary(self.queue.offset)))
        if self.state is State.FINISHING:
            limit = min(limit, self.queue.rest_of_output())
        is_sending = self.state in (State.SENDING, State.FINISHING)
        views = self.queue.views(limit) if is_sending else []
        if views and self.queue.batch > self._progress.begun_batch:
            actions.append(self._record(begun_batch=self.queue.batch))
        return [*actions, Send(views)]

    def sent(self, count: int, t_ns: int) -> list[Action]:
        """Note that the kernel accepted this many bytes of the last `Send`, at this time."""
        return [
            Tell({"sent": batch.batch, "t_ns": t_ns, "accepted": self.queue.offset})
            for batch in self.queue.advance(count)
        ]

    # -- the receiver -----------------------------------------------------------------------------

    def receive(self, chunk: bytes, acked: int | None, now: float) -> list[Action]:
        """Accept bytes that the receiver wrote; none at its end."""
        self._ending.note_received(now)
        if not chunk:
            return self._receive_end(acked, now)
        return self._receive_offsets(chunk, now) if self._config.is_resuming else []

    def _receive_end(self, acked: int | None, now: float) -> list[Action]:
        is_draining = self.state is State.DRAINING
        is_resuming = self._config.is_resuming
        if is_draining and is_resuming:
            return [Close(), *self._leave("ended")]
        if not is_draining and (is_resuming or acked is None):
            return self.lose("connection closed by the receiver", acked, now)
        # Ending one side only is legal, and `nc` does it; if the receiver has ended, a send fails.
        self.receiver = ReceiverState.ENDED
        return []

    def _receive_offsets(self, chunk: bytes, now: float) -> list[Action]:
        actions: list[Action] = []
        try:
            offsets = self._reported.feed(chunk)
        except ValueError as error:
            return self.lose(str(error), None, now)
        for offset in offsets:
            if self.state is not State.GREETING:
                self._acked = max(self._acked, min(offset, self.queue.offset))
            elif problem := self._problem_with(offset):
                return self.lose(problem, None, now)
            else:
                actions += self._resume_at(offset)
        return actions

    def _resume_at(self, offset: int) -> list[Action]:
        actions: list[Action] = []
        if skips := self.queue.skips():
            actions.append(self._record(resolved_batch=skips[-1].batch))
        self._acked = offset
        return [*actions, self._begin(offset), Tell({"waiting": ""})]

    def _problem_with(self, offset: int) -> str:
        """Return why the receiver cannot resume from there; empty if it can."""
        queue = self.queue
        if not queue.start <= offset <= queue.end:
            return (
                f"the receiver has {offset} bytes, this outbox holds {queue.start} to {queue.end}; "
                f"it belongs to another run"
            )
        for skip in queue.skips():
            if skip.batch > self._progress.resolved_batch and offset > skip.start:
                return (
                    f"the receiver has {offset} bytes, and output was skipped at byte "
                    f"{skip.start}; cut what it holds to {skip.start} bytes and start it again"
                )
        return ""

    # -- the end of a connection ------------------------------------------------------------------

    def lose(self, reason: str, acked: int | None, now: float) -> list[Action]:
        """Leave a broken connection, and repeat unacknowledged output."""
        is_begun = self.state in BEGUN
        if is_begun:
            self._note_acked(acked)
        self._retry_at = now if is_begun else now + RETRY_S
        return [Close(), *self._leave(reason), self._await_receiver(reason)]

    def _leave(self, reason: str) -> list[Action]:
        self._move(Event.LEAVE)
        if not self._config.is_resuming:
            self.queue.offset = max(self._acked, self.queue.start)
        return [Tell({"lost": reason})]

    # -- every turn -------------------------------------------------------------------------------

    def settle(
        self, now: float, acked: int | None = None, has_rest: bool = False, error: str = ""
    ) -> list[Action]:
        """Release what is acknowledged, and do what is due; call after every turn.

        ``has_rest``: the connection still holds output that the kernel has not accepted.
        ``error``: the connection's, empty if there is none.
        """
        actions = self._release(acked, now)
        is_closed = self.committer is Committer.CLOSED
        if self.state is State.DRAINING or (is_closed and self.state in OPEN):
            actions += self._end_in_order(has_rest, error, now)
        if is_closed and self.state in (State.DISCONNECTED, State.CONNECTING):
            self._move(Event.EXIT)
        elif self._is_dialing_due(now):
            self._move(Event.DIAL)
            actions.append(Dial())
        return actions

    def _is_dialing_due(self, now: float) -> bool:
        is_waiting = self.state is State.DISCONNECTED and self.committer is Committer.SUPPLYING
        return is_waiting and now >= self._retry_at

    def _release(self, acked: int | None, now: float) -> list[Action]:
        is_begun = self.state in BEGUN
        if is_begun:
            self._note_acked(acked)
        is_due = now >= self._release_at or self.committer is Committer.CLOSED
        # a resuming receiver has to accept the skipped bytes before their record is deleted
        is_allowed = is_begun or not self._config.is_resuming
        released = self.queue.release(self._acked) if is_due and is_allowed else []
        if not released:
            return [Place(self.queue.offset, self._acked, self.queue.has_more())]
        self._release_at = now + RELEASE_S
        last = released[-1]
        skipped = self._progress.skipped + sum(batch.skipped_bytes for batch in released)
        self._progress = replace(self._progress, released_batch=last.batch, skipped=skipped)
        return [Release(last.batch, last.end, skipped, self.queue.offset, self._acked)]

    def _end_in_order(self, has_rest: bool, error: str, now: float) -> list[Action]:
        if self.state not in BEGUN:
            return [Close(), *self._leave("ended")]
        if self.state is State.SENDING:
            self._move(Event.FINISH)
            self._ending = Ending(now)
        actions: list[Action] = []
        if self.state is State.FINISHING and not self.queue.rest_of_output() and not has_rest:
            self._move(Event.END)
            actions.append(HalfClose())
        missing = self.queue.offset - self._acked
        self._ending.note_missing(missing, now)
        actions.append(Tell({"ending": [missing, self.queue.offset - self._start]}))
        if self.is_ended and not missing:
            actions += [Close(), *self._leave("ended")]
        elif self.state is State.DRAINING and error:
            actions += self.lose(error, self._acked, now)
        elif self._ending.is_over(now):
            actions += [Close(is_abandoned=missing > 0), *self._leave("ended")]
        return actions

    # -- common parts -----------------------------------------------------------------------------

    def _move(self, event: Event) -> None:
        self.state = step(CONNECTION, self.state, event)

    def _note_acked(self, acked: int | None) -> None:
        if not self._config.is_resuming:  # such a receiver reports it by itself
            self._acked = self.queue.offset if acked is None else min(acked, self.queue.offset)

    def _record(self, **changes: Any) -> Record:
        self._progress = replace(self._progress, **changes)
        return Record(changes)

    def _await_receiver(self, reason: str) -> Tell:
        is_abbreviation = reason[:2].isupper()  # TLS
        words = reason if is_abbreviation else f"{reason[:1].lower()}{reason[1:]}"
        return Tell({"waiting": f"{self._config.address} ({words})"})
