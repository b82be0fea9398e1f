"""The decorators of connectors: decoders and encoders under Wallaroo's names.

Where it runs: driver and workers, when the application's module is imported; connector programs.

The payload is inside of the protocol's frames, so a decoder gets it and an encoder returns it
without any header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from wallaroo.api.decorators import decoder, encoder
from wallaroo.steps.kinds import Decoder, Encoder

T = TypeVar("T")


def stream_message_decoder(function: Callable[[bytes], T | None], /) -> Decoder[T]:
    """Return a decoder of payloads by a function; ``None`` drops the message."""
    return decoder(function)


def stream_message_encoder(function: Callable[[T], bytes | str | None], /) -> Encoder[T]:
    """Return an encoder whose function returns a message's payload; ``None`` writes nothing."""
    return encoder(function)


def octet_message_decoder(header_length: Any = 4, length_fmt: str = ">I") -> Any:
    """Return a decoder as ``wallaroo.decoder`` does, with or without arguments."""
    return (
        decoder(header_length, length_fmt)
        if not callable(header_length)
        else decoder(header_length)
    )


def octet_message_encoder(function: Callable[[T], bytes | str | None], /) -> Encoder[T]:
    """Return an encoder as ``wallaroo.encoder`` does."""
    return encoder(function)
