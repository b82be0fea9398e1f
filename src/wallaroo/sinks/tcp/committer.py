"""The driver's side of a TCP sink: hands committed batches to the egress and knows what has left.

Where it runs: driver.

The law: a batch is handed to the egress first (latency) and written to the pending list before
``commit`` returns.  If the driver dies in between, the checkpoint's last commit still has the
tokens, and ``recover`` hands the batch over again; the egress's own progress says how much of it
had left.  Offsets are fixed by order alone (a batch begins where the one before it ended), so both
runs mean the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.identity import CommitHistory, CommitId
from wallaroo.sinks.interface import SinkCommitter, SinkStatus
from wallaroo.sinks.pending import PendingBatch, PendingList
from wallaroo.sinks.staging import remove_orphans, remove_staged
from wallaroo.sinks.tcp.pipe import EgressConfig, Message
from wallaroo.sinks.tcp.process import EgressProcess

READY_SECONDS = 30.0  # a new process on a crowded machine, or an earlier egress that still finishes
# orderly end of the egress: it finishes the output in hand for at most one second
STOP_SECONDS = 3.0


class OutboxCommitter(SinkCommitter):
    """Commits batches of staged output to one receiver, in order, through one egress."""

    def __init__(self, host: str, port: int, is_resuming: bool, staging: Path, is_durable: bool):
        staging.mkdir(parents=True, exist_ok=True)
        self._label, self._staging, self._is_resuming = f"{host}:{port}", staging, is_resuming
        self._list = PendingList(staging, is_durable)
        self._state = threading.Condition()
        self._pending: dict[int, PendingBatch] = {}  # in order; until released
        self._unsent: dict[int, PendingBatch] = {}
        self._end = 0  # offset behind the last committed byte
        self._left = 0  # offset behind the last byte that left
        self._released = -1
        self._last = -1  # last batch this committer knows of
        self._is_recovered = False
        self._ready: Message | None = None
        self._broken = ""
        self._status = SinkStatus()
        config = EgressConfig(host, port, str(staging), is_durable, is_resuming, keeper=-1)
        self._egress = EgressProcess(config, self._hear, self._again)

    @property
    def egress_pid(self) -> int:
        """Process id of the egress that runs now."""
        return self._egress.pid

    def recover(self, history: CommitHistory, tokens: Sequence[Any]) -> None:
        """Take up what an earlier run committed and did not send; remove what was not committed."""
        self._take_up(history.last, tokens)
        remove_orphans(
            self._staging,
            {token["file"] for found in self._pending.values() for token in found.tokens},
        )

    def _take_up(self, last: CommitId, tokens: Sequence[Any]) -> None:
        ready = self._await_ready()
        self._released, self._end, self._left = (
            ready["released_batch"],
            ready["released_end"],
            ready["accepted"],
        )
        for found in list(self._list.batches()):
            if found.batch <= self._released:
                self._list.remove(found)
            else:
                self._note(found)
        if last.batch > max(self._released, max(self._pending, default=-1)) and (
            made := PendingBatch.of(last, self._end, tokens)
        ):
            self._note(made)
            self._list.add(made)
        self._last = max(last.batch, self._released, max(self._pending, default=-1))
        self._status.committed_batch = self._committed()
        self._is_recovered = True
        for message in list(self._again()):
            self._egress.say(message)

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        """Hand a committed batch over; again for the same batch does nothing.  Returns before the
        output left.
        """
        if not self._is_recovered:
            self._take_up(
                CommitId(commit.checkpoint), ()
            )  # not recover(): the batch at hand is staged already
        self._refuse_broken()
        if commit.batch <= self._last:
            return
        made = PendingBatch.of(commit, self._end, tokens)
        with self._state:
            self._last = commit.batch
            if made is not None:
                self._note(made)
            else:
                self._status.committed_batch = self._committed()
        if made is None:
            return
        self._egress.say(_handover(made))
        with self._state:
            if made.batch in self._pending:  # else it has left already
                self._list.add(made)

    def abort(self, batch: int, tokens: Sequence[Any]) -> None:
        """Drop what these uncommitted tokens staged."""
        remove_staged(self._staging, tokens)

    def status(self) -> SinkStatus:
        """A snapshot for people."""
        with self._state:
            self._status.pending_bytes = max(0, self._end - self._left)
            return self._status.copy()

    def close(self, drain_seconds: float) -> None:
        """Wait until everything has left, at most so long, then stop; what is left stays in the
        outbox for the next run.
        """
        deadline = time.monotonic() + drain_seconds
        with self._state:
            while self._pending and not self._broken and (rest := deadline - time.monotonic()) > 0:
                self._state.wait(rest)
        self._egress.close(STOP_SECONDS)

    # -- batches ----------------------------------------------------------------------------------

    def _note(self, batch: PendingBatch) -> None:
        self._pending[batch.batch] = self._unsent[batch.batch] = batch
        self._end = batch.end

    def _again(self) -> Iterator[Message]:
        """What a new egress has to be told before anything else."""
        with self._state:
            if self._is_recovered:
                yield from [_handover(batch) for batch in self._pending.values()]
                yield {"start": True}

    def _committed(self) -> int:
        return min(self._unsent) - 1 if self._unsent else self._last

    # -- the egress's words -----------------------------------------------------------------------

    def _hear(self, message: Message) -> None:
        with self._state:
            if "ready" in message:
                self._ready = message["ready"]
                self._status.waiting_for = ""
            if "broken" in message:
                self._broken = self._status.waiting_for = message["broken"]
            if "waiting" in message:
                self._status.waiting_for = message["waiting"]
            if "accepted" in message and not self._is_resuming:
                self._left = message["accepted"]
            if "sent" in message:
                self._note_sent(message["sent"], message["t_ns"])
            if "released" in message:
                self._note_released(message["released"])
            self._state.notify_all()

    def _note_sent(self, batch: int, t_ns: int) -> None:
        sent = self._unsent.pop(batch, None)
        if sent is not None:
            self._status.outputs += sent.outputs
            self._left = max(self._left, sent.end) if not self._is_resuming else self._left
        if t_ns:
            self._status.note_sent(batch, t_ns)
        self._status.committed_batch = self._committed()

    def _note_released(self, last: int) -> None:
        self._released = max(self._released, last)
        for batch in [batch for batch in self._pending if batch <= last]:
            if batch in self._unsent:
                self._note_sent(batch, 0)
            released = self._pending.pop(batch)
            self._left = max(self._left, released.end)
            self._list.remove(released)

    def _await_ready(self) -> Message:
        deadline = time.monotonic() + READY_SECONDS
        with self._state:
            while (
                self._ready is None
                and not self._broken
                and (rest := deadline - time.monotonic()) > 0
            ):
                self._state.wait(rest)
            self._refuse_broken()
            if self._ready is None:
                why = self._status.waiting_for or "see egress.log in " + str(self._staging)
                raise PeerError(
                    f"The sending process of tcp {self._label} did not start within "
                    f"{READY_SECONDS:.0f} s: "
                    f"waiting for {why}. End the process that uses this checkpoint, or run again."
                )
            return self._ready

    def _refuse_broken(self) -> None:
        if self._broken:
            raise CheckpointError(f"The outbox of tcp {self._label} cannot go on: {self._broken}")


def _handover(batch: PendingBatch) -> Message:
    return {"commit": batch.to_json()}
