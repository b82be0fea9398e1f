"""RedisSinkConfig: outputs in a Redis stream or hash, exactly once.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.redis.output import decoded_entry, decoded_field, pack_entry, pack_field
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.kinds import Encoder


@dataclass(frozen=True, slots=True)
class RedisSinkConfig(QueuedSinkConfig):
    """A sink that writes a stream or hash, in order, exactly once.

    For ``stream`` the encoder returns a dict of fields, or a value (bytes, str), which becomes the
    field ``value``.  For ``hash`` it returns ``(field, value)``; a value of None removes the field.

    A script puts a commit, several put a large one, with its identity and the number of outputs in
    the hash ``ledger``: as durable as the server is (``appendonly yes``, ``appendfsync always``).
    ``max_length`` keeps about that many entries of the stream.

    While the server is unavailable, output waits in the outbox.  One server, or a primary with
    replicas; not Redis Cluster.  Needs redis where the driver runs.
    """

    kind: ClassVar[str] = "redis"
    takes_rows: ClassVar[bool] = True
    shown_options: ClassVar[str] = "{0.target!r}"
    system: ClassVar[str] = "wallaroo.connectors.redis.committer:RedisSystem"
    library: ClassVar[str] = "redis"

    url: str = field(repr=False)  # may hold a password
    encoder: Encoder[Any] | None = None
    stream: str = ""
    hash: str = ""
    max_length: int | None = None
    ledger: str = "wallaroo:ledger"
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if bool(self.stream) == bool(self.hash):
            raise self._wrong("stream and hash are two ways.", "Name one of them.")
        if self.max_length is not None and (self.hash or self.max_length < 1):
            raise self._wrong(
                f"max_length={self.max_length!r} cannot be kept.",
                "Give a number of entries of a stream, or leave it out.",
            )
        pack = pack_field if self.hash else pack_entry
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> Any:
        """Return a staged output: a dict of fields, or the field of a hash and its value."""
        return decoded_field(output) if self.hash else decoded_entry(output)

    @property
    def label(self) -> str:
        return f"redis stream {self.stream}" if self.stream else f"redis hash {self.hash}"

    @property
    def target(self) -> str:
        return self.stream or self.hash
