"""A query whose Python processes die while it begins, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JJavaError

from wallaroo.errors import PeerError
from wallaroo.spark import query
from wallaroo.spark.query import STARTS_MAX, BatchQuery

DIED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)."
SLOW = "org.apache.spark.SparkException: Python worker failed to connect back."


class JavaError(Py4JJavaError):
    """What py4j raises, without a JVM that could say more."""

    def __init__(self, text: str):
        Exception.__init__(self, text)
        self.java_exception = text

    def __str__(self) -> str:
        return str(self.java_exception)


@pytest.fixture
def session() -> MagicMock:
    return MagicMock()


@pytest.fixture
def batches(session: MagicMock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BatchQuery:
    monkeypatch.setattr(query, "write_logs", lambda *_: None)
    batches: Any = MagicMock(ends={})
    site: Any = SimpleNamespace(scratch=tmp_path)
    return BatchQuery(session, "name", site, batches, hung_s=20.0)


def loading(session: MagicMock) -> MagicMock:
    load: MagicMock = session.readStream.format.return_value.option.return_value.option.return_value
    return load.load


def test_a_process_that_dies_while_the_query_begins_is_asked_again(
    session: MagicMock, batches: BatchQuery
) -> None:
    """Spark starts another one; the run goes on."""
    loading(session).side_effect = [JavaError(DIED), JavaError(SLOW), MagicMock()]
    batches.start()
    assert loading(session).call_count == 3


def test_processes_that_die_again_and_again_end_the_run_in_words(
    session: MagicMock, batches: BatchQuery
) -> None:
    """And this program does not take it for a mistake of its own."""
    loading(session).side_effect = JavaError(DIED)
    with pytest.raises(PeerError, match="What was committed stays"):
        batches.start()
    assert loading(session).call_count == STARTS_MAX


def test_processes_that_are_slow_to_begin_do_not_end_the_run(
    session: MagicMock, batches: BatchQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark gives each of them ten seconds."""
    now_s = 0.0

    def load() -> Any:
        nonlocal now_s
        now_s += 10.0
        if now_s < 300.0:
            raise JavaError(SLOW)
        return MagicMock()

    loading(session).side_effect = load
    monkeypatch.setattr(query, "time", SimpleNamespace(monotonic=lambda: now_s))
    batches.start()
    assert loading(session).call_count == 30


def test_a_stop_ends_a_start_that_goes_on_trying(session: MagicMock, batches: BatchQuery) -> None:
    def load() -> Any:
        batches.interrupt()
        raise JavaError(SLOW)

    loading(session).side_effect = load
    with pytest.raises(PeerError):
        batches.start()
    assert loading(session).call_count == 1


def test_what_is_no_death_is_not_tried_again(session: MagicMock, batches: BatchQuery) -> None:
    loading(session).side_effect = JavaError("java.lang.IllegalStateException: stopped")
    with pytest.raises(PeerError, match="stopped"):
        batches.start()
    assert loading(session).call_count == 1


@pytest.mark.parametrize("words", [DIED, SLOW])
def test_a_query_that_ends_of_such_a_death_is_started_again(
    session: MagicMock, batches: BatchQuery, words: str
) -> None:
    """Spark asks about the source after the query has begun, too."""
    batches.start()
    running: Any = batches._query
    running.isActive = False
    running.exception.return_value = f"STREAM_FAILED: {words}"
    batches.poll()
    assert loading(session).call_count == 2
