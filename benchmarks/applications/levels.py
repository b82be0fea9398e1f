"""An application of one, two or three levels whose events cost nothing, or a wait in place of
work.

An event that waits holds its task, not a core: so many tasks can be had on few cores as a cluster
has cores, and what a batch takes beyond the wait is what the framework and Spark add.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import struct
import time

import wallaroo

EVENT = struct.Struct(">QI")  # key, milliseconds to wait


class Count:
    """The state of one key."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events = 0


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode_event(payload: bytes) -> tuple[int, int]:
    """Read a key and a time."""
    key, wait_ms = EVENT.unpack(payload)
    return key, wait_ms


@wallaroo.computation(name="wait")
def wait(event: tuple[int, int]) -> tuple[int, int]:
    """Wait as long as the event says."""
    if event[1]:
        time.sleep(event[1] / 1e3)
    return event


@wallaroo.key_extractor
def key_of(event: tuple[int, int]) -> int:
    """The first part of the event."""
    return event[0]


@wallaroo.state_computation(name="count", state=Count)
def count(event: tuple[int, int], counted: Count) -> tuple[int, int]:
    """Count the key's events."""
    counted.events += 1
    return event


@wallaroo.state_computation(name="count again", state=Count)
def count_again(event: tuple[int, int], counted: Count) -> tuple[int, int]:
    """Count once more, behind another shuffle."""
    counted.events += 1
    return event


@wallaroo.encoder
def encode_key(event: tuple[int, int]) -> bytes:
    """The key."""
    return EVENT.pack(*event)


def application_setup(args: list[str]) -> object:
    """Build it: ``--levels N`` comes before what all applications take."""
    levels = int(args[args.index("--levels") + 1])
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    pipeline = wallaroo.source(
        "Events", wallaroo.TCPSourceConfig(name, host, port, decode_event)
    ).to(wait)
    if levels > 1:
        pipeline = pipeline.key_by(key_of).to(count)
    if levels > 2:
        pipeline = pipeline.key_by(key_of).to(count_again)
    return wallaroo.build_application(
        "Levels", pipeline.to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_key))
    )
