"""What steps leave out is counted: the same on every host, however input is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.apps import losing
from tests.conformance.runners import SparkRunner
from wallaroo.options import HostKind, RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.testing import run_local

NOWHERE = Path("/nowhere")
LINES = losing.lines(600)
INPUT = {"in": [line.encode() for line in LINES]}


def counted(batches: int, tasks: int) -> dict[str, dict[str, int]]:
    return run_local(losing.losing(NOWHERE, NOWHERE), INPUT, batches=batches, tasks=tasks).dropped


def test_one_loop_over_the_lines_finds_the_same() -> None:
    found = counted(1, 1)

    for step, counts in losing.lost(LINES).items():
        assert {reason: found[step][reason] for reason in counts} == counts, step
    assert found["dedupe"]["deduplicated"] > 10
    assert found["join"]["unmatched"] > 10
    assert found["join"]["late"] > 10


@pytest.mark.parametrize(("batches", "tasks"), [(1, 4), (7, 1), (5, 3), (60, 2)])
def test_the_counts_do_not_depend_on_batches_and_tasks(batches: int, tasks: int) -> None:
    """Also of windows whose events were added up before it was known that they are late."""
    assert counted(batches, tasks) == counted(1, 1)


def test_a_run_in_this_process_counts_the_same(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    run = Run(losing.losing(tmp_path, tmp_path), RunOptions(status_address=None), InProcessHost(3))
    run.start()
    assert run.wait(400)

    assert {each.step: each.counts for each in run.status().losses} == counted(1, 1)


@pytest.mark.spark
@pytest.mark.java
@pytest.mark.parametrize("host", HostKind)
def test_spark_counts_the_same_on_both_of_its_hosts(
    host: HostKind, spark_runner: SparkRunner
) -> None:
    dropped: dict[str, Any] = {}
    replace(spark_runner, host=host.value)(losing.losing, INPUT, dropped=dropped)

    assert dropped == counted(1, 1)
