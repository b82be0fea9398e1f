"""A streaming query whose batches wait for something to do, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, PropertyMock

import pytest
from py4j.protocol import Py4JJavaError

from wallaroo.errors import PeerError
from wallaroo.runtime.batch.admission import Admission
from wallaroo.runtime.batch.trigger import Trigger
from wallaroo.sources.log import Position
from wallaroo.spark.micro_batch.query import BatchQuery

FOREVER_S = 60.0


class JavaError(Py4JJavaError):
    """What py4j raises, without a JVM that could say more."""

    def __init__(self, text: str):
        Exception.__init__(self, text)
        self.java_exception = text

    def __str__(self) -> str:
        return str(self.java_exception)


@pytest.fixture
def trigger(tmp_path: Path) -> Iterator[Trigger]:
    made = Trigger()
    made.open(tmp_path / "wake")
    yield made
    made.end()
    made.close()


@pytest.fixture
def batches() -> Any:
    """Batches of one source with one event, which is committed by the first one."""
    log = SimpleNamespace(
        wakes=False,
        reconcile=lambda position: position,
        backlog=lambda position: 1 - position.events,
        advance=lambda start, events_max: Position(0, 1),
    )
    made: Any = MagicMock(ends={"in": Position(0, 0)}, is_due=False, answer_s=0.0)
    made.settle.return_value = False
    made.setup.logs_by_name = {"in": log}
    made.setup.plan.has_time = False
    made.run.side_effect = lambda ends: setattr(made, "ends", ends)
    return made


@pytest.fixture
def query(tmp_path: Path, batches: Any, trigger: Trigger) -> BatchQuery:
    return BatchQuery(session(), "name", tmp_path, batches, trigger, ask_s=0.0)


def session() -> Any:
    """A session that is not stopped."""
    made = MagicMock()
    made.sparkContext._jsc.sc.return_value.isStopped.return_value = False
    return made


def running(query: BatchQuery) -> Any:
    query.start()
    query(MagicMock(), 0)
    return query._query


def test_the_first_of_sparks_batches_is_empty_and_the_next_has_what_there_is(
    query: BatchQuery, batches: Any, trigger: Trigger
) -> None:
    trigger.admit(Admission(events_max=10, is_held=False))
    query(MagicMock(), 0)
    batches.run.assert_not_called()
    query(MagicMock(), 1)
    batches.run.assert_called_once_with({"in": Position(0, 1)})


def test_a_query_that_finishes_lets_the_batch_under_way_end(
    query: BatchQuery, batches: Any, trigger: Trigger
) -> None:
    may_end = threading.Event()
    has_begun = threading.Event()
    order = []

    def run(ends: Any) -> None:
        has_begun.set()
        assert may_end.wait(FOREVER_S)
        order.append("batch")
        batches.ends = ends

    batches.run.side_effect = run
    trigger.admit(Admission(events_max=10, is_held=False))
    sparks = running(query)
    sparks.stop.side_effect = lambda: order.append("stop")

    def call_twice() -> None:
        query(MagicMock(), 1)
        query(MagicMock(), 2)

    with ThreadPoolExecutor() as pool:
        calls = pool.submit(call_twice)
        assert has_begun.wait(FOREVER_S)
        finishing = pool.submit(query.finish, FOREVER_S, lambda: True)
        with pytest.raises(TimeoutError):
            finishing.result(0.1)
        may_end.set()
        assert finishing.result(FOREVER_S)
        calls.result(FOREVER_S)
    assert order == ["batch", "stop"]


def test_a_batch_that_does_not_end_in_time_is_cancelled(query: BatchQuery) -> None:
    sparks = running(query)
    assert not query.finish(0.05, lambda: True)
    sparks.stop.assert_called_once()


def test_nothing_is_waited_for_where_no_batch_can_go_on(query: BatchQuery) -> None:
    sparks = running(query)
    assert query.finish(FOREVER_S, lambda: False)
    sparks.stop.assert_called_once()


def test_what_a_batch_raises_ends_the_run_in_its_words(
    query: BatchQuery, batches: Any, trigger: Trigger
) -> None:
    running(query)
    trigger.admit(Admission(events_max=10, is_held=False))
    batches.run.side_effect = PeerError("the table has gone")
    with pytest.raises(PeerError):
        query(MagicMock(), 1)
    with pytest.raises(PeerError, match="the table has gone"):
        query.poll()


def test_a_query_that_spark_refuses_says_why(query: BatchQuery) -> None:
    session: Any = query._session
    session.readStream.format.return_value.option.return_value.load.side_effect = JavaError(
        "java.lang.IllegalStateException: stopped"
    )
    with pytest.raises(PeerError, match="stopped"):
        query.start()


def test_a_query_that_has_ended_by_itself_ends_the_run(query: BatchQuery) -> None:
    sparks = running(query)
    query.poll()
    sparks.isActive = False
    sparks.exception.return_value = "STREAM_FAILED: no more disk"
    with pytest.raises(PeerError, match="no more disk"):
        query.poll()


def test_whether_a_query_is_active_is_not_asked_ten_times_a_second(
    tmp_path: Path, batches: Any, trigger: Trigger
) -> None:
    """Each question is work for the driver and the JVM, and an idle run has no other."""
    query = BatchQuery(session(), "name", tmp_path, batches, trigger, ask_s=FOREVER_S)
    asked = PropertyMock(return_value=True)
    type(running(query)).isActive = asked
    query.poll()
    query.poll()
    assert asked.call_count == 1
