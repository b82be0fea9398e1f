"""The short form of ``wallaroo verify``, on Spark: kills of every kind, and deaths at the commit's
own points.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verification.cases import DeadLetters, Sequence
from wallaroo.cli.verify.command import IN_PROCESS_KINDS, without_spark
from wallaroo.cli.verify.session import verify
from wallaroo.options import HostKind
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.schedule import Fault, schedule

pytestmark = [pytest.mark.spark, pytest.mark.java]

KILLS, SEED = len(Kind), 3
RATE = 1000.0  # events per second
DISKS = (Fault.ENOSPC, Fault.EIO, Fault.TORN, Fault.FLIP)


def test_kills_of_every_kind_lose_and_double_nothing(tmp_path: Path) -> None:
    """Driver, JVM, worker, ingress and egress die under load; input, output, files and state agree
    in the end.
    """
    planned = [kill.kind for kill in schedule(KILLS, SEED, tuple(Kind))]
    assert set(planned) == set(Kind)

    options = VerifyOptions("sequence", Sequence, KILLS, SEED, rate=RATE, host=HostKind.MICRO_BATCH)
    result = verify(options, tmp_path)

    assert all(result.kills[kind] for kind in Kind)
    assert sum(result.kills.values()) <= KILLS  # a daemon is killed alone
    assert result.is_clean, result.text()
    assert result.outputs == result.events > 0


@pytest.mark.long
def test_a_driver_that_dies_around_the_commit_point_does_nothing_twice(tmp_path: Path) -> None:
    """One run after the other dies before the commit is published, after it, and when the sinks
    have been reported; then a worker does.

    Some events fail in the decoder, in front of the shuffle and behind it: output, dead letters and
    state have each event once.
    """
    # tests/faults/test_crash_points.py has every point
    faults = ("commit.before:3", "commit.after:3", "commit.sinks:3")

    options = VerifyOptions(
        "dead_letters",
        DeadLetters,
        kills=1,
        seed=SEED,
        rate=RATE,
        kinds=(Kind.WORKER,),
        fault_points=faults,
    )
    result = verify(options, tmp_path)

    assert result.starts == len(faults) + 1
    assert result.is_clean, result.text()
    assert result.outputs + result.letters == result.events
    assert result.letters > 0.02 * result.events


@pytest.mark.long
@pytest.mark.parametrize("host", [None, *HostKind], ids=lambda host: host or "in-process")
def test_disks_clocks_and_files_that_fail_lose_and_double_nothing(
    tmp_path: Path, host: HostKind | None
) -> None:
    """Each fault: on Spark those of disks, once; without Spark all of them, twice."""
    faults = DISKS if host else tuple(fault for fault in Fault if fault is not Fault.PARTITION)
    options = VerifyOptions(
        "sequence",
        Sequence,
        kills=len(faults) if host else 2 * len(faults),
        seed=SEED,
        rate=300.0,
        kinds=IN_PROCESS_KINDS,
        injected=faults,
        host=host,
    )
    result = verify(options if host else without_spark(options), tmp_path)
    assert result.is_clean, result.text()
    assert set(result.injected) == set(faults)


def test_kills_of_resident_tasks_lose_and_double_nothing(tmp_path: Path) -> None:
    """A worker dies in the middle of an epoch, and all tasks begin again; the driver dies, and the
    next run continues in the log of many commits to a file.
    """
    kinds = (Kind.WORKER, Kind.DRIVER)
    options = VerifyOptions("sequence", Sequence, kills=3, seed=SEED, rate=RATE, kinds=kinds)

    result = verify(options, tmp_path)

    assert result.is_clean, result.text()
    assert result.outputs == result.events > 0
    assert any((tmp_path / "checkpoint" / "commits").glob("*.run"))
