"""The most frequent keys, against exact counts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from wallaroo.monitoring.metrics.steps import KEYS_MAX, HotKeys


@given(st.lists(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 50)), max_size=40)))
def test_counts_are_never_too_low_and_too_high_by_a_bounded_share(
    samples: list[list[tuple[int, int]]],
) -> None:
    exact: Counter[str] = Counter()
    keys = HotKeys()
    for sample in samples:
        for key, count in sample:
            exact[str(key)] += count
        keys.add((str(key), count) for key, count in sample)
    bound = keys.total / KEYS_MAX
    kept = {key: share * keys.total for key, share in keys.top(KEYS_MAX)}
    assert len(kept) <= KEYS_MAX
    for key, seen in kept.items():
        assert exact[key] - 0.01 <= seen <= exact[key] + bound + 0.01
    assert {key for key, count in exact.items() if count > bound} <= kept.keys()


def test_keys_that_were_hot_long_ago_give_way() -> None:
    keys = HotKeys()
    keys.add([("old", 1000)])
    for _ in range(8):
        keys.fade()
        keys.add([("new", 100)])
    assert keys.top(1)[0][0] == "new"


def test_events_with_rare_keys_count_in_the_total() -> None:
    keys = HotKeys()
    keys.add([("a", 10)])
    keys.add_total(30)
    assert keys.top(5) == [("a", 0.25)]
