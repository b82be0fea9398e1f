"""A count per key, with the time that the sender wrote into each event: what a probe outside of the
application measures latency with.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import struct
from typing import Any

import wallaroo

EVENT = struct.Struct(">IQ")  # key, when it was due to be sent: unix ns


class Count:
    """The state of one key."""

    def __init__(self) -> None:
        self.events = 0


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode(payload: bytes) -> tuple[int, int]:
    """Read key and time."""
    key, at_ns = EVENT.unpack(payload)
    return key, at_ns


@wallaroo.key_extractor
def key_of(event: tuple[int, int]) -> int:
    """The first part of the event."""
    return event[0]


@wallaroo.state_computation(name="count", state=Count)
def count(event: tuple[int, int], counted: Count) -> tuple[int, int]:
    """Count the key's events; pass the time on."""
    counted.events += 1
    return event[1], counted.events


@wallaroo.encoder
def encode(counted: tuple[int, int]) -> bytes:
    """Write the time and the count."""
    return struct.pack(">QQ", *counted)


def application_setup(args: list[str]) -> object:
    """Events -> a count per key -> the sender's times."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    return application(
        wallaroo.TCPSourceConfig(name, host, port, decode),
        wallaroo.TCPSinkConfig(out_host, out_port, encode),
    )


def application(source: Any, sink: Any) -> object:
    """The same between any source and any sink."""
    counted = wallaroo.source("Counting", source).key_by(key_of).to(count)
    return wallaroo.build_application("Counting", counted.to_sink(sink))
