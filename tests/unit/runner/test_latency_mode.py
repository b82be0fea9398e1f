"""The latency target and the host of a run's options."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
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


@pytest.mark.parametrize("name", ["normal", "low"])
def test_a_latency_mode_may_be_a_word(name: LatencyName) -> None:
    """The option accepts the words that it had before, and keeps the mode."""
    assert RunOptions(latency=name).latency is Latency(name)
    assert replace(RunOptions(), latency=name) == RunOptions(latency=Latency(name))


@pytest.mark.parametrize("is_one_machine", [True, False])
def test_the_former_words_mean_what_they_did(is_one_machine: bool) -> None:
    """Low is resident tasks that wait for nothing, normal is the micro-batch host."""
    low = RunOptions(latency="low").on(is_one_machine=is_one_machine)
    normal = RunOptions(latency="normal").on(is_one_machine=is_one_machine)
    assert (low.is_resident, low.latency_s, low.batch_target_s) == (True, 0.0, EPOCH_TIME_S)
    assert (normal.is_resident, normal.latency_s) == (False, 0.0)
    assert normal.batch_target_s == normal.batch_time_s


def test_one_machine_has_resident_tasks_and_a_target_by_default() -> None:
    """A cluster has micro-batches without a target, unless it is given one that they miss."""
    alone = RunOptions().on(is_one_machine=True)
    cluster = RunOptions().on(is_one_machine=False)
    quick = RunOptions(latency=MICRO_BATCH_LEAST_MS - 1).on(is_one_machine=False)
    assert (alone.is_resident, alone.latency_s) == (True, LATENCY_MS / 1e3)
    assert (cluster.is_resident, cluster.latency_s) == (False, 0.0)
    assert quick.is_resident


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
