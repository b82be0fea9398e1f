"""When the driver looks at its sources."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wallaroo.errors import PeerError
from wallaroo.runtime.resident import trigger
from wallaroo.runtime.resident.trigger import LOOK_IDLE_S, LOOK_S, LOOK_WOKEN_S, Looks, Wakes
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool import SpoolWriter
from wallaroo.spool.waking import waker

FOREVER_S = 60.0


class Polled:
    """A log that does not say when there is something."""

    wakes = False


def spool_log(folder: Path) -> SpoolLog:
    return SpoolLog("a source", folder, "")


@pytest.fixture
def wakes(tmp_path: Path) -> Iterator[Wakes]:
    made = Wakes(tmp_path / "wake")
    yield made
    made.close()


def test_a_publication_ends_the_wait(
    wakes: Wakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wallaroo.spool.writer.wake_run", waker(str(tmp_path / "wake")))
    writer = SpoolWriter(tmp_path / "spool", is_durable=False)
    wakes.wait(0.0)  # the writer published when it was opened

    writer.append(b"12", 2, 1)
    publication = threading.Timer(0.05, writer.publish)
    publication.start()
    began = time.monotonic()
    wakes.wait(FOREVER_S)

    assert time.monotonic() - began < FOREVER_S / 2
    publication.join()
    writer.close()


def test_what_came_between_a_look_and_the_wait_is_not_missed_and_counts_once(
    wakes: Wakes, tmp_path: Path
) -> None:
    wake = waker(str(tmp_path / "wake"))
    for _ in range(1000):  # more than the socket holds: no thread waits for who does not look
        wake()
    began = time.monotonic()

    wakes.wait(FOREVER_S)
    wakes.wait(0.05)

    assert 0.05 <= time.monotonic() - began < FOREVER_S / 2


def test_a_wait_can_be_ended_from_another_thread(wakes: Wakes) -> None:
    waiting = threading.Thread(target=wakes.wait, args=(FOREVER_S,))
    waiting.start()
    wakes.wake()
    waiting.join(FOREVER_S / 2)
    assert not waiting.is_alive()


def test_a_publisher_survives_a_run_that_has_gone(wakes: Wakes, tmp_path: Path) -> None:
    wake = waker(str(tmp_path / "wake"))
    wakes.close()
    wake()
    waker(str(tmp_path / "never was"))()


def test_sources_that_wake_are_looked_at_seldom_and_others_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(trigger.time, "monotonic", lambda: now[0])
    polled: Any = Polled()
    waking = Looks([spool_log(tmp_path)], has_time=False)
    mixed = Looks([spool_log(tmp_path), polled], has_time=False)
    timed = Looks([spool_log(tmp_path)], has_time=True)

    assert [looks.pause_s() for looks in (waking, mixed, timed)] == [LOOK_WOKEN_S, LOOK_S, LOOK_S]
    now[0] += 10.0
    assert [looks.pause_s() for looks in (mixed, timed)] == [LOOK_IDLE_S, LOOK_IDLE_S]
    mixed.found()
    assert mixed.pause_s() == LOOK_S


def test_a_folder_with_too_long_a_name_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="Set TMPDIR to a folder with a shorter name"):
        Wakes(tmp_path / ("x" * 120) / "wake")
