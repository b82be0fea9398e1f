"""Decoders and encoders that are objects with methods, as current steps.

Where it runs: driver, while an application is built.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Literal

from wallaroo.connectors.kafka.source import KafkaSourceConfig
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.interface import SinkConfig
from wallaroo.sources.interface import SourceConfig
from wallaroo.steps.kinds import Decoder, Encoder
from wallaroo.user_code.user_frames import user_place

# unsigned and of whole bytes, as headers are
_FORMATS = {1: (">B",), 2: (">H", "<H"), 4: (">I", "<I"), 8: (">Q", "<Q")}


def with_name(config: Any, name: str) -> Any:
    """Return a source configuration with a current decoder, and a name if it has none."""
    if not isinstance(config, SourceConfig):
        return config  # the checks report it
    changes: dict[str, Any] = {}
    if not config.name:
        changes["name"] = name
    decoder = getattr(config, "decoder", None)
    if decoder is not None and not isinstance(decoder, Decoder):
        is_framed = not isinstance(config, KafkaSourceConfig)
        changes["decoder"] = _decoder(decoder, is_framed=is_framed)
    return replace(config, **changes) if changes else config  # type: ignore[type-var]  # they are dataclasses


def with_encoder(config: Any) -> Any:
    """Return a sink configuration with a current encoder."""
    if not isinstance(config, SinkConfig):
        return config
    encoder: Any = config.encoder
    if encoder is None or isinstance(encoder, Encoder) or not hasattr(encoder, "encode"):
        return config
    if inspect.isclass(encoder):
        raise wrong("to_sink()", "Expecting an Encoder instance. Got a class instead.")
    made: Encoder[Any] = Encoder(encoder.encode, type(encoder).__name__)
    return replace(config, encoder=made)  # type: ignore[type-var]  # they are dataclasses


def _decoder(given: Any, *, is_framed: bool) -> Decoder[Any]:
    if inspect.isclass(given):
        raise wrong("new_pipeline()", "Expecting a Decoder instance. Got a class instead.")
    for method in ("header_length", "payload_length", "decode") if is_framed else ("decode",):
        if not callable(getattr(given, method, None)):
            what = f"The decoder, a {type(given).__name__}, has no method {method}()."
            raise wrong("new_pipeline()", what)
    if not is_framed:  # Kafka's records have no header
        return Decoder(given.decode, type(given).__name__)
    length = given.header_length()
    return Decoder(given.decode, type(given).__name__, length, _format(given, length))


def _format(given: Any, length: int) -> str:
    """Return the format of a header for ``payload_length``, which saves calls."""
    header = bytes(range(1, length + 1)) if isinstance(length, int) else b""
    for format_ in _FORMATS.get(length, ()):
        order: Literal["big", "little"] = "big" if format_[0] == ">" else "little"
        try:
            number = given.payload_length(header)
        except Exception:  # noqa: BLE001  # the user's code: it may read digits
            break
        if number == int.from_bytes(header, order):
            return format_
    what = (
        f"payload_length() of the decoder, a {type(given).__name__}, reads a header of {length!r} "
        f"bytes, but not as one unsigned number."
    )
    raise wrong("new_pipeline()", what, "Use a header of 1, 2, 4 or 8 bytes, '>I' for instance.")


def wrong(step: str, what: str, fix: str = "") -> WallarooParameterError:
    """Return the error for an argument of a step."""
    return WallarooParameterError(Problem(step, user_place(), what, fix))
