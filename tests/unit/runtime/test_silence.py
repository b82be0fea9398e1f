"""What makes a partition idle: that it was asked, answered, was read to its end, and that nothing
came for ``idle_after``.  An outage is not silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.sessions import key_of, parse
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import sink, source
from tests.unit.runtime.test_times_seen import NOWHERE, SECOND, plan
from wallaroo.aggregations import Count
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.engine.time.partition_times import ObservedSource
from wallaroo.runtime.batch.event_time import BatchTimes
from wallaroo.sources.log import Head, Position, Range, Records, SourceLog

IDLE_S = 10  # of the plan
DUE = 45 * SECOND  # what waits for time
FAST = 60 * SECOND
SLOW = 40 * SECOND


class Scripted(SourceLog):
    """A log that answers as a test says; ``has_partitions``: which of them has something is
    known.
    """

    def __init__(self, *, has_partitions: bool) -> None:
        self.answer = Head(at(fast=0, slow=0))
        self._has_partitions = has_partitions

    def beginning(self) -> Position:
        return at(fast=0, slow=0)

    def head(self) -> Head:
        return self.answer

    def advance(self, start: Position, events_max: int) -> Position:
        raise NotImplementedError

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        raise NotImplementedError

    def read(self, part: Range) -> Iterator[Records]:
        raise NotImplementedError

    def partitions(self, position: Position) -> frozenset[str] | None:
        return frozenset(position.place) if self._has_partitions else None

    def lags(self, position: Position, head: Position) -> Mapping[str, int] | None:
        if not self._has_partitions:
            return None
        return {name: end - position.place[name] for name, end in head.place.items()}


def at(**offsets: int) -> Position:
    return Position(offsets, sum(offsets.values()))


class Driver:
    """A run that looks at its source and begins batches, at a clock of its own."""

    def __init__(self, *, has_partitions: bool = True) -> None:
        self.now_s = 1000.0
        self.log = Scripted(has_partitions=has_partitions)
        self.position = at(fast=0, slow=0)
        self.commit: Any = None
        self.start()

    def start(self) -> None:
        """Begin a run at the last commit."""
        self.times = BatchTimes(plan().plan, {"in": self.log}, lambda: int(self.now_s * SECOND))

    def waits(self, **offsets: int) -> None:
        """The source has so much, and answers."""
        self.log.answer = Head(at(**offsets))

    def looks(self, seconds: float, every_s: float = 1.0) -> bool:
        """Whether a batch without input is due at last, where one looks so often."""
        is_due = False
        for _ in range(round(seconds / every_s)):
            self.now_s += every_s
            is_due = self.times.is_due(self.commit, {"in": self.position})
        return is_due

    def batch(self, read: Mapping[str, int] | None = None, **offsets: int) -> int:
        """Run a batch up to these offsets, in which partitions got to these watermarks; return the
        watermark after it.
        """
        start = self.position
        self.position = at(**{**start.place, **offsets})
        if self.log.answer.position.events < self.position.events:
            self.log.answer = Head(self.position)
        time = self.times.of_batch(self.commit, {"in": start}, {"in": self.position})
        observed = {0: ObservedSource(read)} if read else {}
        report: Any = SimpleNamespace(level=0, task=0, observed=observed, due_ns=(DUE, TIME_MAX))
        marks = self.times.after(time, [report])
        assert marks is not None
        self.commit = SimpleNamespace(watermarks=marks.to_json())
        return marks.watermark_ns

    def begins(self) -> None:
        """Both partitions give an event; one is behind what is due."""
        assert self.batch({"fast": FAST, "slow": SLOW}, fast=1, slow=1) == SLOW


@pytest.fixture(params=[True, False], ids=["known partitions", "one sequence"])
def driver(request: pytest.FixtureRequest) -> Driver:
    begun = Driver(has_partitions=request.param)
    begun.begins()
    return begun


def test_a_source_that_answers_and_has_nothing_is_idle_after_a_while(driver: Driver) -> None:
    assert not driver.looks(IDLE_S - 1)
    assert driver.looks(2)
    assert driver.batch() >= FAST


def test_a_partition_that_gives_nothing_is_idle_while_others_flow(driver: Driver) -> None:
    for number in range(2, 1 + IDLE_S):
        driver.now_s += 1
        driver.waits(fast=number + 1, slow=1)  # something comes while the batch is planned
        assert driver.batch({"fast": FAST}, fast=number) == SLOW
    driver.looks(2)
    assert driver.batch({"fast": FAST}, fast=1 + IDLE_S) == FAST


@pytest.mark.parametrize("outage", [{"error": "its brokers do not answer"}, {"is_away": True}])
def test_while_a_source_cannot_be_asked_its_watermark_stays(
    driver: Driver, outage: dict[str, Any]
) -> None:
    driver.log.answer = replace(driver.log.answer, **outage)
    assert not driver.looks(100)

    driver.waits(fast=1, slow=1)
    assert not driver.looks(IDLE_S - 1), "its silence begins when it answers again"
    assert driver.batch() == SLOW
    assert driver.looks(IDLE_S)


def test_an_outage_ends_the_idleness_from_before(driver: Driver) -> None:
    driver.looks(IDLE_S + 2)
    reached = driver.batch()
    driver.log.answer = replace(driver.log.answer, error="its brokers do not answer")
    driver.looks(100)

    assert driver.batch() == reached, "time does not run on"
    driver.waits(fast=1, slow=1)
    driver.looks(IDLE_S + 6)
    assert reached < driver.batch() <= reached + 10 * SECOND, "and does not make up for it"


def test_what_waits_to_be_read_is_no_silence(driver: Driver) -> None:
    driver.waits(fast=5, slow=5)
    driver.now_s += 100

    assert not driver.looks(100)
    assert driver.batch() == SLOW


def test_a_run_that_begins_again_after_an_hour_begins_new_silences(driver: Driver) -> None:
    driver.looks(IDLE_S - 1)
    driver.now_s += 3600
    driver.start()

    assert not driver.looks(IDLE_S - 1)
    assert driver.batch() == SLOW
    assert driver.looks(IDLE_S)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_machine_that_slept_or_a_clock_that_jumped_does_not_make_silence(
    driver: Driver, hours: int
) -> None:
    driver.looks(IDLE_S - 1)
    driver.now_s += 3600 * hours

    assert not driver.looks(1)
    assert driver.batch() == SLOW
    driver.looks(2 * IDLE_S)
    assert driver.batch() >= FAST


def test_a_batch_that_takes_long_counts_for_a_share_only(driver: Driver) -> None:
    for number in range(2, 5):
        driver.now_s += 3600
        assert driver.batch({"fast": FAST}, fast=number) == SLOW


def test_a_writer_that_does_not_state_that_it_reads_is_not_silent(driver: Driver) -> None:
    stopped_ns = int(driver.now_s * SECOND)
    driver.log.answer = replace(driver.log.answer, as_of_ns=stopped_ns)
    assert not driver.looks(100)

    for _ in range(IDLE_S + 1):
        driver.log.answer = replace(driver.log.answer, as_of_ns=int(driver.now_s * SECOND))
        driver.looks(1)
    assert driver.batch() >= FAST


class Elsewhere(Scripted):
    """A log whose system notes when records are received."""

    @property
    def notes_receipt(self) -> bool:
        return True


def test_time_of_receipt_stays_while_the_system_that_notes_it_cannot_be_asked() -> None:
    lines = source(NOWHERE).to(parse).key_by(key_of)
    counts = wallaroo.range_windows(SECOND).over(Count(), name="counts")
    application = build("received", lines.to(counts).to_sink(sink(NOWHERE)))
    log = Elsewhere(has_partitions=True)
    now_ns = 1000 * SECOND
    times = BatchTimes(application.plan, {"in": log}, lambda: now_ns)

    def drained() -> frozenset[int]:
        return times.of_batch(None, {"in": log.beginning()}, {"in": log.beginning()}).drained

    log.answer = Head(log.beginning(), as_of_ns=now_ns)
    assert drained() == {0}
    log.answer = Head(log.beginning(), error="its brokers do not answer", as_of_ns=now_ns)
    assert drained() == frozenset()
    log.answer = Head(log.beginning(), as_of_ns=now_ns - 3600 * SECOND)
    assert drained() == frozenset(), "the answer is from before the machine slept"
