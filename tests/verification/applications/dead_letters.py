"""Failing events, each of which has to become one dead letter.

A decoder, a computation and a state step raise for some events.

Where it runs: driver (building it) and workers.  An event contains the place at which it fails, so
that every attempt fails alike.  Dead letters go to one growing file, ``--dead FILE``.
"""

from __future__ import annotations

import argparse
import struct

import wallaroo

EVENT = struct.Struct(">BIQ")  # place of failure, key, number
PASSES, IN_DECODER, IN_COMPUTATION, IN_STATE = range(4)
STEPS = {IN_DECODER: "decode reading", IN_COMPUTATION: "check reading", IN_STATE: "count readings"}

Event = tuple[int, int, int]


class Passed:
    """State of one key."""

    def __init__(self) -> None:
        self.count = 0


def application_setup(args: list[str]) -> object:
    """Build the application: readings -> checked -> one counter per key -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--dead", default="dead.jsonl")
    dead = parser.parse_known_args(args)[0].dead
    readings = wallaroo.source("Readings", wallaroo.TCPSourceConfig(name, host, port, decode))
    counted = readings.to(check).key_by(key_of).to(count)
    sink = wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=True)
    return wallaroo.build_application(
        "Verify Dead Letters", counted.to_sink(sink), dead_letters=wallaroo.FileSinkConfig(dead)
    )


def fail_at(place: int, event: Event) -> None:
    """Raise if the event is to fail at this place."""
    if event[0] == place:
        raise ValueError(f"reading {event[2]} of {event[1]}")


@wallaroo.decoder(header_length=4, length_fmt=">I", name=STEPS[IN_DECODER], on_error="dead-letter")
def decode(payload: bytes) -> Event:
    """Decode an event."""
    event = EVENT.unpack(payload)
    fail_at(IN_DECODER, event)
    return event


@wallaroo.computation(name=STEPS[IN_COMPUTATION], on_error="dead-letter")
def check(event: Event) -> Event:
    """Pass an event on, before the shuffle."""
    fail_at(IN_COMPUTATION, event)
    return event


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """Return the key, which has a counter of its own."""
    return event[1]


@wallaroo.state_computation(name=STEPS[IN_STATE], state=Passed, on_error="dead-letter")
def count(event: Event, passed: Passed) -> tuple[int, int, int]:
    """Count the event, after the shuffle; failed events are not counted."""
    fail_at(IN_STATE, event)
    passed.count += 1
    return event[1], passed.count, event[2]


@wallaroo.encoder
def encode(counted: tuple[int, int, int]) -> bytes:
    """Write a line: key, count, number."""
    return f"{counted[0]} {counted[1]} {counted[2]}\n".encode()
