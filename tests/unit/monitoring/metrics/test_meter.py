"""The driver's tally of a run."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.monitoring.metrics.latency import RECEIPTS_MAX, WAITING_BATCHES_MAX
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.progress import Recovery
from wallaroo.monitoring.metrics.status import (
    RunState,
    SinkLine,
    SourceStatus,
    WorkerStatus,
)

START_S = 1_700_000_000.0
MS = 1_000_000
S = 1_000_000_000


def at_ns(seconds: float) -> int:
    return round((START_S + seconds) * S)


def at_ms(seconds: float) -> int:
    return round((START_S + seconds) * 1000)


def source(name: str, events_in: int) -> SourceStatus:
    return SourceStatus(
        name, f"tcp {name}", events_in, 0, events_in, events_in * 50, 1, False, False
    )


def sink(name: str, waiting_for: str = "") -> SinkLine:
    return SinkLine(name, f"tcp {name}", 0, waiting_for, 0)


@pytest.fixture
def meter() -> RunMeter:
    return RunMeter("Shop", START_S, checkpoint="/c", is_durable=True, tasks=2)


def test_batches_add_up_to_totals_rates_and_durations(meter: RunMeter) -> None:
    meter.enter(RunState.RUNNING)
    for batch in range(4):
        meter.batch_done(
            batch, at_ns(batch), at_ns(batch + 1), {"a": 600, "b": 400}, {"out": 50}, {}
        )
    status = meter.status(START_S + 4)
    assert (status.state, status.batches, status.last_batch) == ("running", 4, 3)
    assert (status.events_done, status.outputs) == (4000, 200)
    assert (status.batch_ms, status.batch_ms_median) == (1000, 1000)
    assert (status.events_done_per_s, status.outputs_per_s) == (
        pytest.approx(1000),
        pytest.approx(50),
    )


def test_latency_runs_from_receipt_to_the_moment_the_output_left(meter: RunMeter) -> None:
    meter.batch_done(
        0, at_ns(0), at_ns(1), {"a": 3}, {"out": 3}, {"Orders": [(at_ms(0.5), 2), (at_ms(0.9), 1)]}
    )
    assert meter.status(START_S + 1).latency == ()
    meter.output_left(0, at_ns(1.5))
    (latency,) = meter.status(START_S + 2).latency
    assert (latency.pipeline, latency.count) == ("Orders", 3)
    assert latency.p50_ms == pytest.approx(1000, rel=0.02)
    assert latency.max_ms == pytest.approx(1000, abs=0.01)


def test_a_batch_without_outputs_left_when_it_committed(meter: RunMeter) -> None:
    meter.batch_done(0, at_ns(0), at_ns(1), {"a": 1}, {"out": 0}, {"Orders": [(at_ms(0.8), 1)]})
    (latency,) = meter.status(START_S + 9).latency
    assert latency.max_ms == pytest.approx(200, abs=0.01)


def test_a_batch_that_left_takes_all_before_it_along(meter: RunMeter) -> None:
    for batch in range(3):
        meter.batch_done(
            batch, at_ns(batch), at_ns(batch + 1), {}, {"out": 1}, {"Orders": [(at_ms(batch), 1)]}
        )
    meter.output_left(1, at_ns(4))
    assert meter.status(START_S + 4).latency[0].count == 2
    assert meter.latency.waiting_batches == 1


def test_saying_twice_that_a_batch_left_counts_once(meter: RunMeter) -> None:
    meter.batch_done(0, at_ns(0), at_ns(1), {}, {"out": 1}, {"Orders": [(at_ms(0), 1)]})
    meter.output_left(0, at_ns(2))
    meter.output_left(0, at_ns(9))
    (latency,) = meter.status(START_S + 9).latency
    assert (latency.count, latency.max_ms) == (1, pytest.approx(2000, abs=0.01))


def test_latency_is_kept_apart_by_pipeline(meter: RunMeter) -> None:
    receipts = {"Orders": [(at_ms(0.9), 1)], "Quotes": [(at_ms(0.5), 1)]}
    meter.batch_done(0, at_ns(0), at_ns(1), {}, {}, receipts)
    assert {one.pipeline: round(one.max_ms) for one in meter.status(START_S + 1).latency} == {
        "Orders": 100,
        "Quotes": 500,
    }


def test_an_absent_receiver_costs_bounded_memory_and_no_measurement(meter: RunMeter) -> None:
    batches = WAITING_BATCHES_MAX * 3
    for batch in range(batches):
        meter.batch_done(
            batch, at_ns(batch), at_ns(batch + 1), {}, {"out": 10}, {"Orders": [(at_ms(batch), 10)]}
        )
    assert meter.latency.waiting_batches == WAITING_BATCHES_MAX
    meter.output_left(batches - 1, at_ns(batches))
    (latency,) = meter.status(START_S + batches).latency
    assert latency.count == batches * 10
    assert latency.max_ms == pytest.approx(batches * 1000, abs=0.01)


@given(st.integers(1, 6 * RECEIPTS_MAX))
def test_folding_receipts_keeps_their_count_and_the_oldest(receipts: int) -> None:
    meter = RunMeter("Shop", START_S)
    meter.batch_done(
        0,
        at_ns(0),
        at_ns(9),
        {},
        {"out": 1},
        {"Orders": [(at_ms(0) + n, 2) for n in range(receipts)]},
    )
    assert len(meter.latency._waiting[0].receipts["Orders"]) <= RECEIPTS_MAX
    meter.output_left(0, at_ns(10))
    (latency,) = meter.status(START_S + 10).latency
    assert (latency.count, latency.max_ms) == (2 * receipts, pytest.approx(10_000, abs=0.01))


def test_what_sources_and_sinks_say_is_in_the_status(meter: RunMeter) -> None:
    meter.observe([source("a", 0), source("b", 0)], [sink("out")], START_S)
    meter.observe([source("a", 300), source("b", 100)], [sink("out")], START_S + 2)
    status = meter.status(START_S + 2)
    assert [one.name for one in status.sources] == ["a", "b"]
    assert (status.events_in, status.events_in_per_s) == (400, pytest.approx(200))
    assert status.waiting_for == ""


def test_a_sink_that_waits_is_what_the_run_waits_for(meter: RunMeter) -> None:
    meter.observe([], [sink("out", "127.0.0.1:7002 (connection refused)")], START_S)
    assert meter.status(START_S).waiting_for == "out: 127.0.0.1:7002 (connection refused)"


def test_what_sinks_wait_for_goes_before_what_the_whole_run_waits_for(meter: RunMeter) -> None:
    meter.observe([], [sink("out", "127.0.0.1:7002")], START_S, waiting_for="batch 7 to end")
    assert meter.status(START_S).waiting_for == "out: 127.0.0.1:7002; batch 7 to end"


def test_the_cause_of_all_waits_is_named_first_and_once(meter: RunMeter) -> None:
    replica = "the replica at b:7200, which confirms nothing (Connection refused)"
    source_waits = f"source 'a': acknowledgements wait for {replica}. Start it there, since 12:00"
    meter.observe([], [sink("out", f"{replica}, since 12:00")], START_S, source_waits, replica)
    assert meter.status(START_S).waiting_for == (
        f"{replica}; out: the same, since 12:00; "
        "source 'a': acknowledgements wait for the same. Start it there, since 12:00"
    )


def test_workers_and_what_moved_between_them_are_in_the_status_as_reported_last(
    meter: RunMeter,
) -> None:
    assert (meter.status(START_S).workers, meter.status(START_S).moved) == ((), "")
    workers = (WorkerStatus("worker-1", "127.0.0.2", 1, 2, (0, 1)),)
    meter.set_workers(())
    meter.set_workers(workers)
    meter.set_moved("key groups moved: 2 of 4")
    assert (meter.status(START_S).workers, meter.status(START_S).moved) == (
        workers,
        "key groups moved: 2 of 4",
    )


def test_workers_that_were_killed_are_counted_in_the_status(meter: RunMeter) -> None:
    assert meter.status(START_S).workers_killed == 0
    meter.progress.workers_killed = 2
    assert meter.status(START_S).workers_killed == 2


def test_what_was_found_is_known_before_the_run_is_ready(meter: RunMeter) -> None:
    meter.recovered(Recovery(41))
    assert (meter.status(START_S).last_batch, meter.status(START_S).recovered_batch) == (41, 41)
    meter.recovered(Recovery(41, ready_s=3.0, entries=7))
    assert meter.details().recovery.entries == 7


def test_phases_of_the_start_are_kept_and_those_of_the_end_are_shown(meter: RunMeter) -> None:
    meter.starting("opening sources")
    assert meter.status(START_S).doing == "opening sources"
    meter.starting("")
    assert (meter.status(START_S).doing, meter.status(START_S).doing_s) == ("", 0.0)
    meter.enter(RunState.RUNNING)
    meter.enter(RunState.STOPPING)
    meter.starting("sending what is committed")
    assert meter.status(START_S).doing == "sending what is committed"
    assert [phase.doing for phase in meter.details().phases] == ["opening sources"]


def test_rates_begin_when_input_is_processed(meter: RunMeter) -> None:
    meter.begin_running(START_S + 100)
    meter.batch_done(0, at_ns(100), at_ns(101), {"a": 500}, {}, {})
    status = meter.status(START_S + 101)
    assert (status.running_at, status.events_done_per_s) == (START_S + 100, 500)


def test_damaged_files_are_in_the_status(meter: RunMeter) -> None:
    meter.progress.damaged = {"deltas/7": "it is too short"}
    assert meter.status(START_S).damaged == ("deltas/7: it is too short",)


def test_a_new_run_has_no_last_batch_and_takes_its_tasks_as_they_come(meter: RunMeter) -> None:
    meter.set_tasks(6)
    status = meter.status(START_S - 1)
    assert (status.state, status.last_batch, status.tasks, status.elapsed_s) == (
        "starting",
        -1,
        6,
        0.0,
    )


def test_reading_the_status_while_batches_report_is_safe(meter: RunMeter) -> None:
    def report() -> None:
        for batch in range(400):
            left = [(at_ms(0) - batch * 37 - n, 1) for n in range(20)]
            meter.batch_done(
                batch, at_ns(batch), at_ns(batch + 1), {"a": 1}, {}, {f"p{batch % 50}": left}
            )

    thread = threading.Thread(target=report)
    thread.start()
    while thread.is_alive():
        meter.status(START_S)
    thread.join()
    assert sum(one.count for one in meter.status(START_S).latency) == 8000
