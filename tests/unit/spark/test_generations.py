"""Why a generation of tasks was lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException

from wallaroo.errors import PeerError
from wallaroo.runtime.resident.tasks import LostTaskError
from wallaroo.spark.resident.generations import LOSSES_MAX, Generations, _Generation

FULL = SparkRuntimeException("java.io.IOException: No space left on device")


@pytest.fixture
def generations() -> Generations:
    """No generation yet, on a cluster whose Spark goes on."""
    running = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    session: Any = SimpleNamespace(context=SimpleNamespace(_jsc=running))
    cluster: Any = SimpleNamespace(is_local=False, members=())
    unused: Any = None
    return Generations(session, cluster, unused, lambda: False)


def lose(generations: Generations, error: BaseException | None) -> None:
    """Lose a generation whose job ended with ``error``, or goes on."""
    tasks: Any = SimpleNamespace(close=lambda: None, count=2)
    job: Any = SimpleNamespace(wait=lambda: None, error=error)
    generations._current = _Generation(tasks, job, ())
    generations.lose(7, LostTaskError("task 0 has gone"))


def test_the_log_has_sparks_reason_if_spark_ended_the_tasks(
    generations: Generations, caplog: pytest.LogCaptureFixture
) -> None:
    lose(generations, FULL)
    lose(generations, None)
    assert caplog.messages == [
        "batch 7 is run again: Spark ended its tasks: "
        "SparkRuntimeException: java.io.IOException: No space left on device",
        "batch 7 is run again: a worker process has ended, or its host has gone",
    ]
    assert generations.cause == ""


def test_the_error_that_ends_the_run_has_it_too(generations: Generations) -> None:
    for _ in range(LOSSES_MAX):
        lose(generations, None)
    with pytest.raises(
        PeerError, match=r"within 60 s\. Spark's reason: .*No space left on device\."
    ):
        lose(generations, FULL)
