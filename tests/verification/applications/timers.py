"""Counts by key and second of event time, and an expiring count.

A timer outputs each second's count.  Events are out of order by at most ``DELAY_MS``.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
import struct

import wallaroo

EVENT = struct.Struct(">IQ?")  # key, milliseconds, whether the second's count is cancelled
SECOND_MS = 1000
KEPT_MS = 2000  # without an event until a count expires
DELAY_MS = 400

Event = tuple[int, int, bool]


class Seconds:
    """State of one key: events by second."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}


class Seen:
    """State of one key: events since its count expired."""

    def __init__(self) -> None:
        self.count = 0
        self.newest_ms = 0


def time_of(event: Event) -> int:
    """Return an event's time."""
    return wallaroo.milliseconds(event[1])


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    """Decode a key, a time, and whether a count is cancelled."""
    return EVENT.unpack(payload)


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """Return the key, which has timers of its own."""
    return event[0]


@wallaroo.encoder
def encode(line: str) -> bytes:
    """Write a line."""
    return f"{line}\n".encode()


@wallaroo.state_computation(name="By second", state=Seconds)
def by_second(event: Event, seconds: Seconds, context: wallaroo.Context) -> None:
    """Count the event in its second, or drop that second's count and timer."""
    second = event[1] // SECOND_MS
    name = str(second)
    if event[2]:
        seconds.counts.pop(name, None)
        context.cancel_timer(name)
    else:
        seconds.counts[name] = seconds.counts.get(name, 0) + 1
        context.set_timer(name, wallaroo.seconds(second + 1))


@by_second.on_timer
def is_over(seconds: Seconds, context: wallaroo.Context, name: str) -> str:
    """Output a second's count."""
    count = seconds.counts.pop(name)
    if not seconds.counts:
        context.drop_state()
    return f"{context.key!r}:due {int(name) * SECOND_MS} {count}"


def is_gone(seen: Seen, context: wallaroo.Context) -> str:
    """Output the number of events at expiry."""
    return f"{context.key!r}:gone {seen.newest_ms} {seen.count}"


@wallaroo.state_computation(
    name="Kept",
    state=Seen,
    ttl=wallaroo.milliseconds(KEPT_MS),
    ttl_time="event",
    on_expire=is_gone,
)
def kept(event: Event, seen: Seen) -> None:
    """Count the event."""
    seen.count += 1
    seen.newest_ms = max(seen.newest_ms, event[1])


def application_setup(args: list[str]) -> object:
    """Build the application: events -> counts by second, and expired ones, per key -> lines."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    is_resuming = not parser.parse_known_args(args)[0].plain
    events = (
        wallaroo.source("Events", wallaroo.TCPSourceConfig(name, host, port, decode))
        .with_event_time(time_of, delay=wallaroo.milliseconds(DELAY_MS), allow_before_1980=True)
        .key_by(key_of)
    )
    return wallaroo.build_application(
        "Verify Timers",
        events.to(by_second)
        .merge(events.to(kept))
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=is_resuming)),
    )
