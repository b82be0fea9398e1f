"""The two-phase commit of a queued committer's batches with a sink program.

Where it runs: driver, in the committer's thread.

A batch is sent as messages of stream 1, each with the offset of its first byte in the sink's
output; then phase 1 names the bytes, the program votes, and phase 2 ends the transaction.

The invariants:

* A batch is final before any of it is sent.  So a transaction is aborted only if its program voted
  no or its vote is not known, and what it held is always sent again, from the same offset, under a
  new name.
* A yes is in the ledger before phase 2 asks for the commit.  So a transaction that a program lists
  when it is connected to again, and that is the ledger's, is committed; any other one that it lists
  was never committed, and is aborted.  One that is in the ledger and not listed has had its phase
  2, because a program lists what it voted for until then.
* A batch that is in the ledger is never sent again, and the next one begins at the ledger's offset.

As a result, every batch is in the program's output once, if the program keeps the bytes it voted
for.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.compat.sink.link import SILENT_S_MAX, Link, SinkUnavailableError
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.protocols.connector import two_phase
from wallaroo.protocols.connector.frames import Hello, Message, Notify, NotifyAck, Ok
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import ExternalSystem, Session
from wallaroo.sinks.staging import WAYS_ON as OUTBOX_WAYS_ON
from wallaroo.sinks.staging import Staged

VERSION = b"v0.0.1"  # the version that sink programs ask for
PROGRAM = b"wallaroo"
FORMAT = 1
LEDGER = "two_phase.json"  # in the outbox
ABORTS_MAX = 3  # per batch and connection; then a new one is opened, which is reported
WAYS_ON = (
    "Continue with the checkpoint that wrote the output; or begin with another --checkpoint "
    "folder, which is another instance to the sink program."
)


@dataclass(frozen=True, slots=True)
class TransactionLedger:
    """The newest transaction that the program voted to commit.

    With it the program has everything up to ``offset``.
    """

    last: CommitId
    offset: int = 0  # bytes of output up to and with the transaction
    transaction: str = ""


def read_ledger(staging: Path, checkpoint: str) -> TransactionLedger:
    """Read the ledger of a checkpoint's output.  Raises CheckpointError if it is damaged."""
    path = staging / LEDGER
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        ledger = TransactionLedger(
            CommitId.from_json(fields), int(fields["offset"]), fields["transaction"]
        )
        if fields["format"] != FORMAT or ledger.last.checkpoint != checkpoint:
            raise ValueError("it belongs to another checkpoint or version of wallaroo")
    except FileNotFoundError:
        return TransactionLedger(CommitId(checkpoint))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} cannot be used: {error}. {OUTBOX_WAYS_ON}") from error
    return ledger


def write_ledger(staging: Path, ledger: TransactionLedger, is_durable: bool) -> None:
    """Store the ledger as a whole; in durable mode it is on disk when this returns."""
    fields = {
        "format": FORMAT,
        "offset": ledger.offset,
        "transaction": ledger.transaction,
        **ledger.last.to_json(),
    }
    content = json.dumps(fields).encode()
    write_whole(staging / LEDGER, content, is_durable=is_durable, points="connector.ledger")


class ConnectorSystem(ExternalSystem[SinkConnectorConfig]):
    errors: ClassVar[tuple[type[Exception], ...]] = (SinkUnavailableError,)
    ways_on: ClassVar[str] = WAYS_ON
    stalled_s = 2 * SILENT_S_MAX  # for a program that sends a lot but never the answer

    def connect(self, checkpoint: str) -> Session:
        config = self._config
        context = self._context
        # programs name a file after it, and recognise their own files by it
        instance = f"{quote(context.sink, safe='')}-{checkpoint}"
        link = Link((config.host, int(config.port)))
        hello = Hello(VERSION, config.cookie.encode(), PROGRAM, instance.encode())
        session = TwoPhaseSession(link, hello, checkpoint, context.staging, context.is_durable)
        try:
            session.begin()
        except BaseException:
            session.close()
            raise
        return session

    def waiting_for(self, error: Exception) -> str:
        config = self._config
        return f"sink program '{config.name}' at {config.host}:{config.port} ({error})"

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        return PeerError(f"Sink program '{self._config.name}' failed: {error}.")


class TwoPhaseSession(Session):
    """A connection to a sink program; the module's docstring has the invariants."""

    def __init__(self, link: Link, hello: Hello, checkpoint: str, staging: Path, is_durable: bool):
        self._link = link
        self._hello = hello
        self._staging = staging
        self._is_durable = is_durable
        self._ledger = read_ledger(staging, checkpoint)
        self._tags = itertools.count(1)

    def begin(self) -> None:
        """Shake hands, open the stream of output, and end transactions that were left open."""
        self._link.send(self._hello)
        self._link.await_frame(Ok, "OK")
        self._link.send(Notify(two_phase.OUTPUT_STREAM, self._hello.instance, self._ledger.offset))
        opened = self._link.await_frame(NotifyAck, "NOTIFY_ACK")
        if not opened.is_open:
            raise SinkUnavailableError("it does not open the stream of output")
        self._resolve()

    def last(self) -> CommitId:
        return self._ledger.last

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        if batch.batch <= self._ledger.last.batch:
            return False
        staged = list(parts)
        for _ in range(ABORTS_MAX):
            if self._transact(batch, staged):
                return True
        raise SinkUnavailableError(f"it votes against batch {batch.batch}")

    def mark(self) -> object:
        return self._ledger.offset, self._link.sent

    def cancel(self) -> None:
        self._link.break_off()

    def close(self) -> None:
        self._link.close()

    def _resolve(self) -> None:
        tag = next(self._tags)
        self._say(two_phase.ListUncommitted(tag))
        while True:
            reply = self._link.await_inner(
                two_phase.ReplyUncommitted, "the list of open transactions"
            )
            if reply.tag == tag:
                break
        for transaction in reply.transactions:
            is_ours = transaction == self._ledger.transaction.encode()
            fault_point("connector.resolve")
            self._say(two_phase.Phase2(transaction, is_ours))

    def _transact(self, batch: PendingBatch, parts: list[Staged]) -> bool:
        start = self._ledger.offset
        end = self._send_output(parts, start)
        name = f"{self._hello.instance.decode()}:c_id={batch.batch}:{secrets.token_hex(4)}"
        fault_point("connector.sent")
        self._say(two_phase.Phase1(name.encode(), ((two_phase.OUTPUT_STREAM, start, end),)))
        fault_point("connector.phase1")
        if not self._vote(name.encode()):
            self._say(two_phase.Phase2(name.encode(), False))
            return False
        ledger = TransactionLedger(batch.commit, end, name)
        write_ledger(self._staging, ledger, self._is_durable)
        self._ledger = ledger
        fault_point("connector.voted")
        self._say(two_phase.Phase2(name.encode(), True))
        fault_point("connector.phase2")
        return True

    def _vote(self, transaction: bytes) -> bool:
        while True:
            vote = self._link.await_inner(two_phase.Vote, "its vote")
            if vote.transaction == transaction:
                return vote.is_commit

    def _send_output(self, parts: list[Staged], offset: int) -> int:
        """Send a message per output; return the offset after the last."""
        for part in parts:
            at = 0
            for end in part.ends():
                self._link.send_later(
                    Message(two_phase.OUTPUT_STREAM, offset + at, 0, b"", bytes(part.body[at:end]))
                )
                at = end
            offset += at
        self._link.flush()
        return offset

    def _say(self, message: two_phase.Inner) -> None:
        self._link.send(two_phase.framed(message))
