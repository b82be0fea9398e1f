"""Runners for the suite: in this process with one undisturbed batch, in this process in pieces, on
Spark, and on Spark with resident tasks, which are the default on one machine; the last two also
with their checkpoint in an object store, of S3 or Azure.

The micro-batch host runs what may depend on Spark, and resident tasks a sample; with
``WALLAROO_ALL_RUNNERS=1`` in the environment (`make long`) all runners run all of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.runners import LocalRunner, SparkRunner
from tests.connectors.files.s3.server import environment_of, running_s3
from tests.stores.azurite.server import (
    IS_MISSING,
    MISSING,
    azure_environment_of,
    running_azurite,
)
from wallaroo.instrumentation.tuning import Pace, Tuning


@pytest.fixture
def spark_runner(spark_session: Any) -> SparkRunner:
    """Spark with batches and tasks so small that few lines make several of both."""
    pace = Pace(events_first=16, events_min=16, task_s=1e-5)
    return SparkRunner(spark_session, tuning=Tuning(pace, mark_bytes=128))


@pytest.fixture(scope="session")
def store_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 server with a bucket."""
    folder = tmp_path_factory.mktemp("conformance-s3")
    (folder / "data" / "bucket").mkdir(parents=True)
    with running_s3(folder) as server:
        yield server.port


@pytest.fixture
def store(store_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL below which checkpoints may be."""
    for variable, value in environment_of(store_port, tmp_path / "cache").items():
        monkeypatch.setenv(variable, value)
    return "s3://bucket"


@pytest.fixture(scope="session")
def azure_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a server of Azure's protocol with a container."""
    with running_azurite(tmp_path_factory.mktemp("conformance-azure")) as server:
        yield server.port


@pytest.fixture
def azure_store(azure_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URL below which checkpoints may be."""
    for variable, value in azure_environment_of(azure_port, tmp_path / "cache").items():
        monkeypatch.setenv(variable, value)
    return "az://container"


RESIDENT = "spark, resident"
STORED = "spark, stored"
RESIDENT_STORED = "spark, resident, stored"
RESIDENT_AZURE = "spark, resident, Azure"  # in `make long`
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
    "windows of rows",
    "branches",
    "test_every_failed_event_is_one_dead_letter",
    "test_state_that_cannot_be_stored",
)


# of it, with an object store
STORED_SAMPLE = ("state survives batches", "windows added up before the shuffle")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample."""
    if os.environ.get("WALLAROO_ALL_RUNNERS"):
        return
    left_out = [item for item in items if "spark" in item.name and not _is_sampled(item.name)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_sampled(name: str) -> bool:
    if RESIDENT_AZURE in name:
        return False
    if "stored" in name and not any(part in name for part in STORED_SAMPLE):
        return False
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
        pytest.param(STORED, marks=[pytest.mark.spark, pytest.mark.java, pytest.mark.s3]),
        pytest.param(RESIDENT_STORED, marks=[pytest.mark.spark, pytest.mark.java, pytest.mark.s3]),
        pytest.param(
            RESIDENT_AZURE,
            marks=[
                pytest.mark.spark,
                pytest.mark.java,
                pytest.mark.skipif(IS_MISSING, reason=MISSING),
            ],
        ),
    ]
)
def runner(request: pytest.FixtureRequest) -> Any:
    """Every runner there is."""
    if request.param == "spark":
        return request.getfixturevalue("spark_runner")
    if request.param == RESIDENT:
        return replace(request.getfixturevalue("spark_runner"), host="resident")
    if request.param in (STORED, RESIDENT_STORED, RESIDENT_AZURE):
        place = request.getfixturevalue("azure_store" if "Azure" in request.param else "store")
        host = "micro-batch" if request.param == STORED else "resident"
        return replace(request.getfixturevalue("spark_runner"), host=host, place=place)
    return LocalRunner(1, 1) if request.param == "one batch" else LocalRunner(5, 3)
