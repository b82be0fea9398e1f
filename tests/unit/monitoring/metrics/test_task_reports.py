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
from tests.unit.monitoring.dashboard.fakes import BusyRun
from wallaroo.engine.report import TaskReport
from wallaroo.monitoring.metrics.batches import PHASES
from wallaroo.monitoring.metrics.details import StateSize
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.steps import WORKERS_MAX, StepMeter
from wallaroo.monitoring.status_api.live import LiveView
from wallaroo.runtime.batch.admission import plan_ends
from wallaroo.runtime.batch.batch_metrics import BatchMetrics
from wallaroo.runtime.batch.batches import Batches, BatchSetup
from wallaroo.runtime.batch.commit_protocol import BatchProtocol
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.batch.pacing import Pacer
from wallaroo.runtime.in_process import InProcessRunner
from wallaroo.runtime.tasks.job import BatchJob, Deployment
from wallaroo.sources.log import LogContext
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.spool import folder_of
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.views.environments import close_environments

EVENTS = miniature.CHUNKS_PER_BATCH * miniature.EVENTS_PER_CHUNK
CLOCKS_APART_MS = 5  # phases go by the monotonic clock, the batch by that of the wall


class PicklingRunner(InProcessRunner):
    """Reports go through pickle, as from workers."""

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        reports: list[TaskReport] = pickle.loads(pickle.dumps(super().run_batch(job)))
        return reports


@pytest.fixture
def meter(tmp_path: Path) -> Iterator[RunMeter]:
    """What a run's meter has after one batch of two tasks and two levels."""
    plan = miniature.plan_of_sequence(tmp_path, free_ports(1)[0])
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    spool = folder_of(checkpoint.root / "spool", miniature.SOURCE)
    miniature.fill(spool, plan)
    committers = miniature.open_sinks(plan, checkpoint)
    housekeeping = Housekeeping(checkpoint, miniature.KEY_GROUPS, 8)
    steps = (miniature.STEP,)
    log = plan.sources[0].config.open_log(LogContext(checkpoint.root / "spool"))
    view = str(checkpoint.view_root)
    deployment = Deployment.of(plan, (), checkpoint.root, (log,), view, checkpoint.id, False)
    meter = RunMeter("Sequence", time.time())
    batches = Batches(
        BatchSetup(plan, deployment, steps, (log,), {miniature.SOURCE: log.beginning()}),
        protocol=BatchProtocol(
            plan, checkpoint, committers, housekeeping, {miniature.SOURCE: log}, steps
        ),
        housekeeping=housekeeping,
        runner=PicklingRunner(miniature.TASKS),
        accounts=BatchMetrics(plan, meter),
        pacer=Pacer(1.0),
    )
    batches.run(plan_ends(batches.ends, {miniature.SOURCE: log}, EVENTS))
    yield meter
    for committer in committers.values():
        committer.close(0.0)
    checkpoint.release()
    close_environments()


def test_events_are_counted_exactly_and_steps_are_sampled(meter: RunMeter) -> None:
    details = meter.details()
    assert details.stage_events == {0: EVENTS, 1: EVENTS}
    assert details.edges == {(0, 1): EVENTS}
    assert miniature.STEP in {load.step for load in details.steps}
    assert {load.events for load in details.steps if load.step == miniature.STEP} == {EVENTS}
    assert all(load.seconds >= 0 for load in details.steps)
    assert details.hot_keys[1]
    assert sum(details.group_events.values()) == EVENTS
    assert sum(load.events for load in details.worker_loads) == 2 * EVENTS
    assert details.state_changes[0] > 0
    assert details.state.delta_bytes > 0


def test_the_phases_of_a_batch_make_up_its_time(meter: RunMeter) -> None:
    (batch,) = meter.details().batches
    assert tuple(batch.phases_ms) == PHASES
    assert sum(batch.phases_ms.values()) <= batch.duration_ms + CLOCKS_APART_MS


def test_workers_that_come_and_go_take_bounded_memory() -> None:
    meter = StepMeter()
    for number in range(WORKERS_MAX + 10):
        meter.batch_done([TaskReport(0, 0, "a", worker=f"host-{number}"),
                          TaskReport(0, 1, "a", worker="steady")])  # fmt: skip
    assert len(meter.workers) == WORKERS_MAX
    (steady,) = (load for load in meter.workers if load.worker == "steady")
    assert steady.tasks == WORKERS_MAX + 10


def test_state_is_summed_by_step_and_by_key_group_as_of_each_groups_newest_snapshot() -> None:
    meter = StepMeter()
    meter.batch_done([TaskReport(0, 0, "a", group_sizes={0: {"count": (9, 90)}})])
    meter.batch_done(
        [
            TaskReport(0, 0, "a", group_sizes={0: {"count": (2, 20), "count: due": (1, 5)}}),
            TaskReport(0, 1, "a", group_sizes={1: {"count": (3, 30)}}),
        ]
    )
    assert meter.state_steps == {"count": (5, 50), "count: due": (1, 5)}
    assert meter.group_entries == {0: 3, 1: 3}


def test_a_message_to_dashboards_stays_small_with_many_key_groups(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=3)
    size = StateSize(1, 1, dict.fromkeys(range(32_768), 1_000_000))
    run.meter.state_is(lambda: size)
    assert len(LiveView(run.plan).message(run.status(), run.meter)) < 100_000
