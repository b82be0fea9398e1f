"""Applications with windows and joins, and what they must give by one loop over all events.

Lines are ``key second number``; no event is late.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.sessions import SECOND, Click, key_of, parse, time_of
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import sink, source
from wallaroo.aggregations import Count, MaxBy
from wallaroo.api.application import Application

LATE_S = 4  # how far out of order lines are
RANGE_S, SLIDE_S = 6, 3
WITHIN_S = 1
UNTIL_S = 5


class Numbers(wallaroo.Aggregation[Click, list[int], str]):
    """The window detector: all numbers of a window, in order."""

    def initial_accumulator(self) -> list[int]:
        return []

    def update(self, event: Click, numbers: list[int], /) -> None:
        numbers.append(event.number)

    def combine(self, left: list[int], right: list[int], /) -> list[int]:
        return sorted(left + right)

    def output(self, key: str, numbers: list[int], window: wallaroo.Window) -> str:
        return f"{key} {window.start // SECOND} {sorted(numbers)}"


def _clicks(inputs: Path, name: str = "in") -> wallaroo.KeyedPipeline[str, Click]:
    clicks = source(inputs, name).to(parse)
    return clicks.with_event_time(time_of, allow_before_1980=True, delay=LATE_S * SECOND).key_by(
        key_of
    )


def sliding(inputs: Path, outputs: Path) -> Application:
    windows = wallaroo.range_windows(RANGE_S * SECOND).with_slide(SLIDE_S * SECOND)
    return build("sliding", _clicks(inputs).to(windows.over(Numbers)).to_sink(sink(outputs)))


def in_sliding(lines: list[str]) -> list[str]:
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for click in map(parse.function, lines):
        last = click.at_s // SLIDE_S * SLIDE_S
        for start in range(last - RANGE_S + SLIDE_S, last + 1, SLIDE_S):
            found[start, click.key].append(click.number)
    return [f"{key} {start} {sorted(found[start, key])}" for start, key in sorted(found)]


def bounded(inputs: Path, outputs: Path) -> Application:
    """Counts with their keys and windows, which a second shuffle carries."""
    windows = wallaroo.range_windows(RANGE_S * SECOND).with_slide(SLIDE_S * SECOND)
    counts = _clicks(inputs).to(windows.over(Count().where(is_even), with_window=True))
    texts = counts.key_by(lambda counted: counted.window.start).map(
        lambda c: f"{c.key} {c.value} {c.window.start_time:%S} {c.window.end_time:%S}"
    )
    return build("bounded", texts.to_sink(sink(outputs)))


def is_even(click: Click) -> bool:
    return click.number % 2 == 0


def in_bounded(lines: list[str]) -> list[str]:
    found = []
    for text in in_sliding(lines):
        key, start, numbers = text.split(" ", 2)
        even = sum(number % 2 == 0 for number in json.loads(numbers))
        end = (int(start) + RANGE_S) % 60
        found.append(f"{key} {even} {int(start) % 60:02} {end:02}")
    return found


def numbers_of(left: Click | None, right: Click | None) -> str:
    key = (left or right).key  # type: ignore[union-attr]  # one of them is there
    return f"{key} {left.number if left else '-'} {right.number if right else '-'}"


def joined(inputs: Path, outputs: Path) -> Application:
    pairs = _clicks(inputs, "left").join(
        _clicks(inputs, "right"), numbers_of, within=WITHIN_S * SECOND, how="outer"
    )
    return build("joined", pairs.to_sink(sink(outputs)))


def tables(inputs: Path, outputs: Path) -> Application:
    """Both sides wait for each other, for ever."""
    pairs = _clicks(inputs, "left").join(_clicks(inputs, "right"), numbers_of, within=None)
    return build("tables", pairs.to_sink(sink(outputs)))


def in_tables(lefts: list[str], rights: list[str]) -> list[str]:
    left, right = (list(map(parse.function, lines)) for lines in (lefts, rights))
    return [numbers_of(a, b) for a in left for b in right if a.key == b.key]


def end_of(click: Click) -> int:
    return (click.at_s + click.number % UNTIL_S) * SECOND


def best_of(left: Click, best: list[Click] | None) -> str:
    return f"{left.key} {left.number} {sorted(click.number for click in best or [])}"


def best(inputs: Path, outputs: Path) -> Application:
    """For each left event the best right ones until a time of its own."""
    even = MaxBy(lambda click: click.number % 7, ties=True)
    left, right = _clicks(inputs, "left"), _clicks(inputs, "right")
    found = left.join(right, best_of, until=end_of, over=even, how="left")
    return build("best", found.to_sink(sink(outputs)))


def in_best(lefts: list[str], rights: list[str]) -> list[str]:
    left, right = (list(map(parse.function, lines)) for lines in (lefts, rights))
    found = []
    for one in left:
        end_s = end_of(one) // SECOND
        met = [each for each in right if each.key == one.key and one.at_s <= each.at_s <= end_s]
        most = max((each.number % 7 for each in met), default=0)
        found.append(best_of(one, [each for each in met if each.number % 7 == most]))
    return found


def in_joined(lefts: list[str], rights: list[str]) -> list[str]:
    left, right = (list(map(parse.function, lines)) for lines in (lefts, rights))
    pairs: list[tuple[Any, Any]] = [
        (a, b) for a in left for b in right if a.key == b.key and abs(a.at_s - b.at_s) <= WITHIN_S
    ]
    pairs += [(a, None) for a in left if not any(a is pair[0] for pair in pairs)]
    pairs += [(None, b) for b in right if not any(b is pair[1] for pair in pairs)]
    return [numbers_of(*pair) for pair in pairs]


class Exactly(Numbers):
    """The same, added up before the shuffle."""

    adds_up_exactly = True


def added_up(inputs: Path, outputs: Path) -> Application:
    windows = wallaroo.range_windows(RANGE_S * SECOND).with_slide(SLIDE_S * SECOND)
    return build("added up", _clicks(inputs).to(windows.over(Exactly)).to_sink(sink(outputs)))


def line_of(click: Click) -> str:
    return f"{click.key} {click.at_s} {click.number}"


def joined_in_windows(inputs: Path, outputs: Path) -> Application:
    """What comes too late goes to a sink of its own: ``delay`` is 1 s, so some lines do."""
    left, right = (
        source(inputs, name)
        .to(parse)
        .with_event_time(time_of, allow_before_1980=True, delay=SECOND)
        .key_by(key_of)
        for name in ("left", "right")
    )
    windows = wallaroo.range_windows(SLIDE_S * SECOND)
    pairs, late = left.join_windows(right, windows, numbers_of, how="left").with_late_events()
    return wallaroo.build_application(
        "joined in windows",
        pairs.to_sink(sink(outputs)),
        late.map(line_of).to_sink(sink(outputs, "out2")),
    )


def in_windows(lefts: list[str], rights: list[str]) -> tuple[list[str], list[str]]:
    """The pairs, and the lines that are late."""
    late: list[str] = []
    on_time: list[list[Click]] = []
    for lines in (lefts, rights):
        newest = -1
        on_time.append([])
        for click in map(parse.function, lines):
            is_late = click.at_s // SLIDE_S * SLIDE_S + SLIDE_S <= newest - 1
            if is_late:
                late.append(line_of(click))
            else:
                on_time[-1].append(click)
            newest = max(newest, click.at_s)
    pairs: list[str] = []
    for a in on_time[0]:
        others = [
            b for b in on_time[1] if a.key == b.key and a.at_s // SLIDE_S == b.at_s // SLIDE_S
        ]
        pairs += [numbers_of(a, b) for b in others or (None,)]
    return pairs, late


def latest(inputs: Path, outputs: Path) -> Application:
    pairs = _clicks(inputs, "left").join_latest(_clicks(inputs, "right"), numbers_of)
    return build("latest", pairs.to_sink(sink(outputs)))


def in_latest(lefts: list[str], rights: list[str]) -> list[str]:
    found = []
    values = list(map(parse.function, rights))
    for left in map(parse.function, lefts):
        older = [each for each in values if each.key == left.key and each.at_s <= left.at_s]
        newest = max(older, key=lambda each: (each.at_s, values.index(each)), default=None)
        found.append(numbers_of(left, newest))
    return found
