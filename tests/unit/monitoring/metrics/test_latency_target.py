"""Whether a run keeps its latency target: what the status says of the newest ten seconds."""

from __future__ import annotations

from wallaroo.monitoring.metrics.latency import NEWEST
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import RunState

START_S = 1_000.0


def second(meter: RunMeter, number: int, latency_ms: float) -> bool:
    """Have ten results leave in a second; return whether the run is late then."""
    now_s = START_S + number
    receipts = {"Counting": [(int(now_s * 1e3 - latency_ms), 10)]}
    meter.batch_done(number, 0, int(now_s * 1e9), {}, {}, receipts)
    meter.observe((), (), now_s)
    return meter.status(now_s).is_late


def test_a_run_is_late_while_results_take_longer_than_twice_the_target() -> None:
    """It is so once results of three seconds are late, and no longer than ten seconds after."""
    meter = RunMeter("a", START_S, latency_target_ms=50.0)
    meter.enter(RunState.RUNNING)
    in_time = [second(meter, number, 60.0) for number in range(1, 4)]
    late = [second(meter, number, 300.0) for number in range(4, 8)]
    after = [second(meter, number, 60.0) for number in range(8, 8 + NEWEST + 1)]

    assert not any(in_time)
    assert late == [False, False, True, True]
    assert after[0]
    assert not after[-1]


def test_two_slow_seconds_are_not_late() -> None:
    """One collection of garbage in ten seconds is no target that is not kept."""
    meter = RunMeter("a", START_S, latency_target_ms=50.0)
    meter.enter(RunState.RUNNING)
    slow = {3, 7, 16}
    assert not any(
        second(meter, number, 900.0 if number in slow else 30.0) for number in range(1, 25)
    )


def test_a_run_without_a_target_is_never_late() -> None:
    """The micro-batch host has none by default."""
    meter = RunMeter("a", START_S)
    meter.enter(RunState.RUNNING)
    assert not second(meter, 1, 5_000.0)
