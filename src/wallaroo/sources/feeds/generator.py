"""The generator source: a user's object computes event after event.

Where it runs: the configuration is pickled; the generator runs in a feeder process of its own.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, cast

from wallaroo.errors import UserCodeError
from wallaroo.sources.failures import VALUE_CHARS, failure_of
from wallaroo.sources.feed import Feed, FrameRun, framed
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder

CHUNK_BYTES_MAX = 64 * 1024  # in generated values
CHUNK_S_MAX = 0.005
RESUME_SHARE = 0.1  # the share of a generator's time spent on pickling it, at most


class GeneratorFeed:
    """The feed of a user's generator.

    Its state before each run is kept in case it fails.
    """

    def __init__(self, source: str, generator: object, resume: bytes):
        self._name = source
        self._snapshot = resume or pickle.dumps((generator, None, "new"))
        self._instance, self._value, self._state = pickle.loads(self._snapshot)
        self._run_began = time.monotonic()
        self._snapshot_s = 0.0

    def next_run(self) -> FrameRun | None:
        """Return values up to the bounds of a chunk, pickled and framed."""
        parts, failure = self._collect(None)
        # changes that apply made before it failed must not stay: run the good ones again
        while failure is not None and parts:
            self._instance, self._value, self._state = pickle.loads(self._snapshot)
            parts, failure = self._collect(len(parts))
        if failure is not None:
            raise failure
        if not parts:
            return None
        began = time.monotonic()
        self._snapshot = self._pickled((self._instance, self._value, self._state))
        self._run_began = time.monotonic()
        self._snapshot_s = self._run_began - began
        return FrameRun(b"".join(parts), len(parts), self._snapshot)

    def _collect(self, count: int | None) -> tuple[list[bytes], UserCodeError | None]:
        parts: list[bytes] = []
        size = 0
        until = self._run_began + max(CHUNK_S_MAX, self._snapshot_s / RESUME_SHARE)
        try:
            while self._state != "ended" and len(parts) != count:
                value = self._step()
                if value is None:
                    self._state = "ended"
                    break
                pickled = self._pickled(value)
                self._value = value
                self._state = "running"
                parts.append(framed(pickled))
                size += len(pickled)
                if count is None and (size >= CHUNK_BYTES_MAX or time.monotonic() >= until):
                    break
        except UserCodeError as failure:
            return parts, failure
        return parts, None

    def _step(self) -> Any:
        try:
            return (
                self._instance.initial_value()
                if self._state == "new"
                else self._instance.apply(self._value)
            )
        except Exception as error:  # noqa: BLE001  # the boundary to the user's generator
            raise self._failure(error) from None

    def _pickled(self, value: Any) -> bytes:
        try:
            return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  # pickle calls the user's __reduce__ and __getstate__
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> UserCodeError:
        is_new = self._state == "new"
        return failure_of(
            self._name, error, "the first" if is_new else f"after {repr(self._value)[:VALUE_CHARS]}"
        )


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
unpickled.__qualname__ = "unpickled"  # pickled by reference, under the name it has here


@dataclass(frozen=True, slots=True)
class GenSourceConfig(SourceConfig[Event]):
    """A source of the events of ``gen_instance``.

    They are ``initial_value()``, then ``apply(previous)`` until it returns ``None``.  The instance
    survives a restart, including its attributes, so it and its events must be picklable and their
    classes importable.  Events come as fast as they are consumed.

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
