"""A Kafka record for decoders that need more than the value.

Where it runs: workers; needs no client.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class KafkaRecord(NamedTuple):
    """One record, the decoder's argument with ``KafkaSourceConfig(..., with_metadata=True)``."""

    value: bytes | None  # None: a tombstone, which deletes the key in a compacted topic
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    topic: str
    partition: int
    offset: int
    timestamp_ms: int  # unix time; 0 if the topic has none


def record_of(message: Any) -> KafkaRecord:
    """Copy a message of the client."""
    return KafkaRecord(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.topic(),
        message.partition(),
        message.offset(),
        max(0, message.timestamp()[1]),
    )
