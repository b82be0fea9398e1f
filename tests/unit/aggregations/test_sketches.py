"""Sketches: close to the exact figure, kept by pickle, and usable in windows."""

from __future__ import annotations

import pickle
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest

import wallaroo
from tests.conformance.apps.sessions import SECOND, key_of, parse, time_of
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import sink, source
from wallaroo.errors import WallarooParameterError
from wallaroo.sketches import Distinct, Quantiles
from wallaroo.steps.windows.aggregation import calls_of
from wallaroo.testing import run_local

NOWHERE = Path("/nowhere")


def filled(aggregation: Any, values: Any) -> Any:
    kept = aggregation.initial_accumulator()
    for value in values:
        assert aggregation.update(value, kept) is None
    return kept


@pytest.mark.parametrize("value_of", [int, str, lambda number: str(number).encode()])
def test_distinct_values_are_counted_about(value_of: Any) -> None:
    distinct = Distinct(value_of)
    kept = filled(distinct, [*range(5000), *range(1000)])
    other = filled(distinct, range(4000, 8000))
    copied = pickle.loads(pickle.dumps(kept))

    assert distinct.output("k", kept) == distinct.output("k", copied) == pytest.approx(5000, 0.05)
    assert distinct.output("k", distinct.combine(copied, other)) == pytest.approx(8000, 0.05)
    assert distinct.output("k", kept) == pytest.approx(5000, 0.05)
    assert distinct.output("k", distinct.initial_accumulator()) == 0


@pytest.mark.parametrize(
    "values",
    [
        [Decimal(f"10.{cents:02}") for cents in range(100)],
        [Fraction(1, number) for number in range(1, 100)],
        ["", "a", ""],
        [b"", b"a", b""],
        ["", b"", "1", b"1"],
        [5, 5.0, Decimal(5), Fraction(5), True, 1, 1.0, 0.5, Decimal("0.5"), Fraction(1, 2)],
        [(1 << 64) + number for number in range(100)],
        [5, 5 + (1 << 64), float(1 << 70), 1 << 70, Decimal(1 << 70), -1, (1 << 64) - 1],
        [Decimal("1e400"), 10**400, Decimal("inf"), float("inf"), Decimal("nan")],
        [*range(1000), *map(float, range(1000))],
        [numpy.int64(3), 3, numpy.float32(0.5), 0.5, numpy.str_("x"), "x"],
    ],
    ids=lambda values: f"{values[0]!r:.20}",
)
def test_values_are_distinct_that_are_not_equal(values: list[Any]) -> None:
    """Numbers too, whatever their types."""
    distinct = Distinct()
    kept = filled(distinct, values)
    assert distinct.output("k", kept) == pytest.approx(len(set(values)), 0.05)
    partial = calls_of(distinct).partial
    assert partial is not None
    parts = partial.initial()
    for value in values:
        partial.update(value, parts)
    assert distinct.output("k", partial.whole(parts)) == distinct.output("k", kept)


@pytest.mark.parametrize("value", [None, ("ann", 1), bytearray(b"x"), date(2024, 1, 1), 1j])
def test_a_value_that_a_sketch_cannot_count_is_refused_with_the_way_out(value: Any) -> None:
    distinct = Distinct()
    with pytest.raises(TypeError, match=r"str, bytes and numbers, .*wallaroo.aggregations"):
        distinct.update(value, distinct.initial_accumulator())


def test_quantiles_are_found_about() -> None:
    quantiles = Quantiles(at=(0.0, 0.5, 0.99))
    low, high = filled(quantiles, range(5000)), filled(quantiles, range(5000, 10_000))

    both = quantiles.output("k", pickle.loads(pickle.dumps(quantiles.combine(low, high))))

    assert both is not None
    assert [*both] == [0.0, 0.5, 0.99]
    assert both[0.5] == pytest.approx(5000, abs=250)
    assert both[0.99] == pytest.approx(9900, abs=50)
    assert quantiles.output("k", quantiles.initial_accumulator()) is None


def test_nan_has_no_place_among_quantiles() -> None:
    quantiles = Quantiles()
    with pytest.raises(ValueError, match="no place for NaN"):
        quantiles.update(float("nan"), quantiles.initial_accumulator())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Quantiles(at=(50,)), "between 0 and 1"),
        (lambda: Quantiles(at=0.5), "at is 0.5, not a sequence of shares"),
        (lambda: Quantiles(at=("a",)), "at is .'a',., not a sequence of shares"),
        (lambda: Quantiles(at=()), "at is .., not a sequence of shares"),
        (lambda: Quantiles(size=9), "size is 9, not an int from 10 to 65535"),
        (lambda: Quantiles(size=65_536), "size is 65536"),
        (lambda: Distinct(precision=3), "precision is 3, not an int from 4 to 21"),
        (lambda: Distinct(precision=22), "precision is 22"),
    ],
)
def test_a_parameter_outside_its_range_is_refused_at_once(make: Any, reason: str) -> None:
    with pytest.raises(WallarooParameterError, match=reason):
        make()


@pytest.mark.parametrize(
    "sketch",
    [Distinct(precision=4), Distinct(precision=21), Quantiles(size=10), Quantiles(size=65_535)],
)
def test_the_ends_of_each_range_are_usable(sketch: Any) -> None:
    assert sketch.output("k", filled(sketch, [1, 2, 3])) is not None


@wallaroo.computation("as text")
def as_text(result: Any) -> str:
    return str(result)


def number_of(event: Any) -> int:
    return int(event.number)


def test_a_sketch_lives_through_batches_and_panes() -> None:
    windows = wallaroo.range_windows(4 * SECOND).with_slide(2 * SECOND).over(Distinct(number_of))
    clicks = (
        source(NOWHERE).to(parse).with_event_time(time_of, allow_before_1980=True).key_by(key_of)
    )
    application = build("distinct", clicks.to(windows).to(as_text).to_sink(sink(NOWHERE)))
    lines = [f"a {second} {number}".encode() for second in range(6) for number in range(3)]

    assert run_local(application, {"in": lines}, batches=5).text.split() == ["3", "3", "3", "3"]
