"""Rows that pass through forms, one after the other, become the events that they were.

The expected events are those that Arrow makes of the first block.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wallaroo.engine.columnar.forms import as_form
from wallaroo.engine.columnar.rows import events_of, without_views
from wallaroo.vectorized.row_error import Inconvertible, RowError
from wallaroo.vectorized.steps import Form

NOON = datetime.datetime(2024, 1, 2, 12, 0, 5)  # noqa: DTZ001  # the zone is the column's
UTC_NOON = NOON.replace(tzinfo=datetime.UTC)
SPANS = [datetime.timedelta(days=3, seconds=5), -datetime.timedelta(seconds=1)]
TEXTS = ["", "a", "x\0y", "é" * 20]
BYTES = [b"", b"a\0b", b"\xff" * 9]
VALUES: dict[Any, list[Any]] = {
    pa.int64(): [0, -5, 2**53 + 1, 2**63 - 1],
    pa.uint64(): [0, 2**64 - 1],
    pa.int8(): [-128, 127],
    pa.float64(): [-0.0, 1.5, 1e300, math.inf, math.nan],
    pa.float32(): [0.5],
    pa.bool_(): [True, False],
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.string_view(): TEXTS,
    pa.binary(): BYTES,
    pa.binary_view(): BYTES,
    pa.binary(4): [b"abcd", b"ab\0\0"],
    **{pa.timestamp(unit): [NOON, NOON.replace(year=1999)] for unit in ("s", "ms", "us", "ns")},
    **{pa.timestamp(unit, "UTC"): [UTC_NOON] for unit in ("us", "ns")},
    **{pa.duration(unit): SPANS for unit in ("s", "ms", "us", "ns")},
    pa.date32(): [datetime.date(2024, 1, 1), datetime.date(1800, 5, 6)],
    pa.time64("us"): [datetime.time(1, 2, 3, 4)],
    pa.decimal128(10, 2): [decimal.Decimal("1.50"), decimal.Decimal("-99.25")],
    pa.dictionary(pa.int32(), pa.string()): ["a", "b"],
}
FLAT = [kind for kind in VALUES if not pa.types.is_dictionary(kind)]
kinds = st.recursive(
    st.sampled_from(FLAT),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda two: pa.struct(list(zip("ab", two, strict=True)))),
    ),
    max_leaves=3,
) | st.sampled_from(list(VALUES))


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        own: Any = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        own = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    else:
        own = st.sampled_from(VALUES[kind])
    return st.none() | own


columns = kinds.flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind), min_size=1, max_size=4))
)


def is_same(was: Any, now: Any) -> bool:
    """Return whether values are equal and of alike types; a null beside floats may be NaN."""
    if isinstance(now, float) and math.isnan(now):
        return was is None or (isinstance(was, float) and math.isnan(was))
    if isinstance(was, list):
        return isinstance(now, list) and len(was) == len(now) and all(map(is_same, was, now))
    if isinstance(was, dict):
        return was.keys() == now.keys() and all(is_same(was[name], now[name]) for name in was)
    if isinstance(was, datetime.datetime):
        return bool(was == now) and (was.tzinfo is None) is (now.tzinfo is None)
    return bool(was == now) and isinstance(was, bool) is isinstance(now, bool)


@settings(max_examples=300, deadline=None)
@given(columns, st.lists(st.sampled_from([*Form, None]), min_size=1, max_size=4))
def test_events_are_the_same_behind_any_forms(column: Any, forms: list[Form | None]) -> None:
    """None: the rows become events in between.  numpy has no zones, and not all types."""
    kind, values = column
    assume(Form.NUMPY not in forms or getattr(kind, "tz", None) is None)
    rows: Any = without_views(pa.RecordBatch.from_pydict({"v": pa.array(values, kind)}))
    expected = rows.to_pylist()
    try:
        for form in forms:
            rows = list(events_of(rows)) if form is None else as_form(rows, form)
    except (Inconvertible, RowError):
        assert Form.NUMPY in forms
        return

    events = list(events_of(rows))

    assert len(events) == len(expected)
    assert all(map(is_same, expected, events)), (expected, events)
