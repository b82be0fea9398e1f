"""Loads of steps from samples: of blocks, and of the end of a batch."""

from __future__ import annotations

from wallaroo.engine.report import TaskReport
from wallaroo.engine.stages.sampling import StageSample, StepSample
from wallaroo.monitoring.metrics.steps import StepMeter


def of_end(events: int) -> StageSample:
    return StageSample(1, events, (StepSample("windows", 10, 4000),), fed=1)


def loads(*reports: TaskReport) -> list[tuple[int, float]]:
    meter = StepMeter()
    for report in reports:
        meter.batch_done([report])
    return [(step.events, step.seconds) for step in meter.steps]


def test_firing_in_a_batch_without_input_counts_as_it_is() -> None:
    assert loads(TaskReport(1, 0, "a", stage_samples=(of_end(0),))) == [(10, 4e-6)]


def test_a_sample_of_the_end_counts_for_batches_that_were_not_sampled() -> None:
    """Given one of four batches sampled, then its firing counts four times."""
    plain = TaskReport(1, 0, "a", stage_events={1: 100})
    sampled = TaskReport(1, 0, "a", stage_events={1: 100}, stage_samples=(of_end(100),))
    assert loads(plain, plain, plain, sampled) == [(40, 1.6e-5)]


def test_events_wait_for_the_next_sample_of_events() -> None:
    """Given a firing without input, then the events before it are still to be scaled."""
    plain = TaskReport(1, 0, "a", stage_events={1: 100})
    fired = TaskReport(1, 0, "a", stage_samples=(of_end(0),))
    block = StageSample(1, 50, (StepSample("windows", 50, 50),))
    counted = TaskReport(1, 0, "a", stage_events={1: 100}, stage_samples=(block,))
    assert loads(plain, fired, counted)[0][0] == 10 + 200
