"""A Kafka record for decoders that need more than the value.

Where it runs: workers; needs no client.
"""

from __future__ import annotations

from datetime import UTC, datetime
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
    return KafkaRecord(
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.topic(),
        message.partition(),
        message.offset(),
        max(0, message.timestamp()[1]),
    )


def origin_of(message: Any) -> dict[str, Any]:
    """Return the facts by which a client's message can be found in its topic."""
    record = record_of(message)
    at = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "time": at.isoformat(timespec="milliseconds") if record.timestamp_ms else None,
    }
