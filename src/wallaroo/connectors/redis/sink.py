"""RedisSinkConfig: outputs in a stream, a hash or keys, exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.redis.output import (
    KeyPack,
    decoded_entry,
    decoded_field,
    decoded_key,
    pack_entry,
    pack_field,
)
from wallaroo.network.urls import url_problem
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import is_count


@dataclass(frozen=True, slots=True)
class RedisSinkConfig(QueuedSinkConfig):
    """A sink that writes a stream, a hash or keys, exactly once.

    Outputs are written in order.

    For ``stream`` the encoder returns a dict of fields, or a value (bytes, str), which becomes the
    field ``value``.  For ``hash`` it returns ``(field, value)``; a value of None, or a
    `wallaroo.sinks.Delete` of the field, removes it.

    With ``key``, a text with names of fields such as ``"user:{id}"``, the encoder returns a row (a
    dict, a dataclass or a named tuple), which replaces the hash at its key; with ``value`` that
    field's value is set there instead.  `wallaroo.sinks.Delete` deletes the key.

    A script writes a commit (several a large one), with its identity and the number of outputs in
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
    key: str = ""
    value: str = ""
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, "redis://host:6379/0", "redis", "rediss", "unix"):
            raise self._wrong(*problem)
        if sum(map(bool, (self.stream, self.hash, self.key))) != 1:
            raise self._wrong("stream, hash and key are three ways.", "Name one of them.")
        if self.value and not self.key:
            raise self._wrong(f"value={self.value!r} needs key=.", "Name the key of each output.")
        if self.max_length is not None and not (self.stream and is_count(self.max_length)):
            raise self._wrong(
                f"max_length={self.max_length!r} cannot be kept.",
                "Give a number of entries of a stream, or leave it out.",
            )
        pack: Any = pack_field if self.hash else pack_entry
        if self.key:
            try:
                pack = KeyPack(self.key, self.value)
            except ValueError as error:
                fix = "Write it with names of fields: key='user:{id}'."
                raise self._wrong(f"key={self.key!r}: {error}.", fix) from None
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> Any:
        """Return a staged output: a dict of fields, or a field or key and its value."""
        if self.key:
            return decoded_key(output)
        return decoded_field(output) if self.hash else decoded_entry(output)

    @property
    def label(self) -> str:
        form = "stream" if self.stream else "hash" if self.hash else "key"
        return f"redis {form} {self.target}"

    @property
    def staged_form(self) -> str:
        if self.key:
            return "keys of their own"
        return "fields of a hash" if self.hash else "entries of a stream"

    @property
    def target(self) -> str:
        return self.stream or self.hash or self.key
