"""A count per key, with about a hundred bytes of state each: what a standby takes over.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

from pathlib import Path

import wallaroo

FILLER_BYTES = 64


class Kept:
    """The state of one key."""

    __slots__ = ("count", "filler")

    def __init__(self) -> None:
        self.count = 0
        self.filler = b"\xa5" * FILLER_BYTES


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_key(payload: bytes) -> bytes:
    """The payload is the key."""
    return payload


@wallaroo.key_extractor
def key_of(event: bytes) -> bytes:
    """The event is the key."""
    return event


@wallaroo.state_computation(name="count", state=Kept)
def count(event: bytes, kept: Kept) -> bytes:
    """Count; a line comes out."""
    kept.count += 1
    return b"%b %d\n" % (event, kept.count)


@wallaroo.encoder
def encode_line(line: bytes) -> bytes:
    """A line is a line."""
    return line


def application_setup(args: list[str]) -> object:
    """Build it: --in NAME@HOST:PORT, --out FILE or HOST:PORT."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    host_out, _, port_out = args[args.index("--out") + 1].rpartition(":")
    sink: wallaroo.FileSinkConfig | wallaroo.TCPSinkConfig
    if host_out:
        sink = wallaroo.TCPSinkConfig(host_out, port_out, encode_line)
    else:
        sink = wallaroo.FileSinkConfig(Path(port_out), encode_line)
    events = wallaroo.source(name, wallaroo.TCPSourceConfig(name, host, port, decode_key))
    counts = events.key_by(key_of).to(count)
    return wallaroo.build_application("counted keys", counts.to_sink(sink))
