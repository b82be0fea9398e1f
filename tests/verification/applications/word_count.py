"""Word count: every word with its running count.

Where it runs: driver (building it) and workers.
"""

from __future__ import annotations

import wallaroo


class Total:
    """State of one word."""

    def __init__(self) -> None:
        self.count = 0


def application_setup(args: list[str]) -> object:
    """Build the application: lines -> words -> one counter per word -> lines of text."""
    name, host, port = wallaroo.tcp_parse_input_addrs(args)[0]
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    lines = wallaroo.source("Lines", wallaroo.TCPSourceConfig(name, host, port, decode))
    words = lines.to(split).key_by(word_of).to(count)
    sink = wallaroo.TCPSinkConfig(out_host, out_port, encode, resume=True)
    return wallaroo.build_application("Verify Word Count", words.to_sink(sink))


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    """Decode a line."""
    return payload.decode()


@wallaroo.computation_multi(name="split")
def split(line: str) -> list[str]:
    """Split a line into words."""
    return line.split()


@wallaroo.key_extractor
def word_of(word: str) -> str:
    """Return the word, which is its own key."""
    return word


@wallaroo.state_computation(name="count", state=Total)
def count(word: str, total: Total) -> tuple[str, int]:
    """Count the word."""
    total.count += 1
    return word, total.count


@wallaroo.encoder
def encode(counted: tuple[str, int]) -> bytes:
    """Write a line: word, then count."""
    return f"{counted[0]} {counted[1]}\n".encode()
