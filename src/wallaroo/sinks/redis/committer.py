"""Redis as the system of a queued committer.

Where it runs: driver.  It imports redis, which is optional.

The invariant: one script (``sinks/redis/ledger.py``) writes outputs and their number in the commit;
several scripts write a large commit, and continue at the ledger's count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.clients.redis import (
    ERRORS,
    ChangedError,
    connected,
    is_transient,
    place_of,
    sentence,
)
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitId
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.redis.entries import unpacked
from wallaroo.sinks.redis.ledger import SCRIPT, Line
from wallaroo.sinks.staging import Staged
from wallaroo.sinks.system import Session, System

# The bounds of one script, during which Redis serves no other client.
OUTPUTS_MAX = 5000
BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """The key of outputs, and the names of commits in the ledger."""

    url: str = field(repr=False)
    sink: str
    stream: str
    hash: str
    max_length: int | None
    ledger: str

    @property
    def key(self) -> str:
        """Return the key that outputs go to."""
        return self.stream or self.hash


class RedisSession(Session):
    """One connection."""

    def __init__(self, place: Place, checkpoint: str):
        self._place = place
        self._checkpoint = checkpoint
        self._field = f"{place.sink}:{checkpoint}"
        self._client: Any = connected(place.url)
        self._text = ""  # the ledger's content, as far as this session knows
        self._line = Line(CommitId(checkpoint))

    def last(self) -> CommitId:
        text = self._client.hget(self._place.ledger, self._field) or b""
        self._note(text.decode())
        return self._line.last

    def put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        line = self._line
        if line.outputs and line.next != batch.commit:
            raise self._another(batch)
        if line.last.batch >= batch.batch:
            if line.last.batch == batch.batch and line.last != batch.commit:
                raise self._another(batch)
            return False
        waiting: list[list[bytes]] = []
        size = 0
        for packed in islice(_outputs(parts), line.outputs, None):
            if len(waiting) == OUTPUTS_MAX or size > BYTES_MAX:
                done = self._line.outputs + len(waiting)
                self._run(batch, waiting, Line(line.last, batch.commit, done))
                waiting = []
                size = 0
            waiting.append(self._command(packed))
            size += len(packed)
        self._run(batch, waiting, Line(batch.commit))
        return True

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _note(self, text: str) -> None:
        self._text = text
        self._line = Line.from_text(text, self._checkpoint)

    def _run(self, batch: PendingBatch, commands: list[list[bytes]], after: Line) -> None:
        """Run the script, after which the ledger holds ``after``."""
        place = self._place
        line = Line(self._line.last, batch.commit, self._line.outputs)
        text = after.to_text()
        words = [word for command in commands for word in (len(command), *command)]
        fault_point("redis.exec")
        is_done = self._client.eval(
            SCRIPT,
            2,
            *(place.ledger, place.key),
            *(self._field, self._text, text, line.partly, line.outputs),
            *words,
        )
        fault_point("redis.executed")
        if not is_done:
            raise ChangedError(f"'{place.ledger}' was changed by another client")
        self._note(text)

    def _command(self, packed: memoryview) -> list[bytes]:
        """Return the command that puts an output."""
        place = self._place
        fields = unpacked(packed)
        if place.hash:
            ((name, value),) = fields
            end = [b"HDEL", place.hash.encode(), name]
            return end if value is None else [b"HSET", place.hash.encode(), name, value]
        bound = [] if place.max_length is None else [b"MAXLEN", b"~", b"%d" % place.max_length]
        words = [word for name, value in fields for word in (name, value or b"")]
        return [b"XADD", place.stream.encode(), *bound, b"*", *words]

    def _another(self, batch: PendingBatch) -> CheckpointError:
        return CheckpointError(
            f"Redis {self._place.key} holds output of another commit {batch.batch} of sink "
            f"'{self._place.sink}': a copy of this checkpoint was run, or it was rolled back."
        )


def _outputs(parts: Iterator[Staged]) -> Iterator[memoryview]:
    for part in parts:
        for start, end in pairwise((0, *part.ends())):
            yield part.body[start:end]


class RedisSystem(System):
    """One key and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS
    is_fencing = True  # by the ledger, which each script compares
    ways_on: ClassVar[str] = (
        "Use the newer checkpoint; or name another stream or hash and another ledger."
    )

    def __init__(self, place: Place):
        self._place = place

    @property
    def target(self) -> str:
        return self._place.key

    def connect(self, checkpoint: str) -> Session:
        return RedisSession(self._place, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        if not is_transient(error):
            return ""
        return f"Redis at {place_of(self._place.url)} ({sentence(error)})"

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        what = f"batch {batch.batch} for" if batch else "output for"
        return PeerError(
            f"Redis at {place_of(self._place.url)} refuses {what} '{self._place.key}': "
            f"{sentence(error)}. Nothing is lost: committed output waits in {staging}. Correct the "
            f"key, the rights or the password, then run again."
        )


def open_committer(place: Place, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of a Redis sink; raise PeerError for an address that cannot be read."""
    try:
        connected(place.url).close()
    except ValueError as error:
        raise PeerError(f"Sink '{place.sink}': the address cannot be read: {error}.") from None
    system = RedisSystem(place)
    return QueuedCommitter(place.sink, system, staging, is_durable=is_durable, points="redis")
