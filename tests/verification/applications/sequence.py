"""Windows per key: the key's last four values at every event.

Where it runs: driver (building it) and workers.  The output goes to a resuming TCP receiver, and to
files with ``--files DIR``; with ``--plain`` the receiver is any TCP receiver.
"""

from __future__ import annotations

import argparse
import struct
from typing import Any

import wallaroo

EVENT = struct.Struct(">IQ")  # key, value
WINDOW = 4


class Values:
    """State of one key."""

    def __init__(self) -> None:
        self.last = [0] * WINDOW


def application_setup(args: list[str]) -> object:
    """Build the application: numbers -> one window per key -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--files")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_known_args(args)[0]
    files = options.files
    is_resuming = not options.plain
    sinks: list[Any] = [wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=is_resuming)]
    if files:
        sinks.append(wallaroo.FileSinkConfig(files, encode))
    numbers = wallaroo.source("Sequence", wallaroo.TCPSourceConfig(name, host, port, decode))
    return wallaroo.build_application(
        "Verify Sequence", numbers.key_by(key_of).to(slide).to_sinks(sinks)
    )


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> tuple[int, int]:
    """Decode a key and a value."""
    return EVENT.unpack(payload)


@wallaroo.key_extractor
def key_of(event: tuple[int, int]) -> int:
    """Return the key, which has a window of its own."""
    return event[0]


@wallaroo.state_computation(name="slide window", state=Values)
def slide(event: tuple[int, int], values: Values) -> tuple[int, list[int]]:
    """Append the value, drop the oldest."""
    values.last = [*values.last[1:], event[1]]
    return event[0], values.last


@wallaroo.encoder
def encode(window: tuple[int, list[int]]) -> bytes:
    """Write a line: key, then the window."""
    return f"{window[0]} {window[1]}\n".encode()
