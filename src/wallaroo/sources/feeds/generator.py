"""The generator source: a user's object computes event after event.

Where it runs: the configuration travels; the generator runs in a feeder process of its own.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast

from wallaroo.sources.feed import Feed
from wallaroo.sources.feeds.generator_feed import GeneratorFeed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder

Value = TypeVar("Value")


class Generator(Protocol[Value]):
    """The interface that ``GenSourceConfig`` requires of an object."""

    def initial_value(self) -> Value | None:
        """Return the first event; ``None`` ends the source at once."""

    def apply(self, value: Value, /) -> Value | None:
        """Return the event after ``value``; ``None`` ends the source for good."""


def _unpickle(payload: bytes) -> Any:
    return pickle.loads(payload)


unpickled: Decoder[Any] = Decoder(_unpickle, "unpickle", is_pure=True)
unpickled.__qualname__ = "unpickled"  # travels by reference, under the name it has here


@dataclass(frozen=True, slots=True)
class GenSourceConfig(SourceConfig[Event]):
    """A source of the events of ``gen_instance``.

    They are ``initial_value()``, then ``apply(previous)`` until it returns ``None``.  The instance
    is part of what survives a restart, attributes and all, so it and its events must be picklable
    and their classes importable.  Events come as fast as they are consumed.

    In the API of 2018, ``GenSourceConfig(gen_instance)``, it gets its pipeline's name.
    """

    kind: ClassVar[str] = "generator"
    may_end: ClassVar[bool] = True

    name: str
    gen_instance: Generator[Event] = cast(Generator[Event], None)  # noqa: RUF009  # see above
    decoder: Decoder[Event] = field(default=unpickled, init=False, repr=False)

    def __post_init__(self) -> None:
        name: Any = self.name
        generator: Any = self.gen_instance
        if generator is None and not isinstance(name, str):
            object.__setattr__(self, "gen_instance", name)
            object.__setattr__(self, "name", "")

    @property
    def label(self) -> str:
        return f"generator {type(self.gen_instance).__name__}"

    def open_feed(self, resume: bytes) -> Feed:
        return GeneratorFeed(self.name, self.gen_instance, resume)
