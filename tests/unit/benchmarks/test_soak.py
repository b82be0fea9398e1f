"""The soak's oracle: that it finds a lost, a repeated and a wrong line.

That the application agrees with it is the outcome of each soak.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.applications import visitors
from benchmarks.lib.machine import BenchmarkError
from benchmarks.state.soak import compare, expected, payloads

EVENTS = 700_000


def test_windows_hold_what_the_events_say() -> None:
    events = [json.loads(payload) for payload in payloads(200_000, 400_000)]
    visitor = events[0]["visitor"]
    amounts = [event["amount"] for event in events if event["visitor"] == visitor]
    line = f"window {visitor} {200_000 // visitors.EVENTS_PER_MS} {len(amounts)} {sum(amounts)}"
    assert line in {line for _, line in expected(EVENTS)}


@pytest.mark.parametrize(
    ("lost", "added", "words"),
    [
        (0, None, None),
        (1, None, "1 lines lost or repeated"),
        (0, "window 0 0", "1 lines lost or repeated"),
        (0, "timer 1 77777", "1 that no event explains"),
    ],
)
def test_a_lost_a_repeated_and_a_wrong_line_are_found(
    lost: int, added: str | None, words: str | None
) -> None:
    lines = [line for _, line in expected(EVENTS)]
    left = Counter(lines[lost:])
    if added is not None:
        left[next((line for line in lines if line.startswith(f"{added} ")), added)] += 1
    if words is None:
        assert 0 < compare(left, EVENTS) < len(lines)
        return
    with pytest.raises(BenchmarkError, match=words):
        compare(left, EVENTS)
