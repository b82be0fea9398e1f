"""When the next batch begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.errors import PeerError
from wallaroo.runtime.batch import trigger
from wallaroo.runtime.batch.admission import Admission
from wallaroo.runtime.batch.trigger import (
    LOOK_WOKEN_S,
    LookTimes,
    PollSchedule,
    Trigger,
    WakeSocket,
)
from wallaroo.sources.log import Head, Position
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool.waking import PauseNote, waker
from wallaroo.spool.writer import SpoolWriter

FOREVER_S = 60.0


class Polled:
    """A log that does not say when there is something."""

    wakes = False


def spool_log(folder: Path) -> SpoolLog:
    return SpoolLog("a source", folder, "")


@pytest.fixture
def wakes(tmp_path: Path) -> Iterator[WakeSocket]:
    made = WakeSocket(tmp_path / "wake")
    yield made
    made.close()


def test_a_publication_ends_the_wait(
    wakes: WakeSocket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    wakes: WakeSocket, tmp_path: Path
) -> None:
    wake = waker(str(tmp_path / "wake"))
    for _ in range(1000):  # more than the socket holds: no thread waits for who does not look
        wake()
    began = time.monotonic()

    wakes.wait(FOREVER_S)
    wakes.wait(0.05)

    assert 0.05 <= time.monotonic() - began < FOREVER_S / 2


def test_a_wait_can_be_ended_from_another_thread(wakes: WakeSocket) -> None:
    waiting = threading.Thread(target=wakes.wait, args=(FOREVER_S,))
    waiting.start()
    wakes.wake()
    waiting.join(FOREVER_S / 2)
    assert not waiting.is_alive()


def test_a_publisher_survives_a_run_that_has_gone(wakes: WakeSocket, tmp_path: Path) -> None:
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
    times = LookTimes(flowing_s=0.01, idle_s=0.1)
    waking = PollSchedule([spool_log(tmp_path)], times)
    mixed = PollSchedule([spool_log(tmp_path), polled], times)

    assert [looks.pause_s() for looks in (waking, mixed)] == [LOOK_WOKEN_S, 0.01]
    assert [waking.pause_s(due) for due in (3600.0, 0.2, 0.0)] == [LOOK_WOKEN_S, 0.2, 0.01]
    now[0] += 1.0
    assert mixed.pause_s() == pytest.approx(0.05)
    now[0] += 10.0
    assert mixed.pause_s() == 0.1
    assert waking.pause_s(0.0) == 0.1, "a source holds back what is due"
    mixed.found()
    assert mixed.pause_s() == 0.01


def test_a_folder_with_too_long_a_name_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="Set TMPDIR to a folder with a shorter name"):
        WakeSocket(tmp_path / ("x" * 120) / "wake")


class Growing:
    """A log that has as many events as it is given."""

    wakes = False

    def __init__(self) -> None:
        self.events = 0
        self.is_ended = False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def head(self) -> Head:
        return Head(Position(0, self.events), is_ended=self.is_ended)

    def reconcile(self, position: Position) -> Position:
        return position

    def backlog(self, position: Position) -> int:
        self.may_answer.wait(FOREVER_S)
        return self.events - position.events

    def advance(self, start: Position, events_max: int) -> Position:
        return Position(0, min(self.events, start.events + events_max))


def at(events: int) -> Position:
    return Position(0, events)


class Waiting:
    """Batches of one source, none of which was committed."""

    def __init__(self, log: Growing) -> None:
        self.setup = SimpleNamespace(logs_by_name={"in": log})
        self.ends = {"in": Position(0, 0)}
        self.is_due = False
        self.due_in_s = LOOK_WOKEN_S
        self.answer_s = 0.0
        self.under_way = 0  # commits
        self.settled = threading.Event()

    def settle(self, seconds: float | None = None) -> bool:
        if not self.under_way:
            return False
        self.under_way -= 1
        self.settled.set()
        return True


@pytest.fixture
def log() -> Growing:
    return Growing()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Trigger]:
    made = Trigger(hung_s=0.05)
    made.open(tmp_path / "wake")
    yield made
    made.end()
    made.close()


def hourly(tmp_path: Path) -> Trigger:
    """Return a trigger that commits once an hour."""
    paced = Trigger(target_s=3_600.0)
    paced.open(tmp_path / "wake")
    paced.admit(Admission(events_max=20, is_held=False))
    return paced


def next_of(trigger: Trigger, batches: Any) -> Future[Any]:
    """Have another thread wait for the next batch."""
    result: Future[Any] = Future()
    waiting = threading.Thread(target=lambda: result.set_result(trigger.next(batches)))
    waiting.start()
    return result


def test_a_batch_takes_what_there_is_within_its_bound(started: Trigger, log: Growing) -> None:
    batches: Any = Waiting(log)
    log.events = 30
    started.admit(Admission(events_max=20, is_held=False))
    assert started.next(batches) == {"in": Position(0, 20)}


def test_a_batch_that_was_planned_ahead_is_the_next_one_unless_input_is_held(
    tmp_path: Path, log: Growing
) -> None:
    batches: Any = Waiting(log)
    log.events = 100
    planning = Trigger(planned=lambda start: {"in": at(7)})
    planning.open(tmp_path / "wake")

    planning.admit(Admission(events_max=10, is_held=False))
    ends = planning.next(batches)
    planning.admit(Admission(events_max=10, is_held=True))
    held = next_of(planning, batches)
    planning.end()

    assert ends == {"in": at(7)}
    assert held.result(FOREVER_S) is None
    planning.close()


def test_of_many_batches_that_wait_more_is_taken_at_once(tmp_path: Path, log: Growing) -> None:
    log.events = 100
    logs: Any = {"in": log}
    assert Trigger().ends(logs, {"in": at(0)}, Admission(10, False, events_most=20)) == {
        "in": at(20)
    }


def test_a_batch_begins_as_soon_as_there_is_something(started: Trigger, log: Growing) -> None:
    waiting = next_of(started, Waiting(log))
    started.admit(Admission(events_max=20, is_held=False))
    log.events = 5
    assert waiting.result(FOREVER_S) == {"in": Position(0, 5)}


def test_nothing_is_taken_while_input_is_held(started: Trigger, log: Growing) -> None:
    log.events = 5
    waiting = next_of(started, Waiting(log))
    started.admit(Admission(events_max=20, is_held=True))
    with pytest.raises(TimeoutError):
        waiting.result(0.1)
    started.admit(Admission(events_max=20, is_held=False))
    assert waiting.result(FOREVER_S) == {"in": Position(0, 5)}


def test_what_is_due_begins_a_batch_without_input(started: Trigger, log: Growing) -> None:
    batches: Any = Waiting(log)
    batches.is_due = True
    started.admit(Admission(events_max=20, is_held=False))
    assert started.next(batches) == batches.ends


def test_an_end_ends_the_wait(started: Trigger, log: Growing) -> None:
    waiting = next_of(started, Waiting(log))
    started.end()
    assert waiting.result(FOREVER_S) is None


def test_a_source_that_does_not_answer_is_named(
    started: Trigger, log: Growing, eventually: Callable[..., None]
) -> None:
    log.may_answer.clear()
    waiting = next_of(started, Waiting(log))
    started.admit(Admission(events_max=20, is_held=False))
    eventually(lambda: "source 'in': it has not reported for" in started.waiting_for, "it is named")
    log.may_answer.set()
    log.events = 1
    waiting.result(FOREVER_S)
    assert started.waiting_for == ""


def test_a_source_that_does_not_answer_while_a_batch_is_planned_ahead_is_named(
    log: Growing, eventually: Callable[..., None]
) -> None:
    log.events = 5
    log.may_answer.clear()
    logs: Any = {"in": log}
    trigger = Trigger(hung_s=0.05)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(trigger.backlog, logs, {"in": at(2)})
        eventually(lambda: "source 'in'" in trigger.waiting_for, "it is named")
        log.may_answer.set()

    assert waiting.result() == 3
    assert trigger.waiting_for == ""


def test_a_source_that_has_failed_is_not_named_as_one_that_does_not_answer(log: Growing) -> None:
    """As a batch that is planned ahead fails, and the one under way continues."""
    log.advance = None  # type: ignore[assignment,method-assign]  # it fails
    log.events = 1
    logs: Any = {"in": log}
    trigger = Trigger(hung_s=0.0)
    with pytest.raises(TypeError):
        trigger.ends(logs, {"in": at(0)}, Admission(10, False))
    assert trigger.waiting_for == ""


def test_a_trigger_closes_its_socket_once_its_wait_has_ended(
    started: Trigger, log: Growing
) -> None:
    waiting = next_of(started, Waiting(log))
    wakes = started._wakes
    assert wakes is not None
    started.close()
    assert waiting.result(FOREVER_S) is None
    assert wakes._socket.fileno() == -1


def test_a_batch_waits_for_its_cadence(tmp_path: Path, log: Growing) -> None:
    """The second batch begins no sooner than the target allows, the first one at once."""
    paced = Trigger(target_s=0.2)
    paced.open(tmp_path / "wake")
    paced.admit(Admission(events_max=20, is_held=False))
    batches: Any = Waiting(log)
    log.events = 1
    began = time.monotonic()

    first = paced.next(batches)
    first_s = time.monotonic() - began
    batches.ends = first
    log.events = 2
    second = paced.next(batches)
    second_s = time.monotonic() - began

    assert (first, second) == ({"in": Position(0, 1)}, {"in": Position(0, 2)})
    assert second_s - first_s > 0.1
    paced.end()
    paced.close()


@pytest.mark.parametrize("events", [1, 20], ids=["few", "a backlog"])
def test_publishers_know_when_the_batch_after_next_may_begin(
    tmp_path: Path, log: Growing, events: int
) -> None:
    paced = hourly(tmp_path)
    note = PauseNote(tmp_path / "wake")
    batches: Any = Waiting(log)

    log.events = 20
    batches.ends = paced.next(batches)
    assert note.until <= time.monotonic(), "a full batch is followed at once"
    log.events += events
    began = time.monotonic()
    paced.next(batches)

    is_pausing = note.until > began + 1_800.0
    assert is_pausing == (events == 1)
    assert note.until <= time.monotonic() + 3_600.0
    note.close()
    paced.end()
    paced.close()


@pytest.mark.parametrize("target_s", [0.0, 3_600.0], ids=["idle", "held back by the cadence"])
def test_a_commit_under_way_is_waited_for_before_input_is(
    tmp_path: Path, log: Growing, target_s: float
) -> None:
    """What sources learn of it, and what is deleted, does not wait for the next batch."""
    paced = Trigger(target_s=target_s)
    paced.open(tmp_path / "wake")
    paced.admit(Admission(events_max=20, is_held=False))
    batches: Any = Waiting(log)
    log.events = 1
    batches.ends = paced.next(batches)
    batches.under_way = 1

    waiting = next_of(paced, batches)

    assert batches.settled.wait(FOREVER_S)
    paced.end()
    assert waiting.result(FOREVER_S) is None
    paced.close()


def test_the_time_of_an_answer_is_taken_off_the_cadence(tmp_path: Path, log: Growing) -> None:
    """An event's results leave with the answer to its commit."""
    paced = hourly(tmp_path)
    batches: Any = Waiting(log)
    batches.answer_s = 3_600.0
    log.events = 1
    batches.ends = paced.next(batches)
    log.events = 2

    assert next_of(paced, batches).result(FOREVER_S) == {"in": Position(0, 2)}

    paced.end()
    paced.close()


def test_an_end_ends_the_wait_for_the_cadence(tmp_path: Path, log: Growing) -> None:
    """A run that stops does not wait for an hour."""
    paced = hourly(tmp_path)
    batches: Any = Waiting(log)
    log.events = 1
    batches.ends = paced.next(batches)
    waiting = next_of(paced, batches)
    paced.end()
    assert waiting.result(FOREVER_S) is None
    paced.close()


def test_a_long_cadence_does_not_hold_the_end_of_all_input_back(
    tmp_path: Path, log: Growing
) -> None:
    """Nothing more will come: there is nothing to gather."""
    paced = hourly(tmp_path)
    batches: Any = Waiting(log)
    log.events = 1
    batches.ends = paced.next(batches)
    log.events = 2
    waiting = next_of(paced, batches)
    with pytest.raises(TimeoutError):
        waiting.result(0.1)
    log.is_ended = True
    assert waiting.result(FOREVER_S) == {"in": Position(0, 2)}
    paced.end()
    paced.close()
