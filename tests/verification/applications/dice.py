"""Nondeterministic code: each event's lane is random in every attempt.

Where it runs: driver (building it) and workers.

If a batch mixed the outputs of two attempts of one task, an event would go to one lane in the first
and to a different one in the second: it would be output twice, or not at all, and the lanes would
count a different number of events than there were.
"""

from __future__ import annotations

import random
import struct

import wallaroo

EVENT = struct.Struct(">Q")
LANES = 256
TABLES = 31


class Lane:
    """Number of events in a lane."""

    def __init__(self) -> None:
        self.lane_events = 0


class Table:
    """Number of events at a table, after a second shuffle."""

    def __init__(self) -> None:
        self.table_events = 0


def application_setup(args: list[str]) -> object:
    """Build the application: numbers -> a random lane each -> a table each -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    numbers = wallaroo.source("Dice", wallaroo.TCPSourceConfig(name, host, port, decode))
    thrown = numbers.to(throw).key_by(lane_of).to(count_in_lane).key_by(table_of).to(count_at_table)
    return wallaroo.build_application(
        "Verify Dice",
        thrown.to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=True)),
    )


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> int:
    """Decode a number."""
    return int(EVENT.unpack(payload)[0])


@wallaroo.computation(name="throw")
def throw(number: int) -> tuple[int, int]:
    """Return the event with a lane, a different one in every attempt."""
    return random.SystemRandom().randrange(LANES), number


@wallaroo.key_extractor
def lane_of(event: tuple[int, int]) -> int:
    """Return the lane."""
    return event[0]


@wallaroo.state_computation(name="count in lane", state=Lane)
def count_in_lane(event: tuple[int, int], lane: Lane) -> tuple[int, int]:
    """Count the event."""
    lane.lane_events += 1
    return event


@wallaroo.key_extractor
def table_of(event: tuple[int, int]) -> int:
    """Return the table, by lane and number: it differs from attempt to attempt as well."""
    return (event[0] + event[1]) % TABLES


@wallaroo.state_computation(name="count at table", state=Table)
def count_at_table(event: tuple[int, int], table: Table) -> int:
    """Count the event again."""
    table.table_events += 1
    return event[1]


@wallaroo.encoder
def encode(number: int) -> bytes:
    """Write a line."""
    return b"%d\n" % number
