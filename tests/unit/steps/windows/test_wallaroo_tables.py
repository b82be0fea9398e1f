"""Wallaroo's window semantics, as its own tests assert them, wherever the aligned grid permits.

Rows read ``value@event time/watermark``, in seconds.  Wallaroo's grid begins with a key's first
message, ours is the same for all keys, so the grid's offset is given, and ``begin`` is where
Wallaroo's first window starts: windows before it are ours alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.window_machine import WindowMachine
from wallaroo.dataflow.plan.model import SourceTime
from wallaroo.engine.time.partition_times import ObservedSource
from wallaroo.engine.time.watermarks import BatchTime, Watermarks, after_batch
from wallaroo.steps.windows.aggregation import Aggregation
from wallaroo.steps.windows.spec import (
    FIRE_PER_MESSAGE,
    PLACE_IN_OLDEST_WINDOW,
    CountWindowSpec,
    RangeWindowSpec,
    Window,
)

S = 1_000_000_000


class Total(Aggregation[int, list[int], tuple[int, int]]):
    def initial_accumulator(self) -> list[int]:
        return [0]

    def update(self, event: int, total: list[int], /) -> None:
        total[0] += event

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return [left[0] + right[0]]

    def output(self, key: Any, total: list[int], window: Window) -> tuple[int, int]:  # type: ignore[override]  # with the window
        return window.start, total[0]


class Collect(Aggregation[int, list[int], list[int]]):
    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: int, found: list[int], /) -> None:
        found.append(event)

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: Any, found: list[int], /) -> list[int]:
        return list(found)


def events(rows: str) -> list[tuple[int, int, int]]:
    found = []
    for row in rows.split():
        value, _, times = row.partition("@")
        time, _, watermark = times.partition("/")
        found.append((int(value), int(time) * S, int(watermark or time) * S))
    return found


def spec(range_s: int, slide_s: int = 0, delay_s: int = 0, offset_s: int = 0) -> RangeWindowSpec:
    return RangeWindowSpec(range_s * S, (slide_s or range_s) * S, delay_s * S, offset_s * S)


W5 = (
    "2@92/100 3@93/102 4@94/103 5@95/104 1@102/106 2@103/107 3@104/108 4@105/109 "
    "10@108/112 20@109/113 30@110/114 40@111/115 2@192/200"
)
W7 = W5.replace("@108/", "@111/").replace("@109/", "@112/").replace("@110/", "@113/")
W7 = W7.replace("40@111/115", "40@114/115")
W5_SHUFFLED = (
    "5@95/100 2@92/102 4@94/103 3@93/104 4@105/106 1@102/107 3@104/108 2@103/109 "
    "10@108/112 30@110/113 20@109/114 40@111/115 2@192/200"
)
W9 = (
    "2@92/100 1@102/100 2@103/100 3@104/100 4@105/100 10@108/100 20@109/100 30@110/100 "
    "40@111/100 3@93/102 4@94/103 5@95/104 0@1/106 0@1/107 0@1/108 0@1/109 0@1/112 0@1/113 "
    "0@1/114 0@1/115 2@192/200"
)
# name, windows, input, where Wallaroo's grid begins, results by the message that causes them
TABLES = [
    ("W1", spec(3), "1@111 2@112 3@114", 111, {"3@114": [3]}),
    (
        "W3",
        spec(10, delay_s=10, offset_s=1),
        "2@96/101 3@97/102 4@98/103 5@99/104 1@105/106 2@106/107 3@107/108 4@108/109 "
        "10@110/111 20@111/112 30@112/113 40@113/114 1@200/201",
        91,
        {"10@110/111": [14], "1@200/201": [20, 90]},
    ),
    ("W4", spec(10, 5, 10, 1), "1@111 2@121 3@141", 101, {"3@141": [1, 1, 2, 2]}),
    (
        "W5",
        spec(10, 2, 10),
        W5,
        90,
        {
            "10@108/112": [14, 14],
            "30@110/114": [12],
            "2@192/200": [10, 10, 40, 110, 107, 100, 100, 70],
        },
    ),
    (
        "W5 out of order",
        spec(10, 2, 10),
        W5_SHUFFLED,
        90,
        {
            "10@108/112": [14, 14],
            "20@109/114": [12],
            "2@192/200": [10, 10, 40, 110, 107, 100, 100, 70],
        },
    ),
    (
        "W6",
        spec(10, 2),
        W5,
        100,
        {
            "10@108/112": [20, 20],
            "30@110/114": [67],
            # the last four: windows before 190, which Wallaroo's grid, begun again, has not
            "2@192/200": [100, 100, 70, 2, 2, 2, 2],
        },
    ),
    (
        "W7",
        spec(10, 3, 10, 1),
        W7,
        88,
        {
            "10@111/112": [14],
            "20@112/113": [14],
            "2@192/200": [12, 10, 10, 39, 100, 100, 90],
        },
    ),
    (
        "W9",
        spec(10, 2, 10),
        W9,
        90,
        {
            "0@1/112": [14, 14],
            "0@1/114": [12],
            "2@192/200": [10, 10, 40, 110, 107, 100, 100, 70],
        },
    ),
]


def run(windows: RangeWindowSpec, rows: str, is_cut: bool, begin: int) -> dict[str, list[int]]:
    """Results of windows from ``begin`` on, by the row that causes them."""
    machine = WindowMachine(windows, Total())
    found = {}
    for row, (value, time, watermark) in zip(rows.split(), events(rows), strict=True):
        results = machine.feed("a", value, time, watermark)
        values = [each.value[1] for each in results if each.value[0] >= begin * S]
        if values:
            found[row] = values
        if is_cut:
            machine.commit()
    assert not machine.failures
    return found


@pytest.mark.parametrize("is_cut", [False, True], ids=["one batch", "a batch per message"])
@pytest.mark.parametrize(
    ("windows", "rows", "begin", "expected"),
    [pytest.param(*table[1:], id=table[0]) for table in TABLES],
)
def test_results_are_those_of_wallaroos_tables(
    windows: RangeWindowSpec, rows: str, begin: int, expected: dict[str, list[int]], is_cut: bool
) -> None:
    """Empty windows, which Wallaroo evaluates and we do on request, are left out of the tables."""
    assert run(windows, rows, is_cut, begin) == {row: out for row, out in expected.items() if out}


def test_the_end_of_a_window_is_exclusive() -> None:
    """W2."""
    machine = WindowMachine(spec(10), Collect())
    times = [100 * S, 110 * S - 1, 110 * S, 120 * S]
    found = [
        [each.value for each in machine.feed("a", value, time, time)]
        for value, time in enumerate(times, 1)
    ]
    assert found == [[], [], [[1, 2]], [[3]]]


def test_results_have_the_time_of_their_windows_last_moment() -> None:
    """W4's output times."""
    machine = WindowMachine(spec(10, 5, 10, 1), Total())
    found = [machine.feed("a", value, time, mark) for value, time, mark in events("1@111 2@121")]
    found.append(machine.feed("a", 3, 141 * S, 141 * S))
    assert [each.time for each in found[2]] == [end * S - 1 for end in (116, 121, 126, 131)]


def test_late_events_are_dropped() -> None:
    """W8: 100 is dropped, and so is the last event, which is late for its windows."""
    machine = WindowMachine(spec(10, 2, 10, 1), Total())
    rows = "1@92/100 2@93/102 10@199/200 100@100/201 1@101/220"
    found = [
        [each.value[1] for each in machine.feed("a", value, time, mark) if each.value[1]]
        for value, time, mark in events(rows)
    ]
    assert found[3] == []
    assert found[4] == [10, 10, 10, 10, 10][: len(found[4])]
    assert sum(map(len, found)) == len(found[2]) + len(found[4])


def test_stragglers_fire_when_input_ends() -> None:
    """W10: 496 empty windows before them are not ours."""
    machine = WindowMachine(spec(10, 2, 1000), Total())
    for value, time, mark in events("1@10000 3@10001 5@10002"):
        assert machine.feed("a", value, time, mark) == []
    assert [each.value[1] for each in machine.end()] == [4, 9, 9, 9, 9, 5]


@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [([(1, 5000)], [1]), ([(1, 5000), (2, 5025), (10, 5055)], [3]), ([(1, 5000), (3, 5100)], [1])],
)
def test_windows_fire_at_their_end(times_ms: list[tuple[int, int]], expected: list[int]) -> None:
    """W11; the first results have the end of [5000 ms, 5050 ms)."""
    machine = WindowMachine(RangeWindowSpec(50_000_000, 50_000_000), Total())
    found = [
        each
        for value, time in times_ms
        for each in machine.feed("a", value, time * 1_000_000, time * 1_000_000)
    ]
    found += machine.end()
    assert [each.value[1] for each in found][:1] == expected
    assert found[0].time == 5_050_000_000 - 1


def test_count_windows_fire_when_they_are_full() -> None:
    """W12."""
    machine = WindowMachine(CountWindowSpec(4), Collect())
    values = [2, 3, 4, 5, 1, 2, 3, 4, 10, 20, 30, 40]
    found = [
        [sum(each.value) for each in machine.feed("a", value, time, time)]
        for time, value in enumerate(values)
    ]
    assert [sums for sums in found if sums] == [[14], [10], [100]]
    assert all(found[place] for place in (3, 7, 11))


def test_a_count_window_fires_alone_after_its_timeout() -> None:
    """W12's timer, which there is where it is asked for."""
    machine = WindowMachine(CountWindowSpec(4, timeout_ns=5 * S), Collect())
    assert machine.feed("a", 1, 10 * S, 10 * S) == []
    machine.commit()
    assert machine.advance(15 * S - 1) == []
    machine.commit()
    assert [each.value for each in machine.advance(15 * S)] == [[1]]
    assert [each.value for each in machine.end()] == []


def test_zero_is_an_event_time() -> None:
    """W13."""
    machine = WindowMachine(RangeWindowSpec(1, 1), Total())
    assert machine.feed("a", 1, 0, 0) == []
    assert [each.value for each in machine.feed("a", 2, 1, 1)] == [(0, 1)]


@pytest.mark.parametrize(
    ("policy", "rows", "expected"),
    [
        ("drop", "1@100/100 2@50/100 3@101/111", [[], [], [[1, 3]]]),
        (FIRE_PER_MESSAGE, "1@100/100 2@50/100 3@101/111", [[], [[2]], [[1, 3]]]),
        (FIRE_PER_MESSAGE, "1@100/100 2@101/111 3@50/111", [[], [[1, 2]], [[3]]]),
        (PLACE_IN_OLDEST_WINDOW, "1@100/100 2@50/100 3@101/111", [[], [], [[1, 2, 3]]]),
        (
            PLACE_IN_OLDEST_WINDOW,
            "1@100/100 2@111/100 3@50/100 4@112/121",
            [[], [], [], [[1, 3], [2, 4]]],
        ),
        (PLACE_IN_OLDEST_WINDOW, "1@100/100 2@101/111 3@50/111", [[], [[1, 2]], []]),
    ],
)
@pytest.mark.parametrize("is_cut", [False, True], ids=["one batch", "a batch per message"])
def test_late_data_policies(
    policy: str, rows: str, expected: list[list[list[int]]], is_cut: bool
) -> None:
    """W14."""
    machine = WindowMachine(replace(spec(10), policy=policy), Collect())
    found = []
    for value, time, watermark in events(rows):
        found.append([each.value for each in machine.feed("a", value, time, watermark)])
        if is_cut:
            machine.commit()
    assert found == expected


def test_a_late_event_that_fires_alone_has_its_own_time() -> None:
    """W14."""
    machine = WindowMachine(replace(spec(10), policy=FIRE_PER_MESSAGE), Collect())
    for value, time, watermark in events("1@100/100 2@101/111"):
        machine.feed("a", value, time, watermark)
    assert [each.time for each in machine.feed("a", 3, 50 * S, 111 * S)] == [50 * S]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("drop", [2, 3, 4, 5]), (FIRE_PER_MESSAGE, [1, 2, 3, 4, 5])],
)
def test_the_policies_end_to_end(policy: str, expected: list[int]) -> None:
    """W15: event times in nanoseconds, windows of one second."""
    machine = WindowMachine(RangeWindowSpec(S, S, policy=policy), Collect())
    input_ = [(2, S), (3, S + 1_000_000), (4, S + 2_000_000), (1, 50), (5, S + 3_000_000)]
    found = []
    for value, time in input_:
        found += machine.feed("a", value, time, max(time, machine.watermark))
    found += machine.end()
    assert [value for each in found for value in each.value] == expected


def test_windows_can_be_stacked() -> None:
    """W16's input; where the second windows begin differs, since ours are aligned."""
    first = WindowMachine(RangeWindowSpec(50_000_000, 50_000_000), Total())
    second = WindowMachine(RangeWindowSpec(S, S), Total())
    found = []
    for time_ms, value in [(5000, 1), (5100, 3), (5200, 5), (5300, 1), (6050, 11), (6051, 13)]:
        time = time_ms * 1_000_000
        for result in first.feed("HELO", value, time, time):
            second.put("HELO", result.value[1], result.time)
        found += second.advance(time)
    assert [(each.value, each.time) for each in found] == [((5 * S, 10), 6 * S - 1)]
    for result in first.end():
        second.put("HELO", result.value[1], result.time)
    assert [each.value for each in second.end()] == [(6 * S, 24)]


def after(before: Watermarks, now_s: int, idle_after_s: int, **observed: int) -> Watermarks:
    """The watermarks after a batch at a reading of the clock; each partition says one watermark."""
    sources = (("in", SourceTime(0, idle_after_s * S, False)),)
    seen = (
        {0: ObservedSource({name: mark * S for name, mark in observed.items()})} if observed else {}
    )
    time = BatchTime(before, now_s * S)
    return after_batch(time, sources, {0: seen} if seen else {})


def test_the_watermark_is_the_least_of_what_is_upstream_and_not_silent() -> None:
    """W17: upstream workers are partitions here, its threshold of 100 s is ``idle_after``."""
    marks = Watermarks()
    found = []
    for now_s, observed in (
        (210, {"u1": 10}),
        (220, {"u3": 5}),
        (230, {"u2": 15}),
        (235, {"u3": 16}),
        (240, {"u1": 20}),
        (331, {}),
        (336, {"u2": 25}),
        (340, {"u3": 21}),
        (341, {}),
        (343, {}),
    ):
        marks = after(marks, now_s, 100, **observed)
        found.append(marks.watermark_ns // S)
    assert found == [10, 10, 10, 10, 15, 16, 20, 21, 21, 21]


def test_when_all_upstream_is_silent_time_runs_on_with_the_clock() -> None:
    """W17's timeout; there it is the greatest number at once, here nothing is late for good."""
    marks = after(Watermarks(), 2, 10, u1=1)
    assert marks.watermark_ns == S
    assert after(marks, 11, 10).watermark_ns == S
    assert after(marks, 14, 10).watermark_ns == 3 * S  # silent for 2 s since it is idle


@pytest.mark.parametrize("ahead_ms", [0, 1999, 2000, 3000, 8999, 15_000, 99_999, 910_000])
def test_an_event_however_far_ahead_is_one_pane(ahead_ms: int) -> None:
    """W18: Wallaroo's array grew by up to 456 panes; a pane without events is nothing here."""
    machine = WindowMachine(spec(10, 2, 1), Total())
    machine.put("a", 1, 100 * S)
    machine.commit()
    before = len(machine.entries.packed["a"])
    machine.put("a", 2, 112 * S + ahead_ms * 1_000_000)
    machine.commit()
    assert len(machine.entries.packed["a"]) == before + 1
    sums = [each.value[1] for each in machine.end()]
    assert sums.count(1) == sums.count(2) == 5  # each in the five windows of its pane


DETECTED: dict[str, tuple[Any, int]] = {  # in how many windows a value is at most
    "tumbling": (RangeWindowSpec(50, 50), 1),
    "sliding": (RangeWindowSpec(50, 25), 2),
    "counting": (CountWindowSpec(50), 1),
}


@pytest.mark.parametrize("kind", DETECTED)
@pytest.mark.parametrize("pace", [1, 3, 7])
def test_the_window_detector_finds_nothing(kind: str, pace: int) -> None:
    """W19: values 1 to 100 of two keys, in batches."""
    spec_, most = DETECTED[kind]
    machine = WindowMachine(spec_, Collect())
    results: dict[str, list[list[int]]] = {"a": [], "b": []}

    def take(found: list[Any]) -> None:
        for each in found:
            results[each.key].append(each.value)

    for value in range(1, 101):
        for key in "ab":
            machine.put(key, value, value * pace)
        take(machine.advance(value * pace))
        machine.commit()
    take(machine.end())
    for windows in results.values():
        assert all(window == sorted(window) for window in windows)
        values = [value for window in windows for value in window]
        assert all(value <= before + 1 for before, value in pairwise(values))  # on by one, or back
        assert set().union(*windows) == set(range(1, 101))  # no gaps
        for pair in pairwise(windows):
            together = [value for window in pair for value in window]
            assert max(map(together.count, together)) <= most
