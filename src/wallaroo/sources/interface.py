"""The source interface: a source is a configuration, a framing and a feeder that fills its spool.

Where it runs: configurations travel; feeders run in processes of their own, started by the driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from wallaroo.framing import Framing
from wallaroo.steps import Decoder

# defaults of type variables are for type checkers: Python itself has them from 3.13 on
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # so that a configuration's class alone stays a type
    Event = TypeVar("Event", covariant=True, default=Any)
    # what the file source makes without a decoder
    Line = TypeVar("Line", covariant=True, default=str)
else:
    from typing import TypeVar

    Event = TypeVar("Event", covariant=True)
    Line = TypeVar("Line", covariant=True)


class SourceConfig(ABC, Generic[Event]):
    """A source of events of type ``Event`` as users configure it; picklable.  Subclasses are frozen
    dataclasses in ``sources/``.
    """

    kind: ClassVar[str] = "source"
    name: str
    decoder: Decoder[Event]

    # Python 3.11 cannot write the type down on instances that are frozen and have slots
    if not TYPE_CHECKING:

        def __class_getitem__(cls, event):
            return cls

    @property
    @abstractmethod
    def label(self) -> str:
        """What errors and tables call it, e.g. ``tcp 127.0.0.1:7010``."""

    @property
    @abstractmethod
    def wire_framing(self) -> Framing:
        """How the frames of this source are cut, in its spool and on its port."""
