"""Counts and sums within a block, against their plain meaning."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.vectorized.grouping import last_rows, running_count, running_sum


@given(st.lists(st.tuples(st.integers(0, 3) | st.integers(1 << 16, 1 << 20), st.integers(-9, 9))))
def test_rows_are_counted_and_summed_by_key_also_where_there_are_none(
    rows: list[tuple[int, int]],
) -> None:
    at = np.array([key for key, _ in rows], np.int64)
    values = np.array([value for _, value in rows], np.int64)
    before = [rows[: place + 1] for place in range(len(rows))]
    same = [[value for key, value in some if key == some[-1][0]] for some in before]

    assert running_count(at).tolist() == [len(values) for values in same]
    assert running_sum(at, values).tolist() == [sum(values) for values in same]
    assert last_rows(at).tolist() == sorted({key: n for n, (key, _) in enumerate(rows)}.values())
