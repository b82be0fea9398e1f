"""What a message of a NATS stream is to a pipeline.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from typing import NamedTuple


class NATSMessage(NamedTuple):
    """A message of a stream; ``sequence`` is its number there."""

    subject: str
    sequence: int
    headers: dict[str, str]
    payload: bytes
