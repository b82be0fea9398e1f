"""A runner is right if and only if it passes this suite: one application object, one expectation,
every runner.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.conformance.apps import in_time, topology
from tests.conformance.cases import (
    CASES,
    Case,
    dropped_state_case,
    in_time_case,
    several_keys_case,
    topology_case,
)
from tests.conformance.runners import LocalRunner, SparkRunner
from wallaroo.options import HostKind

# what Spark runs of the topologies, and how
IS_ALL = bool(os.environ.get("WALLAROO_ALL_RUNNERS"))
ON_SPARK = topology.TOPOLOGIES if IS_ALL else topology.TOPOLOGIES[4::16]
IN_TIME_ON_SPARK = in_time.SHAPES if IS_ALL else in_time.SHAPES[12::32]
TWO_WAYS = (LocalRunner(1, 1), LocalRunner(3, 4))


def outputs_of(case: Case, runner: Any) -> dict[str, list[str]]:
    lines = {source: [line.encode() for line in some] for source, some in case.lines.items()}
    return {
        sink: [output.decode() for output in some]
        for sink, some in runner(case.build, lines).items()
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_outputs_are_right(case: Case, runner: Any) -> None:
    case.check(outputs_of(case, runner))


def test_there_are_84_topologies() -> None:
    assert len(topology.TOPOLOGIES) == len(set(topology.TOPOLOGIES)) == 4 + 16 + 64


@pytest.mark.parametrize("local", TWO_WAYS, ids=["one batch", "in pieces"])
@pytest.mark.parametrize("stages", topology.TOPOLOGIES, ids=" ".join)
def test_every_message_went_through_all_stages_in_order(
    stages: tuple[str, ...], local: LocalRunner
) -> None:
    case = topology_case(stages)
    case.check(outputs_of(case, local))


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("host", HostKind)
@pytest.mark.parametrize("stages", ON_SPARK, ids=" ".join)
def test_every_message_went_through_all_stages_on_spark(
    stages: tuple[str, ...], host: HostKind, spark_runner: SparkRunner
) -> None:
    case = topology_case(stages)
    case.check(outputs_of(case, replace(spark_runner, host=host.value)))


@pytest.mark.parametrize("shape", in_time.SHAPES, ids=str)
def test_a_key_sees_events_timers_expiry_and_ends_in_one_order(shape: in_time.Shape) -> None:
    case = in_time_case(shape)
    drawn = random.Random(str(shape))
    for _ in range(2):
        case.check(outputs_of(case, LocalRunner(drawn.randint(1, 20), drawn.randint(1, 4))))


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("host", HostKind)
@pytest.mark.parametrize("shape", IN_TIME_ON_SPARK, ids=str)
def test_a_key_sees_events_timers_expiry_and_ends_in_one_order_on_spark(
    shape: in_time.Shape, host: HostKind, spark_runner: SparkRunner
) -> None:
    case = in_time_case(shape)
    case.check(outputs_of(case, replace(spark_runner, host=host.value)))


@pytest.mark.spark
@pytest.mark.java
def test_state_survives_batches_and_keys_move_between_tasks_on_spark(
    spark_runner: SparkRunner,
) -> None:
    """A megabyte is several chunks of a file, which neither batches nor tasks cut apart; three
    shuffles, two tasks.
    """
    case = several_keys_case(rounds=1250, digits=100)
    batches: list[int] = []

    case.check(outputs_of(case, partial(spark_runner, batches=batches)))

    assert batches[0] > 1


@pytest.mark.spark
@pytest.mark.java
def test_state_that_was_dropped_in_an_earlier_batch_is_gone_on_spark(
    spark_runner: SparkRunner,
) -> None:
    case = dropped_state_case(is_multi=False, numbers=4000, digits=100)
    batches: list[int] = []

    case.check(outputs_of(case, partial(spark_runner, batches=batches)))

    assert batches[0] > 1
