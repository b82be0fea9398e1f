"""No result depends on how input was cut into batches, or in which order partitions were read."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.window_machine import WindowMachine
from wallaroo.steps.windows.aggregation import Aggregation
from wallaroo.steps.windows.panes import Grid, are_stored_by_pane
from wallaroo.steps.windows.spec import (
    FINAL_WATERMARK,
    FIRE_PER_MESSAGE,
    NO_WATERMARK,
    PLACE_IN_OLDEST_WINDOW,
    RANGE_POLICIES,
    CountWindowSpec,
    Firing,
    RangeWindowSpec,
    SessionWindowSpec,
    Window,
    WindowSpec,
)

Event = tuple[str, int, int, int]  # key, number, time, its partition's watermark before it


class Seen(Aggregation[int, list[int], Any]):
    """The numbers of a window's events, sorted: partitions may come in any order."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: int, found: list[int], /) -> None:
        found.append(event)

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return left + right

    def output(self, key: Any, found: list[int], window: Window) -> Any:  # type: ignore[override]  # with the window
        return window, tuple(sorted(found))


def partition(times: list[int], numbers: int, keys: str) -> list[Event]:
    """A partition's events, with a watermark of the newest time before each."""
    watermark = NO_WATERMARK
    found = []
    for at, time in enumerate(times):
        found.append((keys[(at * 7 + time) % len(keys)], numbers + at, time, watermark))
        watermark = max(watermark, time)
    return found


def run(
    spec: WindowSpec, parts: list[list[Event]], cuts: list[int], *, by_pane: bool = False
) -> list[Any]:
    """Feed the partitions, some events of each to a batch, as ``cuts`` says."""
    machine = WindowMachine(spec, Seen(), by_pane=by_pane)
    at = [0] * len(parts)
    results = []
    marks = [NO_WATERMARK] * len(parts)
    for cut in cuts:
        index = cut % len(parts)
        for key, number, time, before in parts[index][at[index] : at[index] + cut // 3]:
            machine.put(key, number, time, before)
            marks[index] = max(marks[index], time)
        at[index] += cut // 3
        is_open = [at[one] < len(part) for one, part in enumerate(parts)]
        open_ = [mark for mark, open_ in zip(marks, is_open, strict=True) if open_]
        results += machine.advance(max(min(open_, default=NO_WATERMARK), machine.watermark))
        machine.commit()
    for index, part in enumerate(parts):
        for key, number, time, before in part[at[index] :]:
            machine.put(key, number, time, before)
    results += machine.end(max((each[2] for part in parts for each in part), default=0))
    machine.commit()
    assert not machine.failures
    assert not machine.entries.packed, "nothing is left when input has ended"
    assert machine.panes is None or not machine.panes.packed
    return sorted(((each.key, each.value, each.time) for each in results), key=repr)


times = st.lists(st.integers(0, 60), max_size=15)
cut_lists = st.lists(st.integers(3, 20), max_size=12)
shapes: dict[str, Any] = {
    "range_ns": st.integers(4, 15),
    "slide_ns": st.integers(1, 4),
    "delay_ns": st.integers(0, 10),
    "offset_ns": st.integers(0, 5),
    "policy": st.sampled_from(sorted({*RANGE_POLICIES} - {"dead-letter"})),
}
specs = st.builds(
    RangeWindowSpec,
    **shapes,
    early_ns=st.sampled_from([None, 3, 7]),
    lateness_ns=st.sampled_from([0, 8, 20]),
    corrected_ns=st.sampled_from([None, 5]),
    empty_limit=st.sampled_from([0, 3]),
)


@settings(max_examples=60, deadline=None)
@given(specs, times, times, cut_lists, cut_lists)
def test_range_windows_are_the_same_however_input_is_cut(
    spec: RangeWindowSpec,
    left: list[int],
    right: list[int],
    cuts: list[int],
    others: list[int],
) -> None:
    parts = [partition(left, 0, "ab"), partition(right, 1000, "bc")]
    assert run(spec, parts, cuts) == run(spec, parts, others)


pane_specs = st.one_of(
    st.builds(RangeWindowSpec, **shapes),
    st.builds(
        lambda span, early: RangeWindowSpec(span, span, early_ns=early),
        st.integers(2, 20),
        st.sampled_from([None, 1, 3, 7]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(pane_specs, times, times, cut_lists)
def test_windows_stored_by_pane_have_the_results_of_those_stored_by_key(
    spec: RangeWindowSpec, left: list[int], right: list[int], cuts: list[int]
) -> None:
    assert are_stored_by_pane(spec)
    parts = [partition(left, 0, "ab"), partition(right, 1000, "bc")]
    assert run(spec, parts, cuts, by_pane=True) == run(spec, parts, cuts)


def test_a_pane_that_is_part_of_later_windows_is_not_written_again() -> None:
    machine = WindowMachine(RangeWindowSpec(10, 5), Seen(), by_pane=True)
    assert machine.panes is not None
    machine.put("a", 1, 7)
    machine.advance(8)
    machine.commit()
    assert (machine.panes.written, len(machine.panes.packed)) == (1, 1)

    assert [result.value[1] for result in machine.advance(11)] == [(1,)]
    machine.commit()
    assert (machine.panes.written, len(machine.panes.packed)) == (1, 1)

    assert [result.value[1] for result in machine.advance(15)] == [(1,)]
    machine.commit()
    assert (machine.panes.written, len(machine.panes.packed)) == (2, 0)  # it is removed


@settings(max_examples=60, deadline=None)
@given(pane_specs, times, cut_lists)
def test_the_first_due_pane_is_known_after_each_batch(
    spec: RangeWindowSpec, only: list[int], cuts: list[int]
) -> None:
    """Compare with the least time at which anything that is stored has something to do."""
    machine = WindowMachine(spec, Seen(), by_pane=True)
    rows = WindowMachine(spec, Seen())
    part = partition(only, 0, "abcdefgh")
    at = 0
    for cut in cuts:
        for each in (machine, rows):
            for key, number, time, before in part[at : at + cut // 3]:
                each.put(key, number, time, before)
            mark = max([time for _, _, time, _ in part[: at + cut // 3]], default=NO_WATERMARK)
            each.advance(mark)
            each.commit()
        at += cut // 3
        assert machine.panes is not None
        assert machine.panes.store.earliest_ns == rows.entries.earliest_ns


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 6), times, times, cut_lists, cut_lists)
def test_sessions_are_the_same_however_input_is_cut(
    gap: int, delay: int, left: list[int], right: list[int], cuts: list[int], others: list[int]
) -> None:
    parts = [partition(left, 0, "ab"), partition(right, 1000, "bc")]
    spec = SessionWindowSpec(gap, delay, FIRE_PER_MESSAGE)
    assert run(spec, parts, cuts) == run(spec, parts, others)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.sampled_from([None, 4]), times, cut_lists, cut_lists)
def test_count_windows_are_the_same_however_a_partition_is_cut(
    count: int, timeout: int | None, only: list[int], cuts: list[int], others: list[int]
) -> None:
    parts = [partition(only, 0, "ab")]
    spec = CountWindowSpec(count, timeout)
    assert run(spec, parts, cuts) == run(spec, parts, others)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.sampled_from([None, 1, 4, 9]), times, cut_lists)
def test_a_count_window_has_the_next_events_of_its_key_until_its_timeout(
    count: int, timeout: int | None, only: list[int], cuts: list[int]
) -> None:
    """An oracle with a list of events for each window; no result is behind the watermark."""
    part = partition(only, 0, "ab")
    reached = max(only, default=0)
    expected = []
    for key in "ab":
        window: list[Event] = []
        for event in [each for each in part if each[0] == key]:
            _, _, time, before = event
            if window and timeout is not None and max(time, before) >= end_of(window, timeout):
                expected.append((key, seen(window), end_of(window, timeout)))
                window = []
            window.append(event)
            if len(window) == count:
                expected.append((key, seen(window), max(before, *(each[2] for each in window))))
                window = []
        if window and timeout is not None:
            expected.append((key, seen(window), end_of(window, timeout)))
        elif window:
            expected.append((key, seen(window), reached))
    assert run(CountWindowSpec(count, timeout), [part], cuts) == sorted(expected, key=repr)


def end_of(window: list[Event], timeout: int) -> int:
    """The time at which a count window ends: a late event opens it when it comes."""
    _, _, time, before = window[0]
    return max(time, before) + timeout


def seen(window: list[Event]) -> tuple[Window, tuple[int, ...]]:
    """The result of ``Seen``."""
    times = [time for _, _, time, _ in window]
    return Window(min(times), max(times) + 1), tuple(number for _, number, _, _ in window)


@settings(max_examples=40, deadline=None)
@given(specs, times)
def test_each_window_holds_the_events_that_came_before_it_was_due(
    spec: RangeWindowSpec, only: list[int]
) -> None:
    """An oracle that looks at every window and every event."""
    part = partition(only, 0, "ab")
    grid = Grid.of(spec)
    expected = set()
    for key in "ab":
        for window in range(-20, 70):
            numbers = tuple(
                number
                for own, number, time, before in part
                if own == key and window in taken_by(grid, spec.policy, time, before, spec)
            )
            if numbers:
                bounds = Window(grid.start(window), grid.end(window))
                expected.add((key, (bounds, numbers), bounds.end - 1))
    found = run(spec, [part], [20])
    final = {each for each in found if each[1][0].firing is Firing.FINAL and each[1][1]}
    assert final == expected


def taken_by(grid: Grid, policy: str, time: int, before: int, spec: RangeWindowSpec) -> set[int]:
    """The windows whose first result holds an event."""
    own = [k for k in range(-20, 70) if grid.start(k) <= time < grid.end(k)]
    open_ = {k for k in own if grid.due(k) > before}
    if open_ or policy != PLACE_IN_OLDEST_WINDOW:
        return open_
    if any(grid.due(k) + spec.lateness_ns > before for k in own):
        return set()  # corrected instead
    return {min(k for k in range(-20, 70) if grid.due(k) > before)}


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), times)
def test_sessions_are_runs_of_events_less_than_a_gap_apart(gap: int, only: list[int]) -> None:
    part = partition(only, 0, "a")
    kept = sorted((time, number) for _, number, time, before in part if time >= before)
    runs: list[list[tuple[int, int]]] = []
    for time, number in kept:
        if runs and time < runs[-1][-1][0] + gap:
            runs[-1].append((time, number))
        else:
            runs.append([(time, number)])
    expected = {
        (Window(each[0][0], each[-1][0] + gap), tuple(sorted(number for _, number in each)))
        for each in runs
    }
    assert {value for _, value, _ in run(SessionWindowSpec(gap), [part], [])} == expected


def test_an_event_behind_what_has_fired_is_late_whatever_its_watermark() -> None:
    """No step emits one; a fault of a step must not lose it without a word."""
    for slide in (5, 10):
        machine = WindowMachine(RangeWindowSpec(10, slide, policy=FIRE_PER_MESSAGE), Seen())
        machine.advance(50)
        machine.commit()
        machine.put("a", 1, 22, before=20)
        assert [each.value[1] for each in machine.take()] == [(1,)]


def test_a_key_with_many_panes_rewrites_the_one_that_is_touched() -> None:
    machine = WindowMachine(RangeWindowSpec(1000, 1), Seen())
    for time in range(1000):
        machine.put("a", time, time, NO_WATERMARK)
    machine.commit()
    machine.entries.puts.clear()
    machine.put("a", 1, 500, NO_WATERMARK)
    machine.commit()
    assert len(machine.entries.puts) == 1


def test_the_end_of_time_is_no_window() -> None:
    machine = WindowMachine(RangeWindowSpec(10, 5), Seen())
    machine.put("a", 1, 3)
    assert len(machine.advance(FINAL_WATERMARK)) == 2
