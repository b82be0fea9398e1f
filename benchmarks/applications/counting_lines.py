"""A count per key, from the lines of a file to a file: an application for any storage.

Where it runs: worker (``application``: driver).
"""

from __future__ import annotations

from pathlib import Path

import wallaroo


class Count:
    """The state of one key."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def decode(payload: bytes) -> bytes:
    """The payload is the key."""
    return payload


@wallaroo.key_extractor
def key_of(event: bytes) -> bytes:
    """The event is the key."""
    return event


@wallaroo.state_computation(name="count", state=Count)
def count(event: bytes, state: Count) -> bytes | None:
    """Count; a line comes out now and then."""
    state.count += 1
    return b"%b %d\n" % (event, state.count) if not state.count % 16 else None


@wallaroo.encoder
def encode(line: bytes) -> bytes:
    """A line is a line."""
    return line


def write(file: Path, events: int, keys: int) -> None:
    """Write a file with so many events, of all keys in turn."""
    block = b"".join(b"key%05d\n" % key for key in range(keys))
    with file.open("wb") as opened:
        opened.writelines(block for _ in range(events // keys))


def application(source: Path, sink: Path) -> wallaroo.Application:
    """Build it."""
    config = wallaroo.FileSourceConfig("lines", str(source), decode)
    counts = wallaroo.source("lines", config).key_by(key_of).to(count)
    return wallaroo.build_application(
        "counting lines", counts.to_sink(wallaroo.FileSinkConfig(sink, encode))
    )
