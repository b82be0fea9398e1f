"""The source interface: a source is a configuration, a framing and a feeder that fills its spool.

Where it runs: configurations travel; feeders run in processes of their own, started by the driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from wallaroo.steps import Decoder


@dataclass(frozen=True, slots=True)
class Framing:
    """How a source's bytes are cut into messages: a header of ``header_length`` bytes, read by ``length_fmt``, then the payload."""

    header_length: int = 4
    length_fmt: str = ">I"
    max_size: int = 16384  # largest payload accepted, bytes


class SourceConfig(ABC):
    """A source as users configure it; picklable.  Subclasses are frozen dataclasses in ``connectors/``."""

    kind: ClassVar[str] = "source"
    name: str
    decoder: Decoder[Any]

    @property
    @abstractmethod
    def label(self) -> str:
        """What errors and tables call it, e.g. ``tcp 127.0.0.1:7010``."""

    @property
    @abstractmethod
    def framing(self) -> Framing:
        """How the spool's frames of this source are cut."""
