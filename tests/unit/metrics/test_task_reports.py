"""What real tasks report of a batch, and what the meters make of it: no Spark, a list for a
shuffle.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import miniature
from tests.unit.dashboard.fakes import BusyRun
from wallaroo.engine.report import TaskReport
from wallaroo.local_cluster.hosts import free_ports
from wallaroo.metrics.details import StateSize
from wallaroo.metrics.meter import RunMeter
from wallaroo.metrics.steps import WORKERS_MAX, StepMeter
from wallaroo.runtime.commit_protocol import BatchProtocol
from wallaroo.runtime.housekeeping import Housekeeping
from wallaroo.runtime.job import Deployment
from wallaroo.spool import SpoolReader, folder_of
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.commits import Commit
from wallaroo.state.view import close_environments
from wallaroo.status_api.live import LiveView

EVENTS = miniature.CHUNKS_PER_BATCH * miniature.EVENTS_PER_CHUNK


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[tuple[list[TaskReport], Commit, list[str]]]:
    """The reports of one batch of two tasks and two levels, its commit, and the phases that
    ended.
    """
    plan = miniature.plan_of_sequence(tmp_path, free_ports(1)[0])
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    spool = folder_of(checkpoint.root / "spool", miniature.SOURCE)
    miniature.fill(spool, plan)
    committers = miniature.open_sinks(plan, checkpoint)
    housekeeping = Housekeeping(checkpoint, miniature.KEY_GROUPS, 8)
    protocol = BatchProtocol(
        plan, checkpoint, committers, housekeeping, {miniature.SOURCE: spool}, (miniature.STEP,)
    )
    deployment = Deployment.of(
        plan,
        (),
        checkpoint.root,
        (SpoolReader(spool),),
        str(checkpoint.view_root),
        checkpoint.id,
        False,
    )
    job, end = miniature.plan_job(0, protocol, deployment, spool, housekeeping)
    reports = protocol.accepted(0, lambda: miniature.attempt(job))
    phases: list[str] = []
    commit = protocol.commit(0, {miniature.SOURCE: [end.byte, end.events]}, reports, phases.append)
    yield pickle.loads(pickle.dumps(reports)), commit, phases
    for committer in committers.values():
        committer.close(0.0)
    checkpoint.release()
    close_environments()


def test_events_are_counted_exactly_and_steps_are_sampled(
    batch: tuple[list[TaskReport], Commit, list[str]],
) -> None:
    reports, commit, phases = batch
    meter = RunMeter("Sequence", time.time())
    meter.tasks_done(reports)
    meter.state_is(StateSize.of(commit))
    details = meter.details()
    assert details.stage_events == {0: EVENTS, 1: EVENTS}
    assert details.edges == {(0, 1): EVENTS}
    assert miniature.STEP in {load.step for load in details.steps}
    assert {load.events for load in details.steps if load.step == miniature.STEP} == {EVENTS}
    assert all(load.seconds >= 0 for load in details.steps)
    assert details.hot_keys[1]
    assert sum(details.group_events.values()) == EVENTS
    assert sum(load.events for load in details.worker_loads) == 2 * EVENTS
    assert details.state_changes[0] == sum(delta.entries for delta in commit.deltas) > 0
    assert details.state.delta_bytes > 0
    assert phases == ["commit", "sinks"]


def test_workers_that_come_and_go_take_bounded_memory() -> None:
    meter = StepMeter()
    for number in range(WORKERS_MAX + 10):
        meter.batch_done([TaskReport(0, 0, "a", worker=f"host-{number}"),
                          TaskReport(0, 1, "a", worker="steady")])  # fmt: skip
    assert len(meter.workers) == WORKERS_MAX
    (steady,) = (load for load in meter.workers if load.worker == "steady")
    assert steady.tasks == WORKERS_MAX + 10


def test_a_message_to_dashboards_stays_small_with_many_key_groups(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=3)
    run.meter.state_is(StateSize(1, 1, dict.fromkeys(range(32_768), 1_000_000)))
    assert len(LiveView(run.plan).message(run.status(), run.meter)) < 100_000
