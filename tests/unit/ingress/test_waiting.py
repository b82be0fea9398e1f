"""How long the ingress waits for something to read, and after it has read something."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from wallaroo.ingress.server import (
    BUSY_PAUSE_S,
    LITTLE_BYTES,
    LOOK_S,
    MANY_EVENTS,
    PAUSE_S,
    PUBLISH_S,
    SILENT_S,
    pause_s,
    wait_s,
)


@dataclass
class Source:
    is_changed: bool = False
    is_paused: bool = False
    is_awaiting_commits: bool = False


@pytest.mark.parametrize(
    ("sources", "seconds"),
    [
        ((), SILENT_S),
        ((Source(), Source()), SILENT_S),
        ((Source(), Source(is_paused=True)), LOOK_S),
        ((Source(), Source(is_awaiting_commits=True)), LOOK_S),
        ((Source(is_changed=True), Source(is_paused=True)), PUBLISH_S),
    ],
)
def test_what_is_not_published_yet_waits_for_nothing_that_may_not_come(
    sources: tuple[Source, ...], seconds: float
) -> None:
    assert wait_s(sources) == seconds


@pytest.mark.parametrize("held_s", [0.0, 0.03])
def test_what_is_held_back_is_published_when_its_time_comes(held_s: float) -> None:
    assert wait_s((Source(), Source(is_changed=True)), held_s) == held_s
    assert wait_s((Source(),), None) == SILENT_S


@pytest.mark.parametrize(
    ("read_bytes", "events", "seconds"),
    [
        (0, 0, PAUSE_S),
        (1000, MANY_EVENTS - 1, PAUSE_S),
        (1000, MANY_EVENTS, BUSY_PAUSE_S),
        (LITTLE_BYTES - 1, MANY_EVENTS, BUSY_PAUSE_S),
        (LITTLE_BYTES, MANY_EVENTS, 0.0),
    ],
)
def test_many_small_messages_come_with_fewer_reads(
    read_bytes: int, events: int, seconds: float
) -> None:
    assert pause_s(read_bytes, events) == seconds
