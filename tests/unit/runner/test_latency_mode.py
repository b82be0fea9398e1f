"""The latency target and the host of a run's options."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from wallaroo.options import (
    EPOCH_TIME_S,
    LATENCY_MS,
    MICRO_BATCH_LEAST_MS,
    HostKind,
    Latency,
    LatencyName,
    RunOptions,
)
from wallaroo.spark.jvm.preflight import with_host


@pytest.mark.parametrize("name", ["normal", "low"])
def test_a_latency_mode_may_be_a_word(name: LatencyName) -> None:
    """The option accepts the words that it had before, and keeps the mode."""
    assert RunOptions(latency=name).latency is Latency(name)
    assert replace(RunOptions(), latency=name) == RunOptions(latency=Latency(name))


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_former_words_mean_what_they_did(is_shared: bool) -> None:
    """Low is resident tasks that wait for nothing, normal is the micro-batch host."""
    low = RunOptions(latency="low").on(is_shared=is_shared)
    normal = RunOptions(latency="normal").on(is_shared=is_shared)
    assert (low.is_resident, low.latency_s, low.batch_target_s) == (True, 0.0, EPOCH_TIME_S)
    assert (normal.is_resident, normal.latency_s) == (False, 0.0)
    assert normal.batch_target_s == normal.batch_time_s


def test_a_run_has_resident_tasks_and_a_target_by_default() -> None:
    """In a cluster's session, whose other jobs wait for cores, only if micro-batches miss it."""
    alone = RunOptions().on(is_shared=False)
    shared = RunOptions().on(is_shared=True)
    quick = RunOptions(latency=MICRO_BATCH_LEAST_MS - 1).on(is_shared=True)
    assert (alone.is_resident, alone.latency_s) == (True, LATENCY_MS / 1e3)
    assert (shared.is_resident, shared.latency_s) == (False, 0.0)
    assert quick.is_resident


@pytest.mark.parametrize(
    ("master", "has_session", "host"),
    [
        ("local[2]", False, "resident"),
        ("local[2]", True, "resident"),
        ("spark://one:7077", False, "resident"),
        ("spark://one:7077", True, "micro-batch"),
    ],
)
def test_only_a_session_of_a_cluster_has_micro_batches_by_default(
    master: str, has_session: bool, host: str
) -> None:
    context = SimpleNamespace(master=master)
    session = SimpleNamespace(sparkContext=context) if has_session else None
    assert with_host(RunOptions(master=master), session).host == host


def test_a_target_is_milliseconds_or_a_timedelta() -> None:
    """Both are the same option, and apply to both hosts."""
    for host in HostKind:
        options = RunOptions(latency=timedelta(seconds=0.2), host=host)
        assert options == RunOptions(latency=200, host=host.value)
        assert options.latency_s == 0.2


def test_a_batch_of_a_backlog_takes_the_target_within_bounds() -> None:
    """Not less than an epoch takes at least, and never more than the batch time."""
    targets_s = [
        RunOptions(latency=ms, host="resident").batch_target_s for ms in (5, 50, 200, 9_000)
    ]
    assert targets_s == [EPOCH_TIME_S, EPOCH_TIME_S, 0.2, 1.0]


@pytest.mark.parametrize("wrong", ["lowest", 0, -1, float("nan"), timedelta(0), b"5"])
def test_an_unknown_latency_is_refused(wrong: Any) -> None:
    """The error says what a target is."""
    with pytest.raises(ValueError, match=r"is not a target\. Give milliseconds above 0"):
        RunOptions(latency=wrong)


def test_an_unknown_host_and_two_different_ones_are_refused() -> None:
    """The error names the hosts, or both options."""
    wrong: Any = "fast"
    with pytest.raises(ValueError, match=r"Choose 'micro-batch' or 'resident'\."):
        RunOptions(host=wrong)
    with pytest.raises(ValueError, match="latency='low' is the resident host"):
        RunOptions(latency="low", host="micro-batch")
