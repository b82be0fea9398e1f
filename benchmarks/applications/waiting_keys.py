"""Keys that wait: with a timer each, or until their state expires.

An event is 12 bytes: key, and a time in nanoseconds.

Where it runs: worker (``timers`` and ``expiring``: driver).
"""

from __future__ import annotations

import struct
from typing import Any

import wallaroo

LAYOUT = struct.Struct(">Iq")
TICK = 2**32 - 1  # the key of events that move time and do nothing else
SECOND = wallaroo.seconds(1)
DUE = 10_000  # timers for a second of event time
TTL_S = 65

Event = tuple[int, int]


class Waiting:
    """A key's state."""

    def __init__(self) -> None:
        self.calls = 0
        self.every = 0


@wallaroo.decoder(pure=True)
def decode(payload: bytes) -> Event:
    """Read key and time."""
    return LAYOUT.unpack(payload)


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


@wallaroo.state_computation(name="pending", state=Waiting)
def pending(event: Event, state: Waiting, context: wallaroo.Context) -> None:
    """Set the key's timer: keys are due one after the other, so many in a second."""
    if event[0] != TICK:
        keys = event[1] // SECOND  # the time of setting events is how many keys there are
        state.every = keys // DUE
        context.set_timer("due", event[1] + (1 + event[0] // DUE) * SECOND)


@pending.on_timer
def is_due(state: Waiting, context: wallaroo.Context, name: str) -> None:
    """Wait again until all other keys have been due."""
    state.calls += 1
    context.set_timer("due", context.event_time + state.every * SECOND)


@wallaroo.state_computation(name="leaving", state=Waiting, ttl=wallaroo.seconds(TTL_S))
def leaving(event: Event, state: Waiting) -> None:
    """Be used once."""
    state.calls += 1


@wallaroo.state_computation(name="staying", state=Waiting)
def staying(event: Event, state: Waiting) -> int | None:
    """Be used again and again."""
    state.calls += 1
    return state.calls if not state.calls % 1000 else None


def _sink(out_port: int) -> Any:
    return wallaroo.TCPSinkConfig("127.0.0.1", str(out_port), encode)


def timers(out_port: int) -> Any:
    """A timer per key."""
    config = wallaroo.TCPSourceConfig("Keys", "127.0.0.1", "0", decode)
    keyed = (
        wallaroo.source("Keys", config)
        .with_event_time(time_of, allow_before_1980=True)
        .key_by(key_of)
    )
    return wallaroo.build_application("timers", keyed.to(pending).to_sink(_sink(out_port)))


def expiring(out_port: int) -> Any:
    """Keys that leave, and others that stay."""
    first, second = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", "0", decode)).key_by(
            key_of
        )
        for name in ("Leaving", "Staying")
    )
    return wallaroo.build_application(
        "expiring",
        first.to(leaving).merge(second.to(staying)).to_sink(_sink(out_port)),
    )
