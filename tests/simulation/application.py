"""The application under simulation: two sources, a running total per key, four sinks.

Where it runs: the simulation's process.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import wallaroo
from wallaroo.plan.model import Plan

SOURCES = ("Left", "Right")
KEY_GROUPS = 2
STEP = "total"


class Total:
    """The state of one key: how many events, and the sum of their values."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> tuple[str, int]:
    """Read ``key value``."""
    key, value = payload.decode().split(" ")
    return key, int(value)


@wallaroo.key_extractor
def key_of(event: tuple[str, int]) -> str:
    """Every key has a total of its own."""
    return event[0]


@wallaroo.state_computation(name=STEP, state=Total)
def total(event: tuple[str, int], state: Total) -> tuple[str, int, int, int]:
    """Answer every event with its value, its number and the sum so far."""
    state.count += 1
    state.sum += event[1]
    return event[0], event[1], state.count, state.sum


@wallaroo.encoder
def encode(answer: tuple[str, int, int, int]) -> bytes:
    """Write a line."""
    return (" ".join(map(str, answer)) + "\n").encode()


def plan_under(root: Path) -> Plan:
    """Build the application; its files are under ``root``."""
    sinks = [
        wallaroo.TCPSinkConfig("127.0.0.1", 9, encode, resume=True),
        wallaroo.FileSinkConfig(str(root / "parts"), encode),
        wallaroo.FileSinkConfig(str(root / "lines.txt"), encode),
    ]
    left, right = (
        wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", 1 + number, decode))
        for number, name in enumerate(SOURCES)
    )
    merged = left.merge(right)
    built = wallaroo.build_application("Simulated", merged.key_by(key_of).to(total).to_sinks(sinks))
    return replace(built.plan, key_groups=KEY_GROUPS)  # type: ignore[attr-defined]
