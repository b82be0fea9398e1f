"""An entry of a Redis stream as pipelines see it.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from typing import NamedTuple


class RedisEntry(NamedTuple):
    """An entry of a stream."""

    id: str
    fields: dict[bytes, bytes]
