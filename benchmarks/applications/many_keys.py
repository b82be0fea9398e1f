"""An application whose state is large: every key keeps about a hundred bytes, and every event
changes its key's.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import struct

import wallaroo

EVENT = struct.Struct(">QI")  # key, value
# with the class's name and the two numbers, the pickled state has about 100 bytes
FILLER_BYTES = 64


class Kept:
    """The state of one key."""

    __slots__ = ("count", "filler", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.filler = b"\xa5" * FILLER_BYTES


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_event(payload: bytes) -> tuple[int, int]:
    """Read a key and a value."""
    key, value = EVENT.unpack(payload)
    return key, value


@wallaroo.key_extractor
def key_of(event: tuple[int, int]) -> int:
    """The first part of the event."""
    return event[0]


@wallaroo.state_computation(name="keep", state=Kept)
def keep(event: tuple[int, int], kept: Kept) -> None:
    """Add to the key's sum; nothing comes out."""
    kept.count += 1
    kept.total += event[1]


@wallaroo.encoder
def encode_nothing(output: bytes) -> bytes:
    """There is nothing to encode."""
    return output


def application_setup(args: list[str]) -> object:
    """Build it: events -> one state per key -> nothing."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    events = wallaroo.source("Events", wallaroo.TCPSourceConfig(name, host, port, decode_event))
    pipeline: wallaroo.Pipeline[bytes] = (
        events.key_by(key_of)
        .to(keep)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_nothing))
    )
    return wallaroo.build_application("Many Keys", pipeline)
