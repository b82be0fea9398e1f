"""The generator source: a user's object makes the events, one from the other.

Where it runs: the configuration travels; the generator runs in a feeder process of its own.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from wallaroo.connectors.source import Framing, SourceConfig
from wallaroo.steps import Decoder

VALUE_BYTES_MAX = 1 << 30  # one pickled value


class Generator(Protocol):
    """What ``GenSourceConfig`` asks of an object."""

    def initial_value(self) -> Any:
        """Return the first event; ``None`` ends the source at once."""

    def apply(self, value: Any) -> Any:
        """Return the event behind ``value``; ``None`` ends the source for good."""


def _unpickle(payload: bytes) -> Any:
    return pickle.loads(payload)


unpickled: Decoder[Any] = Decoder(_unpickle, "unpickle")
unpickled.__qualname__ = "unpickled"  # travels by reference, under the name it has here


@dataclass(frozen=True, slots=True)
class GenSourceConfig(SourceConfig):
    """Take events from ``gen_instance``: ``initial_value()``, then ``apply(previous)`` until it returns ``None``.

    The instance is part of what survives a restart, attributes and all, so it and its events must be picklable and their classes
    importable.  Events come as fast as they are consumed.
    """

    kind: ClassVar[str] = "generator"

    name: str
    gen_instance: Any
    decoder: Decoder[Any] = field(default=unpickled, init=False, repr=False)

    @property
    def label(self) -> str:
        return f"generator {type(self.gen_instance).__name__}"

    @property
    def framing(self) -> Framing:
        return Framing(max_size=VALUE_BYTES_MAX)
