"""Aggregations that keep a sketch instead of all values: distinct counts, quantiles.

Where it runs: everywhere.  They come from Apache DataSketches (package datasketches).

Results are approximate and may vary within their error with the division of events into batches,
since sketches are combined per pane.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from wallaroo.errors import install_command
from wallaroo.steps.windows.aggregation import Aggregation, Partial, partial_of_values, wrong_option

try:
    from datasketches import hll_sketch, hll_union, tdigest_double
except ImportError as missing:
    raise ImportError(
        f"wallaroo.sketches needs datasketches. Install it wherever the driver and workers run: "
        f"{install_command('datasketches')}"
    ) from missing

__all__ = ["Distinct", "Quantiles"]

_EMPTY = "\0empty"  # a sketch ignores an empty text
_EMPTY_BYTES = "\0empty bytes"
_INTS = range(-(1 << 63), 1 << 63)  # a sketch reduces others modulo 2**64
_PRECISIONS = range(4, 22)  # bounds of Apache DataSketches' HLL
_SIZES = range(10, 1 << 16)  # bounds of its t-digest


def _itself(event: Any) -> Any:
    return event


def _check(sketch: str, option: str, value: int, allowed: range) -> None:
    """Raise WallarooParameterError unless an option is an int within a range."""
    if not isinstance(value, int) or value not in allowed:
        what = f"{option} is {value!r:.60}, not an int from {allowed[0]} to {allowed[-1]}."
        fix = f"Choose one, or omit {option}."
        raise wrong_option(sketch, what, fix)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _number(value: Any) -> Any:
    """Return a number as a sketch distinguishes it.  Raises TypeError for anything else."""
    if isinstance(value, float):
        if not value.is_integer():
            return value
        value = int(value)
    elif isinstance(value, Decimal | Fraction):
        if isinstance(value, Decimal) and not value.is_finite():
            return float(value)
        exact = Fraction(value)
        if exact.denominator > 1:
            near = float(exact)
            return near if near == exact else f"number {exact}"
        value = exact.numerator
    elif hasattr(value, "__index__"):
        value = operator.index(value)
    elif isinstance(value, Real):  # numpy's
        return _number(float(value))
    else:
        raise TypeError(
            f"sketches.Distinct counts str, bytes and numbers, not a "
            f"{type(value).__name__}: let `of` return one of them, such as repr(value), or use "
            f"wallaroo.aggregations.Distinct"
        )
    return value if value in _INTS else f"number {value:x}"


class Kept:
    """A sketch that can be pickled; equal content becomes equal bytes."""

    __slots__ = ("sketch",)

    def __init__(self, sketch: Any):
        self.sketch = sketch

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.sketch, hll_sketch):
            return _kept_hll, (self.sketch.serialize_updatable(),)
        return _kept_digest, (self.sketch.serialize(),)


def _kept_hll(content: bytes) -> Kept:
    return Kept(hll_sketch.deserialize(content))


def _kept_digest(content: bytes) -> Kept:
    return Kept(tdigest_double.deserialize(content))


def _add(kept: Kept, value: Any) -> None:
    kept.sketch.update(value)


class Distinct(Aggregation[Any, Kept, int]):
    """The approximate number of distinct values (HyperLogLog).

    Values are str, bytes and numbers; equal ones count once.  ``precision``, 4 to 21,
    is the logarithm of the sketch's size: 12 takes 2 KiB, with an error of 1.6 % or less in two
    cases of three; each step doubles the size.
    """

    def __init__(self, of: Callable[[Any], Any] | None = None, *, precision: int = 12):
        _check("Distinct", "precision", precision, _PRECISIONS)
        self.of = of or _itself
        self.precision = precision

    def name(self) -> str:
        return "distinct"

    def initial_accumulator(self) -> Kept:
        return Kept(hll_sketch(self.precision))

    def update(self, event: Any, kept: Kept, /) -> None:
        kept.sketch.update(self._value(event))

    def _value(self, event: Any) -> Any:
        value = self.of(event)
        if type(value) is int and value in _INTS:
            return value
        if isinstance(value, str):
            if not value.isascii():  # lone surrogates are no UTF-8
                value = value.encode("utf-8", "backslashreplace").decode()
            return value or _EMPTY
        return value.hex() or _EMPTY_BYTES if isinstance(value, bytes) else _number(value)

    def _partial(self) -> Partial:
        return partial_of_values(self._value, _add, self.initial_accumulator)

    def combine(self, left: Kept, right: Kept, /) -> Kept:
        both = hll_union(self.precision)
        both.update(left.sketch)
        both.update(right.sketch)
        return Kept(both.get_result())

    def output(self, key: Any, kept: Kept, /) -> int:
        estimate: float = kept.sketch.get_estimate()
        return round(estimate)


class Quantiles(Aggregation[Any, Kept, Mapping[float, float]]):
    """The approximate quantiles of numbers (t-digest).

    The result is a dict by share, such as ``{0.5: 12.0, 0.99: 80.5}``: about the number that this
    share of all is at or below; None if there is no value.

    Shares near 0 and 1 are the most exact.  ``size``, 10 to 65535, is the approximate number of
    centroids that are kept.
    """

    def __init__(
        self,
        of: Callable[[Any], Any] | None = None,
        *,
        at: Sequence[float] = (0.5, 0.95, 0.99),
        size: int = 200,
    ):
        if not (isinstance(at, Sequence) and at and all(map(_is_share, at))):
            what = f"at is {at!r:.60}, not a sequence of shares between 0 and 1."
            fix = "Write at=(0.99,) for the 99th percentile."
            raise wrong_option("Quantiles", what, fix)
        _check("Quantiles", "size", size, _SIZES)
        self.of = of or _itself
        self.at = tuple(at)
        self.size = size

    def name(self) -> str:
        return "quantiles"

    def initial_accumulator(self) -> Kept:
        return Kept(tdigest_double(self.size))

    def update(self, event: Any, kept: Kept, /) -> None:
        kept.sketch.update(self._value(event))

    def _value(self, event: Any) -> float:
        value = float(self.of(event))
        if value != value:
            raise ValueError("sketches.Quantiles has no place for NaN: leave it out with where()")
        return value

    def _partial(self) -> Partial:
        return partial_of_values(self._value, _add, self.initial_accumulator)

    def combine(self, left: Kept, right: Kept, /) -> Kept:
        both = tdigest_double(self.size)
        both.merge(left.sketch)
        both.merge(right.sketch)
        return Kept(both)

    def output(self, key: Any, kept: Kept, /) -> Mapping[float, float] | None:
        if kept.sketch.is_empty():
            return None
        return {share: kept.sketch.get_quantile(share) for share in self.at}
