"""Readings with event times: counts in windows, and an as-of join.

An event is 18 bytes: key, time in nanoseconds, value.

Where it runs: worker (``application_of``: driver).
"""

from __future__ import annotations

import random
import struct
from typing import Any

import wallaroo
from wallaroo.aggregations import Count

SECOND = wallaroo.seconds(1)
LAYOUT = struct.Struct(">Hqd")
FRAME = struct.Struct(f">I{LAYOUT.size}s")
KEYS = 1000
PER_SECOND = 100_000  # of event time
OUT_OF_ORDER = 0.01  # of the events are up to a second late
TUMBLING, SLIDING, AS_OF = "tumbling 1 s", "sliding 10 s by 1 s", "as-of join"

Event = tuple[int, int, float]
unpack = LAYOUT.unpack


@wallaroo.decoder(pure=True)
def decode(payload: bytes) -> Event:
    """Read key, time and value."""
    return unpack(payload)


def time_of(event: Event) -> int:
    """The second part of the event."""
    return event[1]


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """The first part of the event."""
    return event[0]


@wallaroo.encoder
def encode(output: int) -> bytes:
    """Write a number."""
    return b"%d\n" % output


def priced(order: Event, quote: Event | None) -> int:
    """Join an order with its quote."""
    return order[0]


def payloads_of(events: int, seed: int = 7) -> list[bytes]:
    """Payloads in the order in which they arrive."""
    chance = random.Random(seed)
    found = []
    for number in range(events):
        at = number * SECOND // PER_SECOND
        if chance.random() < OUT_OF_ORDER:
            at -= chance.randrange(SECOND)
        found.append(LAYOUT.pack(chance.randrange(KEYS), at, number))
    return found


def _timed(name: str) -> wallaroo.KeyedPipeline[int, Event]:
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", "0", decode)
    return (
        wallaroo.source(name, config)
        .with_event_time(time_of, delay=SECOND, allow_before_1980=True)
        .key_by(key_of)
    )


def application_of(kind: str, out_port: int) -> Any:
    """One of the applications; it sends to a port of this machine."""
    pipeline: Any
    if kind == AS_OF:
        pipeline = _timed("Orders").join_latest(_timed("Quotes"), priced)
    else:
        windows = wallaroo.range_windows(SECOND if kind == TUMBLING else 10 * SECOND)
        pipeline = _timed("Readings").to(windows.with_slide(SECOND).over(Count()))
    sink = wallaroo.TCPSinkConfig("127.0.0.1", str(out_port), encode)
    return wallaroo.build_application(kind, pipeline.to_sink(sink))
