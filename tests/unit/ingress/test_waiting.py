"""How long the ingress waits for something to read, and after it has read something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.ingress import server
from wallaroo.ingress.config import IngressConfig
from wallaroo.ingress.server import (
    BUSY_PAUSE_S,
    LITTLE_BYTES,
    LOOK_S,
    MANY_EVENTS,
    PAUSE_S,
    PUBLISH_S,
    SILENT_S,
    Ingress,
    pause_s,
    wait_s,
)
from wallaroo.spool.waking import PauseNote, wake_at


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
    awaiting = Source(is_awaiting_commits=True)
    assert wait_s((awaiting, Source(is_changed=True)), held_s) == min(held_s, LOOK_S)


class Busy(Source):
    """A source whose input is to be published; its sender may wait for the answer."""

    unanswered_events = 0

    def __init__(self, published_at: float, may_wait: bool) -> None:
        super().__init__(is_changed=True)
        self.published_at = published_at
        self.may_wait = may_wait

    def is_due(self, now: float) -> bool:
        return False

    def look_at_backlog(self) -> None:
        pass

    def publish(self) -> None:
        self.is_changed = False


def test_under_load_an_answer_does_not_wait_for_what_another_source_holds_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now))
    wake_at(str(tmp_path / "wake"))
    note = PauseNote(tmp_path / "wake")
    note.until = now + 3_600.0
    parent: Any = SimpleNamespace(filenos=(), look=None)
    ingress = Ingress(IngressConfig(()), parent)
    held: Any = Busy(now - 2 * PUBLISH_S, may_wait=True)
    answering: Any = Busy(now - PUBLISH_S / 2, may_wait=False)
    ingress._listeners = [held, answering]

    ingress._publish(is_quiet=False)

    assert held.is_changed
    assert ingress._wait_s() == pytest.approx(PUBLISH_S / 2)
    wake_at("")
    note.close()


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
