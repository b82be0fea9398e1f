"""The most frequent keys of a stream, in bounded memory.

Where it runs: pure (the driver keeps one per step).

The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and
top-k elements in data streams", 2005): a new key replaces the least frequent one and inherits its
count.  Invariants, which the tests check:

* at most ``KEYS_MAX`` keys are kept;
* a key's count is never below its true one, and above it by at most ``total / KEYS_MAX``;
* so every key with more than ``total / KEYS_MAX`` occurrences is kept.

`fade` halves all counts, so that keys that were hot an hour ago are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable

KEYS_MAX = 256


class HotKeys:
    """Counts of keys, which arrive as (key, count) pairs of samples."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.total = 0

    def add(self, counted: Iterable[tuple[str, int]]) -> None:
        counts = self._counts
        for key, count in counted:
            self.total += count
            if key in counts:
                counts[key] += count
            elif len(counts) < KEYS_MAX:
                counts[key] = count
            else:
                least = min(counts, key=counts.__getitem__)
                counts[key] = counts.pop(least) + count

    def add_total(self, count: int) -> None:
        """Count events whose keys were too rare to be listed in their sample."""
        self.total += count

    def fade(self) -> None:
        """Halve all counts."""
        self.total //= 2
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}

    def top(self, number: int) -> list[tuple[str, float]]:
        """Return the most frequent keys with their share of all events, most frequent first.

        >>> keys = HotKeys()
        >>> keys.add([("the", 3), ("of", 1)])
        >>> keys.top(1)
        [('the', 0.75)]
        """
        first = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:number]
        return [(key, count / self.total) for key, count in first]
