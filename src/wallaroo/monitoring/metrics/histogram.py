"""A histogram of latencies, of bounded size.

Where it runs: pure (the driver keeps one per pipeline).

The idea is Gil Tene's HdrHistogram: within each power of two, buckets of equal width.  A value is
counted in units of 1/64 ms, 32 buckets to an octave, and a bucket represents its middle.  The
invariants, which the tests check against sorted lists:

* a quantile differs from the exact one by at most ``RELATIVE_ERROR`` of it, or
  ``ABSOLUTE_ERROR_MS`` (values under 1 ms);
* the smallest and the largest value are exact;
* there are at most ``BUCKETS_MAX`` buckets.  Values above ``VALUE_MAX_MS`` (12 days) are counted as
  that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

_UNITS_PER_MS = 64
# 2**5 buckets to an octave: a bucket is at most 1/32 of its values wide, its middle at most 1/64
# from them.
_HALF_BITS = 5
_HALF = 1 << _HALF_BITS
_VALUE_BITS = 36

RELATIVE_ERROR = 1 / (2 * _HALF)
ABSOLUTE_ERROR_MS = 0.5 / _UNITS_PER_MS
VALUE_MAX_MS = ((1 << _VALUE_BITS) - 1) / _UNITS_PER_MS
BUCKETS_MAX = _HALF * (_VALUE_BITS - _HALF_BITS + 1)


class LatencyHistogram:
    """Counts of milliseconds in log-linear buckets; not safe to share."""

    __slots__ = ("_counts", "count", "max_ms", "min_ms")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.min_ms = 0.0
        self.max_ms = 0.0

    def record(self, value_ms: float, count: int = 1) -> None:
        """Count a value ``count`` times.

        A negative value (clocks disagree) counts as 0; a negative count is a ValueError.
        """
        if count <= 0:
            if count < 0:
                raise ValueError(f"a value was seen {count} times; a count cannot be negative")
            return
        value_ms = min(max(value_ms, 0.0), VALUE_MAX_MS)
        index = _bucket_of(int(value_ms * _UNITS_PER_MS))
        self._counts[index] = self._counts.get(index, 0) + count
        self.min_ms = min(self.min_ms, value_ms) if self.count else value_ms
        self.max_ms = max(self.max_ms, value_ms)
        self.count += count

    def merge(self, other: LatencyHistogram) -> None:
        """Add the counts of ``other``, which stays as it is."""
        if not other.count:
            return
        for index, count in list(other._counts.items()):
            self._counts[index] = self._counts.get(index, 0) + count
        self.min_ms = min(self.min_ms, other.min_ms) if self.count else other.min_ms
        self.max_ms = max(self.max_ms, other.max_ms)
        self.count += other.count

    def quantiles(self, *per_mille: float) -> tuple[float, ...]:
        """Return quantiles in ms; 0.0 if nothing was counted.

        For each ``q`` that is the smallest value that at least ``q`` of 1000 values do not exceed.
        999.9 is p99.99.

        >>> latencies = LatencyHistogram()
        >>> latencies.record(10.0, count=99)
        >>> latencies.record(500.0)
        >>> latencies.quantiles(1000)
        (500.0,)
        """
        # rounded first: 999.9 is not a binary fraction, and rounding up could reach the next value
        ranks = [max(1, ceil(round(q * self.count / 1000, 6))) for q in per_mille]
        values = dict.fromkeys(ranks, 0.0)
        pending = sorted(values, reverse=True)
        seen = 0
        for index in sorted(self._counts):
            seen += self._counts[index]
            while pending and pending[-1] <= seen:
                values[pending.pop()] = min(max(_middle_ms(index), self.min_ms), self.max_ms)
        if self.count in values:
            values[self.count] = self.max_ms
        return tuple(values[rank] for rank in ranks)

    def at_most(self, bounds_ms: Sequence[float]) -> tuple[int, ...]:
        """Return how many values lie at or below each rising bound, to a bucket's accuracy.

        >>> latencies = LatencyHistogram()
        >>> latencies.record(10.0, count=99)
        >>> latencies.record(500.0)
        >>> latencies.at_most((1.0, 50.0, 1000.0))
        (0, 99, 100)
        """
        counts = [0] * len(bounds_ms)
        for index, count in list(self._counts.items()):
            middle_ms = _middle_ms(index)
            for place, bound_ms in enumerate(bounds_ms):
                if middle_ms <= bound_ms:
                    counts[place] += count
        return tuple(counts)

    @property
    def total_ms(self) -> float:
        """Return the sum of all values, to a bucket's accuracy."""
        return sum(_middle_ms(index) * count for index, count in list(self._counts.items()))

    @property
    def buckets(self) -> int:
        """Return the number of buckets in use, at most ``BUCKETS_MAX``."""
        return len(self._counts)


def _bucket_of(units: int) -> int:
    """Return the bucket's number: one per unit below 64, then 32 to an octave."""
    shift = max(0, units.bit_length() - _HALF_BITS - 1)
    return (shift << _HALF_BITS) + (units >> shift)


def _middle_ms(index: int) -> float:
    """Return the middle of a bucket's values."""
    shift = max(0, (index >> _HALF_BITS) - 1)
    lowest = (index - (shift << _HALF_BITS)) << shift
    return (lowest + (1 << shift) / 2) / _UNITS_PER_MS
