"""What an entry of a Redis stream is to a pipeline.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from typing import NamedTuple


class RedisEntry(NamedTuple):
    """An entry of a stream."""

    id: str
    fields: dict[bytes, bytes]
