"""A message of a NATS stream as pipelines see it.

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
