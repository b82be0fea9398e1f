"""The common part of all serdes: a decoder, and encoders."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, is_typeddict

from wallaroo.errors import Problem, WallarooParameterError, install_command
from wallaroo.steps.kinds import ON_ERROR, STOP, Callback, Decoder, Encoder
from wallaroo.user_code.references import pickle_by_name

Event = TypeVar("Event")
HEADER_BYTES = 4  # a frame's length, big endian


class Codec(ABC):
    """Both directions of a format.

    It is pickled as the arguments that it was created with.
    """

    is_line: ClassVar[bool] = False  # a payload is a line of text, without its newline
    event_class: type[Any] | None = None  # that of every event; None if they differ
    # decodes as ``decode`` does, but fails with errors of any kind; None: nothing is quicker
    quick: Callable[[Any], Any] | None = None

    def __init__(self, *arguments: Any):
        self._arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), pickle_by_name(self._arguments))

    def check_encoder(self, label: str) -> None:  # noqa: B027  # most encode whatever they decode
        """Raise WallarooParameterError if nothing can be encoded; ``label`` is the serde's."""

    @abstractmethod
    def decode(self, payload: Any) -> Any:
        """Return a payload's event.  Raises ValueError with the reason in words."""

    @abstractmethod
    def encode(self, event: Any) -> bytes:
        """Return an event's payload.  Raises ValueError or TypeError if it has none."""


def _restored(codec: type[Codec], arguments: bytes) -> Codec:
    return codec(*pickle.loads(arguments))


class _Line:
    def __init__(self, codec: Codec):
        self._codec = codec

    def __call__(self, event: Any) -> bytes:
        return self._codec.encode(event) + b"\n"


class _Frame:
    def __init__(self, codec: Codec):
        self._codec = codec

    def __call__(self, event: Any) -> bytes:
        payload = self._codec.encode(event)
        return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class _Keyed:
    def __init__(self, codec: Codec, key: Callback):
        self._codec = codec
        self._key = key

    def __call__(self, event: Any) -> tuple[bytes, Any]:
        return self._codec.encode(event), self._key.function(event)


class Serde(Generic[Event]):
    """A format of events of type ``Event``.

    It has a decoder for sources and encoders for sinks.
    """

    def __init__(self, label: str, codec: Codec, on_error: str):
        if on_error not in ON_ERROR:
            fix = f"Choose one of {', '.join(map(repr, ON_ERROR))}."
            raise WallarooParameterError(
                Problem(label, "", f"on_error={on_error!r} is unknown.", fix)
            )
        self._label = label
        self._codec = codec
        self._on_error = on_error

    @property
    def codec(self) -> Codec:
        """Return both directions of the format."""
        return self._codec

    @property
    def decoder(self) -> Decoder[Event]:
        """Return the decoder of payloads."""
        # pure: decoding twice costs less than pickling and unpickling the event
        name = f"decode {self._label}"
        return Decoder(self._codec.decode, name, on_error=self._on_error, is_pure=True)

    @property
    def encoder(self) -> Encoder[Event]:
        """Return the encoder of events as payloads, without header or newline.

        It is for Kafka, queues, objects, and files with a ``form``.
        """
        return self._encoder(self._codec.encode)

    @property
    def line_encoder(self) -> Encoder[Event]:
        """Return the encoder of events as lines.  Raises WallarooParameterError for bytes."""
        if not self._codec.is_line:
            what = "A payload may hold newlines, so a receiver could not split lines."
            fix = "Use frame_encoder."
            raise WallarooParameterError(Problem(self._label, "", what, fix))
        return self._encoder(_Line(self._codec))

    @property
    def frame_encoder(self) -> Encoder[Event]:
        """Return the encoder of frames: u32 big-endian length, then payload."""
        return self._encoder(_Frame(self._codec))

    def keyed_encoder(self, key: Callable[[Event], str | bytes | int | None]) -> Encoder[Event]:
        """Return the encoder of events as Kafka records with ``key(event)`` as their keys."""
        given: Any = key
        if not callable(given):
            fix = "Give one that returns an event's key, such as lambda event: event.id."
            raise WallarooParameterError(
                Problem(self._label, "", f"The key {key!r} is not a function.", fix)
            )
        return self._encoder(_Keyed(self._codec, Callback(key)))

    def _encoder(self, function: Callable[[Event], Any]) -> Encoder[Event]:
        self._codec.check_encoder(self._label)
        return Encoder(function, f"encode {self._label}", self._on_error)

    def __repr__(self) -> str:
        return f"<serde {self._label}>"


def exact_class(kind: Any) -> type[Any] | None:
    """Return the class of all events of a type; None if there are several, or it is unknown."""
    if is_typeddict(kind):
        return dict
    return kind if isinstance(kind, type) else None


def missing(format_name: str, library: str, error: ImportError) -> Exception:
    """Return the error for a library that is not installed."""
    what = f"needs {library}, which cannot be imported: {error}."
    fix = f"Install it wherever the driver and workers run: {install_command(library)}"
    return WallarooParameterError(Problem(format_name, "", what, fix))


def label_of(format_name: str, kind: Any) -> str:
    """Return the name of a format of a type in errors and tables."""
    return format_name if kind is None else f"{format_name} {getattr(kind, '__name__', kind)}"


__all__ = ["STOP", "Codec", "Event", "Serde", "label_of", "missing"]
