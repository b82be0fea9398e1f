"""How much a batch takes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.runtime.batch.pacing import Pacer


def settled(
    fixed_s: float, per_event_s: float, target_s: float, chunk: int, seed: int = 7
) -> list[tuple[int, float]]:
    """Let a pacer face an endless backlog of chunks; return the last 20 of 80 batches."""
    noise = random.Random(seed)
    pacer, took = Pacer(target_s), []
    for _ in range(80):
        events = max(chunk, pacer.events_max // chunk * chunk)
        seconds = (fixed_s + per_event_s * events) * noise.uniform(0.9, 1.1)
        took.append((events, seconds))
        pacer.batch_took(events, seconds, per_event_s * events, 1)
    return took[-20:]


@pytest.mark.parametrize(("per_event_s", "chunk"), [(1.3e-6, 1_100), (4e-5, 460), (1e-3, 10)])
def test_batches_settle_about_the_target_whatever_an_event_costs(
    per_event_s: float, chunk: int
) -> None:
    last = settled(0.15, per_event_s, 1.0, chunk)
    assert 0.5 < sum(seconds for _, seconds in last) / len(last) < 1.5


def through(log: Callable[[int, int], int], end: int) -> list[tuple[int, int]]:
    """Read a log to its end; return places and events of each batch, of 30 ms and 5 us an event."""
    pacer = Pacer(1.0)
    at = 0
    batches = []
    while at < end:
        places = min(pacer.places_max, end - at)
        events = log(at, at + places)
        at += places
        busy_s = 5e-6 * events
        pacer.passed(places, events)
        pacer.batch_took(events, 0.03 + busy_s, busy_s, 1)
        batches.append((places, events))
    return batches


def test_a_gap_of_millions_of_places_takes_a_few_batches() -> None:
    batches = through(lambda low, high: (low == 0) + (high == 30_000_000), 30_000_000)
    assert len(batches) < 20


def test_places_of_which_few_have_events_are_read_by_the_thousand() -> None:
    batches = through(lambda low, high: high // 1_000 - low // 1_000, 30_000_000)
    assert len(batches) < 30


def test_what_follows_a_gap_may_be_dense() -> None:
    """Then the first batch is large, but not of any size, and those after it are as usual."""
    begin = 30_000_000
    batches = through(lambda low, high: max(0, high - max(low, begin)), 3 * begin)
    events = [each for _, each in batches if each]
    assert events[0] <= DEFAULT.pace.events_max
    assert max(events[2:]) < 500_000


def test_a_slow_machine_does_not_creep_through_a_gap() -> None:
    """Batches of one event that take long make the bound small, not the places."""
    pacer = Pacer(0.05)
    for _ in range(20):
        places = pacer.places_max
        pacer.passed(places, 1)
        pacer.batch_took(1, 0.2, 0.15, 2)
    assert pacer.events_max < DEFAULT.pace.events_first
    assert pacer.places_max > 1_000_000


def test_a_target_below_the_fixed_cost_does_not_starve_the_batches() -> None:
    """Smaller batches would not be quicker, only the backlog would grow."""
    last = settled(0.8, 1.3e-6, 0.5, 1_100)
    assert min(events for events, _ in last) > 10 * DEFAULT.pace.events_min


@pytest.mark.parametrize("waiting_s", [0.05, 0.3, 1.0])
def test_a_task_that_waits_before_its_first_event_does_not_starve_the_batches(
    waiting_s: float,
) -> None:
    """A broker that was held for seconds and is slow afterwards: batches shrink and grow again."""
    noise = random.Random(1)
    pacer = Pacer(0.5)
    for number in range(300):
        events = pacer.events_max
        held_s = 4.0 if number in (20, 25) else 0.0
        busy_s = (waiting_s + 1e-4 * events) * noise.uniform(0.8, 1.2) + held_s
        pacer.batch_took(events, 0.4 + busy_s, busy_s, 2)
    assert pacer.events_max > DEFAULT.pace.events_first


def test_events_that_are_slow_are_left_slow() -> None:
    """Ten milliseconds an event: what is tried now and then takes twice the time, not more."""
    noise = random.Random(1)
    pacer = Pacer(1.0)
    took = []
    for _ in range(200):
        busy_s = 0.01 * pacer.events_max * noise.uniform(0.9, 1.1)
        took.append(0.2 + busy_s)
        pacer.batch_took(pacer.events_max, 0.2 + busy_s, busy_s, 1)
    settled_s = took[100:]
    assert max(settled_s) < 3.0
    assert sum(settled_s) / len(settled_s) < 1.3


def test_batches_that_end_at_coarse_chunks_count_as_full() -> None:
    pacer = Pacer(1.0)
    pacer.events_max = 1_700
    # three chunks of 460: the fourth did not fit
    assert pacer.batch_took(1_380, 0.2, 0.05, 1) > 1_700


def test_a_batch_that_took_all_there_was_says_nothing() -> None:
    pacer = Pacer(1.0)
    assert pacer.batch_took(10, 0.15, 0.01, 1) == DEFAULT.pace.events_first


def test_an_empty_batch_says_nothing_however_long_it_took() -> None:
    assert Pacer(1.0).batch_took(0, 5.0, 4.9, 1) == DEFAULT.pace.events_first


def test_quick_code_gets_a_task_per_thousands_of_events() -> None:
    pacer = Pacer(1.0)
    pacer.batch_took(100_000, 0.5, 0.3, tasks=1)
    assert [pacer.tasks(events, 8) for events in (0, 1, 10_000, 20_000, 1_000_000)] == [
        1,
        1,
        1,
        2,
        8,
    ]


def test_slow_code_gets_all_tasks_for_few_events() -> None:
    """A millisecond an event: two hundred of them are worth every core."""
    pacer = Pacer(1.0)
    for _ in range(5):
        pacer.batch_took(1_000, 1.1, 1.0, tasks=1)
    assert pacer.tasks(200, 4) == 4


def test_a_slow_batch_of_hardly_any_events_does_not_make_events_look_slow() -> None:
    pacer = Pacer(1.0)
    pacer.batch_took(100_000, 0.3, 0.15, tasks=2)
    pacer.batch_took(3, 0.5, 0.01, tasks=1)
    assert pacer.tasks(5_000, 8) == 1


def test_batches_that_waited_for_a_lost_host_do_not_make_the_next_ones_tiny() -> None:
    pacer = Pacer(1.0)
    for _ in range(10):
        pacer.batch_took(
            pacer.events_max, 0.1 + 2e-6 * pacer.events_max, 2e-6 * pacer.events_max, 2
        )
    before = pacer.events_max
    for _ in range(3):
        pacer.batch_took(2_000, 50.0, 0.01, 2)
    assert pacer.events_max > before / 2


def test_the_first_batch_uses_all_cores_as_nothing_is_known_of_its_events() -> None:
    assert Pacer(1.0).tasks(1_000, 4) == 4


def test_slow_events_are_cut_to_the_target_after_the_first_batch() -> None:
    """10 ms each, two cores, as many as there could be."""
    pacer = Pacer(1.0)
    took = []
    for _ in range(6):
        events = pacer.events_max
        tasks = pacer.tasks(events, 2)
        busy_s = events * 0.01 / tasks
        took.append(0.15 + busy_s)
        pacer.batch_took(events, 0.15 + busy_s, busy_s, tasks)
    assert took[0] < 6
    assert all(seconds < 1.2 for seconds in took[1:])
    assert pacer.tasks(pacer.events_max, 2) == 2


def test_quick_events_reach_large_batches_within_a_few() -> None:
    pacer = Pacer(1.0)
    for _ in range(6):
        busy_s = pacer.events_max * 1.5e-6
        pacer.batch_took(pacer.events_max, 0.15 + busy_s, busy_s, 2)
    assert pacer.events_max > 100_000


def test_events_that_become_slow_are_cut_at_once() -> None:
    """Not by a quarter from one batch of minutes to the next."""
    pacer = Pacer(1.0)
    for _ in range(10):
        pacer.batch_took(pacer.events_max, 0.2, pacer.events_max * 1e-6, 2)
    events = pacer.events_max
    pacer.batch_took(events, events * 1e-3, events * 1e-3, 2)
    assert pacer.events_max * 1e-3 < 2


def test_a_batch_that_one_task_can_do_before_a_shuffle_would_be_done_is_not_divided() -> None:
    divided, alone = Pacer(1.0), Pacer(1.0, has_shuffle=True)
    for pacer in (divided, alone):
        pacer.batch_took(10_000, 0.3, 0.1, 1)  # 10 us an event

    assert (divided.tasks(10_000, 8), alone.tasks(10_000, 8)) == (3, 1)
    assert divided.tasks(50_000, 8) == alone.tasks(50_000, 8) == 8


@pytest.mark.parametrize(
    ("target_s", "rest_s", "task_s", "event_s"),
    [(1.0, 0.8, 1.0, 1.6e-5), (1.0, 0.5, 4.0, 3.2e-5), (0.05, 0.05, 0.06, 8e-6)],
)
def test_a_batch_of_a_backlog_grows_until_its_fixed_time_is_a_third(
    target_s: float, rest_s: float, task_s: float, event_s: float
) -> None:
    """A machine that others use: all fixed times are beyond the target, and nothing is exact."""
    noise = random.Random(1)
    pacer = Pacer(target_s)
    events = 0
    seconds = 0.0
    for number in range(200):
        busy_s = (task_s + event_s * pacer.events_max) * noise.uniform(0.6, 1.4)
        took_s = rest_s * noise.uniform(0.6, 1.4) + busy_s
        if number >= 100:
            events += pacer.events_max
            seconds += took_s
        pacer.batch_took(pacer.events_max, took_s, busy_s, 2)
    assert events / seconds > 0.5 / event_s


def test_batches_that_have_grown_are_not_multiplied_for_a_backlog() -> None:
    """What a deep backlog may take is a time, so a bound of more seconds has a smaller factor."""
    quick, slow = Pacer(0.05, growth=20.0), Pacer(0.05, growth=20.0)
    for _ in range(12):
        for pacer, fixed_s in ((quick, 0.005), (slow, 0.4)):
            busy_s = pacer.events_max * 1e-6
            pacer.batch_took(pacer.events_max, fixed_s + busy_s, busy_s, 2)
    assert quick.places_most > 15 * quick.events_max
    assert slow.places_most < 2 * slow.events_max
