"""A count per key and window, with few events of each key in a window.

Where it runs: worker (``application_setup``: driver).
"""

from __future__ import annotations

import argparse
from typing import Any

import wallaroo
from wallaroo.aggregations import Count

MS = wallaroo.milliseconds(1)
SECOND = wallaroo.seconds(1)
TEN_SECONDS = wallaroo.range_windows(10 * SECOND)
KINDS = {
    "tumbling": TEN_SECONDS,
    "early results": TEN_SECONDS.with_early_results(2 * SECOND),
    "sliding": TEN_SECONDS.with_slide(5 * SECOND),
    "sessions": wallaroo.session_windows(5 * SECOND),
}


@wallaroo.decoder
def decode(line: bytes) -> tuple[str, int]:
    """Decode a key and a time."""
    key, at = line.split(b",")
    return key.decode(), int(at)


@wallaroo.key_extractor
def key_of(event: tuple[str, int]) -> str:
    """Return the key."""
    return event[0]


def time_of(event: tuple[str, int]) -> int:
    """Return the time in nanoseconds."""
    return event[1] * MS


def shown(result: wallaroo.WindowResult[int]) -> str:
    """Show a result with its key and window."""
    return f"{result.key},{result.window.start // MS},{result.value}"


@wallaroo.encoder
def encode(line: str) -> bytes:
    """Encode a line."""
    return line.encode()


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: a file -> windows of one kind -> a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=list(KINDS), required=True)
    parser.add_argument("--events", required=True, help="a file of keys and times")
    parser.add_argument("--rows", required=True, help="the file of results")
    options = parser.parse_args(args)
    windows: Any = KINDS[options.kind]
    source = wallaroo.FileSourceConfig("events", options.events, decode)
    results = (
        wallaroo.source("events", source)
        .with_event_time(time_of, delay=SECOND)
        .key_by(key_of)
        .to(windows.over(Count(), with_window=True))
        .map(shown)
    )
    sink = wallaroo.FileSinkConfig(options.rows, encode, form="lines")
    return wallaroo.build_application("distinct keys", results.to_sink(sink))
