"""The window detector: a key's values in sliding windows of event time.

Values are out of order by at most ``DELAY_MS``.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import argparse
import struct

import wallaroo

EVENT = struct.Struct(">IQQ")  # key, value, milliseconds
RANGE_MS = 2000
SLIDE_MS = 1000
DELAY_MS = 500

Event = tuple[int, int, int]


def time_of(event: Event) -> int:
    """Return an event's time."""
    return wallaroo.milliseconds(event[2])


class Values(wallaroo.Aggregation[Event, list[int], str]):
    """The values of a window, in order."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: Event, values: list[int], /) -> None:
        values.append(event[1])

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: int, values: list[int], window: wallaroo.Window) -> str:  # type: ignore[override]  # it takes the window, too
        return f"{key} {window.start // 1_000_000} {sorted(values)}"


def application_setup(args: list[str]) -> object:
    """Build the application: values -> sliding windows per key -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    is_resuming = not parser.parse_known_args(args)[0].plain
    windows = wallaroo.range_windows(wallaroo.milliseconds(RANGE_MS))
    return wallaroo.build_application(
        "Verify Windows",
        wallaroo.source("Values", wallaroo.TCPSourceConfig(name, host, port, decode))
        .with_event_time(time_of, delay=wallaroo.milliseconds(DELAY_MS), allow_before_1980=True)
        .key_by(key_of)
        .to(windows.with_slide(wallaroo.milliseconds(SLIDE_MS)).over(Values))
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=is_resuming)),
    )


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> Event:
    """Decode a key, a value and a time."""
    return EVENT.unpack(payload)


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    """Return the key, which has windows of its own."""
    return event[0]


@wallaroo.encoder
def encode(line: str) -> bytes:
    """Write a line."""
    return f"{line}\n".encode()
