"""A step that takes a while for every event, as one that asks another system does.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import struct
import time

import wallaroo

EVENT = struct.Struct(">I")  # how long the step takes: microseconds


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> int:
    """Read how long it takes."""
    (microseconds,) = EVENT.unpack(payload)
    return int(microseconds)


@wallaroo.computation(name="wait")
def wait(microseconds: int) -> int:
    """Take that long."""
    time.sleep(microseconds / 1e6)
    return microseconds


@wallaroo.encoder
def encode(microseconds: int) -> bytes:
    """Write a line."""
    return b"%d\n" % microseconds


def application_setup(args: list[str]) -> object:
    """Build the application: events -> wait -> lines."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    slow = wallaroo.source(name, wallaroo.TCPSourceConfig(name, host, port, decode)).to(wait)
    sink = wallaroo.TCPSinkConfig(out_host, out_port, encode)
    return wallaroo.build_application("Slow", slow.to_sink(sink))
