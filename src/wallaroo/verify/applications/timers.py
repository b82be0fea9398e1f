"""The silence detector: a timer per key that each event moves, and a count that expires; events are
out of order by at most ``DELAY_MS``.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
import struct

import wallaroo

EVENT = struct.Struct(">IQ")  # key, milliseconds
GAP_MS = 1500  # without an event: a key is silent
KEPT_MS = 2000  # without an event: its count expires
DELAY_MS = 400

Event = tuple[int, int]


class Seen:
    """A key's state: events since it was silent, or since its count expired."""

    def __init__(self) -> None:
        self.count = 0
        self.newest_ms = 0


def time_of(event: Event) -> int:
    """Read an event's time."""
    return wallaroo.milliseconds(event[1])


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    """Read a key and a time."""
    return EVENT.unpack(payload)


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """Every key has timers of its own."""
    return event[0]


@wallaroo.encoder
def encode(line: str) -> bytes:
    """Write a line."""
    return f"{line}\n".encode()


@wallaroo.state_computation(name="Silence", state=Seen)
def silence(event: Event, seen: Seen, context: wallaroo.Context) -> None:
    """Move the key's timer behind its newest event."""
    seen.count += 1
    seen.newest_ms = max(seen.newest_ms, event[1])
    context.set_timer("silent", wallaroo.milliseconds(seen.newest_ms + GAP_MS))


@silence.on_timer
def is_silent(seen: Seen, context: wallaroo.Context, name: str) -> str:
    """Say how many events came, and begin again."""
    context.drop_state()
    return f"{context.key!r}:silent {seen.newest_ms} {seen.count}"


def is_gone(seen: Seen, context: wallaroo.Context) -> str:
    """Say how many events there were."""
    return f"{context.key!r}:gone {seen.newest_ms} {seen.count}"


@wallaroo.state_computation(
    name="Kept",
    state=Seen,
    ttl=wallaroo.milliseconds(KEPT_MS),
    ttl_time="event",
    on_expire=is_gone,
)
def kept(event: Event, seen: Seen) -> None:
    """Count."""
    seen.count += 1
    seen.newest_ms = max(seen.newest_ms, event[1])


def application_setup(args: list[str]) -> object:
    """Build the application: events -> silences and expired counts per key -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    is_resuming = not parser.parse_known_args(args)[0].plain
    events = (
        wallaroo.source("Events", wallaroo.TCPSourceConfig(name, host, port, decode))
        .with_event_time(time_of, delay=wallaroo.milliseconds(DELAY_MS))
        .key_by(key_of)
    )
    return wallaroo.build_application(
        "Verify Timers",
        events.to(silence)
        .merge(events.to(kept))
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=is_resuming)),
    )
