"""Runners for the suite: in this process with one undisturbed batch, in this process in pieces, on
Spark, and on Spark with resident tasks, which are the default on one machine.

The micro-batch host runs what may depend on Spark, and resident tasks a sample; with
``WALLAROO_ALL_RUNNERS=1`` in the environment (`make long`) all runners run all of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from tests.conformance.runners import LocalRunner, SparkRunner
from wallaroo.instrumentation.tuning import Pace, Tuning


@pytest.fixture
def spark_runner(spark_session: Any) -> SparkRunner:
    """Spark with batches and tasks so small that few lines make several of both."""
    pace = Pace(events_first=16, events_min=16, task_s=1e-5)
    return SparkRunner(spark_session, tuning=Tuning(pace, mark_bytes=128))


RESIDENT = "spark, resident"
# what steps do in the engine, which knows no host, and tests that differ in nothing else from one
# that Spark runs
SAME_ON_SPARK = (
    "spark-unbalanced merge",
    "spark-merges of merges",
    "spark-collect without state",
    "spark-one source is empty",
    "spark-a stateless step used three times",
    "spark-no encoder",
    "spark-None",
    "spark-random keys",
    "spark-state as output, collected",
    "spark-empty events and outputs",
    "spark-plain functions",
    "spark-own packing, events",
    "state dropped, several outputs",
    "spark-multi partition detector, depth 1",
    "spark-multi partition detector, depth 2",
    "named_with_its_line_and_event[spark-compute]",
    "named_with_its_line_and_event[spark-compute multi]",
    "named_with_its_line_and_event[spark-extract]",
    "named_with_its_line_and_event[spark-state multi]",
    "named_like_one_that_raises[spark-decode]",
    "named_like_one_that_raises[spark-extract]",
    "named_like_one_that_raises[spark-encode]",
    "the_steps_mistake[spark-multi]",
    "the_steps_mistake[spark-list key]",
    "the_steps_mistake[spark-encoder]",
    "whatever_came_before[spark-fine]",
    "sink_without_encoder[spark-generator-False]",
    "sink_without_encoder[spark-thing-True]",
    "behind_a_sys_exit[spark-skip]",
)
# of the tests that take a runner: state, time, shuffles, merges, several sinks, errors, dead
# letters
SAMPLE = (
    "state survives batches",
    "several key_by",
    "several sources and sinks",
    "merge of two keys",
    "state dropped",
    "sessions by timers",
    "timers and expiry behind",
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
    left_out = [item for item in items if "spark" in item.name and not _is_sampled(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_sampled(name: str) -> bool:
    if RESIDENT in name and not any(part in name for part in SAMPLE):
        return False
    is_same = any(part in name for part in SAME_ON_SPARK)
    return not (is_same and "spark" in name.partition("[")[2])


@pytest.fixture(
    params=[
        "one batch",
        "in pieces",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.java]),
        pytest.param(RESIDENT, marks=[pytest.mark.spark, pytest.mark.java]),
    ]
)
def runner(request: pytest.FixtureRequest) -> Any:
    """Every runner there is."""
    if request.param == "spark":
        return request.getfixturevalue("spark_runner")
    if request.param == RESIDENT:
        return replace(request.getfixturevalue("spark_runner"), host="resident")
    return LocalRunner(1, 1) if request.param == "one batch" else LocalRunner(5, 3)
