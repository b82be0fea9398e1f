"""Delivery of committed batches to Redis.

The invariant: one script (``connectors/redis/ledger.py``) writes outputs and their number in the
commit; several scripts write a large commit, and continue at the ledger's count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, ClassVar

from wallaroo.connectors.redis.client import ERRORS, ChangedError, connected
from wallaroo.connectors.redis.ledger import REPLACE, SCRIPT, Line
from wallaroo.connectors.redis.output import unpacked, unpacked_key
from wallaroo.connectors.redis.sink import RedisSinkConfig
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.client_errors import readable_address
from wallaroo.network.urls import place_of
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged

# The bounds of one script, during which Redis serves no other client.
OUTPUTS_MAX = 5000
BYTES_MAX = 4 << 20


class RedisSession(Session):
    def __init__(self, config: RedisSinkConfig, sink: str, checkpoint: str):
        self._config = config
        self._sink = sink
        self._checkpoint = checkpoint
        self._field = f"{sink}:{checkpoint}"
        self._client: Any = connected(config.url)
        self._text = ""  # the ledger's content, as far as this session knows
        self._line = Line(CommitId(checkpoint))

    def last(self) -> CommitId:
        text = self._client.hget(self._config.ledger, self._field) or b""
        self._note(text.decode())
        return self._line.last

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        line = self._line
        if line.outputs and line.next != batch.commit:
            raise self._another(batch)
        if line.last.batch >= batch.batch:
            if line.last.batch == batch.batch and line.last != batch.commit:
                raise self._another(batch)
            return False
        waiting: list[list[bytes]] = []
        size = 0
        outputs = chain.from_iterable(part.outputs() for part in parts)
        for packed in islice(outputs, line.outputs, None):
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
        self._client.close()

    def _note(self, text: str) -> None:
        self._text = text
        self._line = Line.from_text(text, self._checkpoint)

    def _run(self, batch: PendingBatch, commands: list[list[bytes]], after: Line) -> None:
        """Run the script, after which the ledger holds ``after``."""
        config = self._config
        line = Line(self._line.last, batch.commit, self._line.outputs)
        text = after.to_text()
        # the keys of rows are not known to the script beforehand
        keys = [config.ledger] if config.key else [config.ledger, config.target]
        words = [word for command in commands for word in (len(command), *command)]
        fault_point("redis.exec")
        is_done = self._client.eval(
            SCRIPT,
            len(keys),
            *keys,
            *(self._field, self._text, text, line.partly, line.outputs),
            *words,
        )
        fault_point("redis.executed")
        if not is_done:
            raise ChangedError(f"'{config.ledger}' was changed by another client")
        self._note(text)

    def _command(self, packed: memoryview) -> list[bytes]:
        """Return the command that writes an output."""
        config = self._config
        if config.key:
            key, value = unpacked_key(packed)
            if value is None:
                return [b"DEL", key]
            if isinstance(value, bytes):
                return [b"SET", key, value]
            return [REPLACE, key, b"HSET", key, *(word or b"" for pair in value for word in pair)]
        fields = unpacked(packed)
        if config.hash:
            ((name, value),) = fields
            end = [b"HDEL", config.hash.encode(), name]
            return end if value is None else [b"HSET", config.hash.encode(), name, value]
        bound = [] if config.max_length is None else [b"MAXLEN", b"~", b"%d" % config.max_length]
        words = [word for name, value in fields for word in (name, value or b"")]
        return [b"XADD", config.stream.encode(), *bound, b"*", *words]

    def _another(self, batch: PendingBatch) -> CheckpointError:
        return CheckpointError(
            f"Redis {self._config.target} holds output of another commit {batch.batch} of sink "
            f"'{self._sink}': a copy of this checkpoint was run, or it was rolled back."
        )


class RedisSystem(ExternalSystem[RedisSinkConfig]):
    """One key and its ledger."""

    errors: ClassVar[tuple[type[Exception], ...]] = ERRORS.types
    is_fencing = True  # by the ledger, which each script compares
    ways_on: ClassVar[str] = (
        "Use the newer checkpoint; or name another stream, hash or key and another ledger."
    )

    def __init__(self, config: RedisSinkConfig, context: CommitContext):
        """Raise PeerError for an address that cannot be read."""
        super().__init__(config, context)
        self.ledger = f"{config.ledger} at {config.address}"
        with readable_address(f"Sink '{context.sink}'"):
            connected(config.url).close()

    def connect(self, checkpoint: str) -> Session:
        return RedisSession(self._config, self._context.sink, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        return f"{self.place} ({ERRORS.sentence(error)})" if ERRORS.is_transient(error) else ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        what = f"batch {batch.batch} for" if batch else "output for"
        return PeerError(
            f"{self.place} refuses {what} '{self.target}': {ERRORS.sentence(error)}. Nothing is "
            f"lost: committed output waits in {self._context.staging}. Correct the key, the rights "
            f"or the password, then run again."
        )

    @property
    def place(self) -> str:
        return f"Redis at {place_of(self._config.url)}"
