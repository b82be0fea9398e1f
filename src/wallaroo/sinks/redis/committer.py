"""Redis as the system that a queued committer puts batches into.

Where it runs: driver.  It imports redis, which is optional.

The invariant: a batch's outputs and its identity in the ledger are set by one transaction (MULTI,
EXEC), which is given up where the ledger was changed in between (WATCH).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from wallaroo.clients.redis import ERRORS, connected, is_transient, place_of, sentence
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.identity import CommitId
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.redis.entries import unpacked
from wallaroo.sinks.staging import Staged
from wallaroo.sinks.system import Session, System


@dataclass(frozen=True, slots=True)
class Place:
    """Where outputs go, and under which name commits are remembered."""

    url: str = field(repr=False)
    sink: str
    stream: str
    hash: str
    max_length: int | None
    ledger: str

    @property
    def key(self) -> str:
        """The key that outputs go to."""
        return self.stream or self.hash


class RedisSession(Session):
    """One connection."""

    def __init__(self, place: Place, checkpoint: str):
        self._place = place
        self._checkpoint = checkpoint
        self._name = f"{place.sink}:{checkpoint}"
        self._client: Any = connected(place.url)

    def last(self) -> CommitId:
        return self._read(self._client)

    def put(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        place = self._place
        with self._client.pipeline(transaction=True) as transaction:
            transaction.watch(place.ledger)
            found = self._read(transaction)
            if found.batch >= batch.batch:
                return self._is_there(found, batch)
            transaction.multi()
            for part in parts:
                for start, end in pairwise((0, *part.ends())):
                    self._add(transaction, part.body[start:end])
            fields = json.dumps(batch.commit.to_json())
            transaction.hset(place.ledger, self._name, fields)
            fault_point("redis.exec")
            transaction.execute()
        fault_point("redis.executed")
        return True

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _add(self, transaction: Any, packed: memoryview) -> None:
        place = self._place
        fields = unpacked(packed)
        if place.stream:
            transaction.xadd(place.stream, dict(fields), maxlen=place.max_length, approximate=True)
            return
        for name, value in fields:
            if value is None:
                transaction.hdel(place.hash, name)
            else:
                transaction.hset(place.hash, name, value)

    def _read(self, client: Any) -> CommitId:
        found = client.hget(self._place.ledger, self._name)
        return (
            CommitId(self._checkpoint) if found is None else CommitId.from_json(json.loads(found))
        )

    def _is_there(self, found: CommitId, batch: PendingBatch) -> bool:
        if found.batch == batch.batch and found != batch.commit:
            raise CheckpointError(
                f"Redis {self._place.key} holds output of another commit {batch.batch} of sink "
                f"'{self._place.sink}': a copy of this checkpoint was run, or it was rolled back."
            )
        return False


class RedisSystem(System):
    """One key and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS
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
    """Open the committer of a Redis sink.  Raises PeerError for an address that cannot be read."""
    try:
        connected(place.url).close()
    except ValueError as error:
        raise PeerError(f"Sink '{place.sink}': the address cannot be read: {error}.") from None
    system = RedisSystem(place)
    return QueuedCommitter(place.sink, system, staging, is_durable=is_durable, points="redis")
