"""An application that shows what it takes for silence: sessions in event time, of which a batch
without input ends the last one.  Lines are ``key number``; a hundredth of a second lies between two
numbers, in the year 2001.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import by_first_word, sink
from wallaroo.api.application import Application

IDLE_S = 4
GAP_S = 1
OUTAGE_S = 1.5 * IDLE_S
KEYS = ("a", "b")
FIRST = range(20)
THEN = range(20, 60)  # what waits during an outage


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def word(payload: bytes) -> str:
    return payload.decode()


def time_of(event: str) -> float:
    return 1e9 + int(event.split()[1]) / 100


class Session:
    def __init__(self) -> None:
        self.events = 0


@wallaroo.state_computation("session", state=Session)
def session(event: str, own: Session, context: wallaroo.Context) -> str:
    if context.event_time <= context.watermark:
        return f"{event} is late"
    own.events += 1
    context.set_timer("gap", context.event_time + wallaroo.seconds(GAP_S))
    return event


@session.on_timer
def session_ends(own: Session, context: wallaroo.Context, name: str) -> str:
    context.drop_state()
    return f"{context.key} ends after {own.events}"


def sessions(source: Any, outputs: Path) -> Application:
    """Sessions of the lines of a source; the name of the source is ``in``."""
    idle_after = wallaroo.seconds(IDLE_S)
    timed = wallaroo.source("lines", source).with_event_time(
        time_of, allow_before_1980=True, delay=wallaroo.milliseconds(1), idle_after=idle_after
    )
    return build("sessions", timed.key_by(by_first_word).to(session).to_sink(sink(outputs)))


def application_setup(arguments: list[str]) -> Application:
    """Sessions of what comes at a port: ``PORT FOLDER``."""
    port, folder = arguments
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", port, word)
    return sessions(source, Path(folder))


def events(numbers: Iterable[int]) -> list[str]:
    """Lines of all keys with these numbers."""
    return [f"{key} {number}" for number in numbers for key in KEYS]


def has(outputs: Path, numbers: Iterable[int]) -> bool:
    """Whether the output is these lines, none late, and no session has ended."""
    return _output(outputs) == sorted(events(numbers))


def is_whole(outputs: Path) -> bool:
    """Whether the output is all lines, none late, and one session of each key."""
    ends = [f"{key} ends after {len(FIRST) + len(THEN)}" for key in KEYS]
    return _output(outputs) == sorted([*events([*FIRST, *THEN]), *ends])


def _output(outputs: Path) -> list[str]:
    out = outputs / "out.txt"
    return sorted(out.read_text().splitlines()) if out.exists() else []
