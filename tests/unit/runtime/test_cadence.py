"""How rarely a run commits within its latency target, with a clock of the test's own."""

from __future__ import annotations

import pytest

from wallaroo.runtime.batch.trigger import Cadence


def committed(
    target_s: float, arrivals: list[float], took_s: float, events_max: int = 1_000
) -> tuple[int, list[float]]:
    """Run batches over events that arrive at given times; return their number, and what each event
    waited until the end of its batch.
    """
    cadence = Cadence(target_s)
    now, batches, waited = 0.0, 0, []
    while arrivals:
        now = max(now + cadence.pause_s(now), arrivals[0])
        taken = [at for at in arrivals if at <= now][:events_max]
        arrivals = arrivals[len(taken) :]
        cadence.begins(now, len(taken), events_max)
        now += took_s
        cadence.ends(now)
        batches += 1
        waited += [now - at for at in taken]
    return batches, waited


def at_rate(events_per_s: float, seconds: float = 10.0) -> list[float]:
    """Return the times at which events arrive."""
    return [number / events_per_s for number in range(int(events_per_s * seconds))]


@pytest.mark.parametrize("events_per_s", [100, 5_000])
@pytest.mark.parametrize("target_s", [0.02, 0.05, 0.2])
def test_commits_are_as_rare_as_the_target_allows(target_s: float, events_per_s: float) -> None:
    """No event waits for longer than the target, and a commit comes about every target."""
    batches, waited = committed(target_s, at_rate(events_per_s), took_s=0.007, events_max=10_000)
    assert max(waited) < target_s + 0.001
    between_s = target_s - 1.5 * 0.007
    assert 10 / (between_s + 1 / events_per_s) - 2 < batches < 10 / between_s + 2


def test_a_batch_that_takes_half_as_long_again_keeps_the_target() -> None:
    cadence = Cadence(0.05)
    cadence.begins(0.0, 1, 1_000)
    cadence.ends(0.014)
    begins = 0.014 + cadence.pause_s(0.014)
    assert begins + 1.5 * 0.014 == pytest.approx(0.05)


def test_without_a_target_batches_follow_each_other() -> None:
    """What ran before there were targets: an event waits for two batches at most."""
    batches, _ = committed(0.0, at_rate(5_000), took_s=0.007)
    assert batches > 10 / 0.0075


def test_a_target_below_a_batch_is_no_reason_to_wait() -> None:
    """At 5 ms and batches of 7 ms, all is as without a target."""
    arrivals = at_rate(5_000)
    assert committed(0.005, arrivals, took_s=0.007) == committed(0.0, arrivals, took_s=0.007)


def test_a_lone_event_begins_a_batch_at_once() -> None:
    """An event a second: the target is long over when the next one comes."""
    _, waited = committed(0.2, at_rate(1), took_s=0.007)
    assert max(waited) < 0.008


def test_a_full_batch_is_followed_at_once() -> None:
    """A backlog of ten batches does not wait ten times."""
    _, waited = committed(5.0, [0.0] * 1_000, took_s=0.01, events_max=100)
    assert max(waited) < 0.11


def test_one_slow_batch_does_not_change_the_cadence() -> None:
    """The median counts: a sync that took long says nothing of the next one."""
    cadence = Cadence(0.05)
    for began, took_s in ((1.0, 0.01), (2.0, 0.01), (3.0, 0.6), (4.0, 0.01)):
        cadence.begins(began, 1, 1_000)
        cadence.ends(began + took_s)
    assert cadence.pause_s(4.01) == pytest.approx(0.025)


def test_the_end_of_a_wait_that_began_no_batch_says_nothing() -> None:
    """A host that asks twice (its tasks were replaced) has not run a batch in between."""
    cadence = Cadence(0.05)
    cadence.ends(1.0)
    cadence.begins(2.0, 1, 1_000)
    cadence.ends(2.01)
    cadence.ends(7.0)
    assert cadence.pause_s(2.02) == pytest.approx(0.015)
