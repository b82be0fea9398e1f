"""Runners for the suite: in this process with one undisturbed batch, in this process in pieces, on
Spark, and on Spark at low latency.

Low latency runs a sample of the suite; with ``WALLAROO_ALL_RUNNERS=1`` in the environment all of
it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.runners import LocalRunner, SparkRunner
from wallaroo.tuning import Pace, Tuning


@pytest.fixture
def spark_runner(spark_session: Any) -> SparkRunner:
    """Spark with batches and tasks so small that few lines make several of both."""
    pace = Pace(events_first=16, events_min=16, task_s=1e-5)
    return SparkRunner(spark_session, tuning=Tuning(pace, mark_bytes=128))


LOW_LATENCY = "spark, low latency"
# of the tests that take a runner: state, time, shuffles, merges, several sinks, errors, dead
# letters
SAMPLE = (
    "state survives batches",
    "several key_by",
    "several sources and sinks",
    "merge of two keys",
    "state dropped",
    "sessions by timers",
    "sliding windows",
    "outer join",
    "windows added up before the shuffle",
    "join in windows with late events",
    "multi partition detector, depth 3",
    "blocks and events",
    "branches",
    "test_every_failed_event_is_one_dead_letter",
    "test_state_that_cannot_be_stored",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample."""
    if os.environ.get("WALLAROO_ALL_RUNNERS"):
        return
    left_out = [item for item in items if LOW_LATENCY in item.name and not _is_sampled(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_sampled(name: str) -> bool:
    return any(part in name for part in SAMPLE)


@pytest.fixture(
    params=[
        "one batch",
        "in pieces",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.java]),
        pytest.param(LOW_LATENCY, marks=[pytest.mark.spark, pytest.mark.java]),
    ]
)
def runner(request: pytest.FixtureRequest) -> Any:
    """Every runner there is."""
    if request.param == "spark":
        return request.getfixturevalue("spark_runner")
    if request.param == LOW_LATENCY:
        return replace(request.getfixturevalue("spark_runner"), latency="low")
    return LocalRunner(1, 1) if request.param == "one batch" else LocalRunner(5, 3)
