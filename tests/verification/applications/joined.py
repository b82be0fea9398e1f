"""The as-of join of orders with quotes.

Each order is joined with the newest quote of its key at its time; both streams are out of order by
at most ``DELAY_MS``.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
import struct

import wallaroo

EVENT = struct.Struct(">IQQ")  # key, number, microseconds
DELAY_MS = 400

Event = tuple[int, int, int]


def time_of(event: Event) -> int:
    """Return an event's time."""
    return wallaroo.microseconds(event[2])


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    """Decode a key, a number and a time."""
    return EVENT.unpack(payload)


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """Return the key, at which orders meet quotes."""
    return event[0]


def quoted(order: Event, quote: Event | None) -> str:
    """Return a line with the numbers of both, 0 for no quote."""
    return f"{order[0]} {order[1]} {quote[1] if quote else 0}"


@wallaroo.encoder
def encode(line: str) -> bytes:
    """Write a line."""
    return f"{line}\n".encode()


def application_setup(args: list[str]) -> object:
    """Build the application: orders, with the quotes at their times -> lines of text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    is_resuming = not parser.parse_known_args(args)[0].plain
    orders, quotes = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, host, port, decode))
        .with_event_time(time_of, delay=wallaroo.milliseconds(DELAY_MS), allow_before_1980=True)
        .key_by(key_of)
        for name, host, port in wallaroo.tcp_parse_input_addrs(args)
    )
    return wallaroo.build_application(
        "Verify Joined",
        orders.join_latest(quotes, quoted).to_sink(
            wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=is_resuming)
        ),
    )
