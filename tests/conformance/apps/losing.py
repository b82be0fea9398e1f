"""An application whose steps leave events out for every reason there is, and how many.

Lines are ``key second number``; many are late.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import wallaroo
from tests.conformance.apps.sessions import SECOND, Click, key_of, parse, time_of
from tests.conformance.apps.steps import sink, source
from wallaroo import aggregations
from wallaroo.api.application import Application

RANGE_S = 5
WITHIN_S = 2


class Touched:
    def __init__(self) -> None:
        self.count = 0


def is_no_fifth(click: Click) -> bool:
    return click.number % 5 != 0


def odd_only(click: Click) -> Click | None:
    return click if click.number % 2 else None


def losing(inputs: Path, outputs: Path) -> Application:
    """Filters, windows added up before their shuffle and others, ``dedupe``, and a join."""
    clicks = source(inputs, "in").to(parse).with_event_time(time_of, allow_before_1980=True)
    kept = clicks.filter(is_no_fifth, name="filter")
    windows = wallaroo.range_windows(RANGE_S * SECOND)
    counts = kept.key_by(key_of).to(windows.over(aggregations.Count(), name="counts"))
    lists = kept.key_by(key_of).to(windows.over(aggregations.Collect(), name="lists"))
    others = kept.map(odd_only, name="map").key_by(key_of)
    once = others.dedupe(_number, within=WITHIN_S * SECOND, name="dedupe")
    pairs = kept.key_by(key_of).join(once, within=WITHIN_S * SECOND, name="join")
    return wallaroo.build_application(
        "losing",
        counts.to_sink(sink(outputs)),
        lists.to_sink(sink(outputs, "out2")),
        pairs.to_sink(sink(outputs, "out3")),
    )


def _number(click: Click) -> int:
    return click.number % 3


def lines(count: int, seed: int = 7) -> list[str]:
    """Lines up to 20 s out of order."""
    chance = random.Random(seed)
    return [
        f"{chance.choice('abc')} {max(0, n // 3 - chance.choice((0, 0, 0, 2, 7, 20)))} {n}"
        for n in range(count)
    ]


def lost(given: list[str]) -> dict[str, dict[str, int]]:
    """The counts of the steps that one loop over the lines can tell."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    passed_s = -1
    for click in map(parse.function, given):
        watermark_s, passed_s = passed_s, max(passed_s, click.at_s)
        if not is_no_fifth(click):
            found["filter"]["filtered"] += 1
            continue
        if (click.at_s // RANGE_S + 1) * RANGE_S <= watermark_s:
            found["counts"]["late"] += 1
            found["lists"]["late"] += 1
        if odd_only(click) is None:
            found["map"]["filtered"] += 1
        elif click.at_s + WITHIN_S < watermark_s:
            found["dedupe"]["late"] += 1
    return found
