"""Division of a number into whole shares, by weights."""

from __future__ import annotations

from collections.abc import Sequence


def shares(number: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of a number that add up to it.

    The largest remainders are rounded up, the first of equals first.

    >>> shares(8, [5, 3]), shares(4, [1, 1, 1]), shares(3, [0, 0])
    ([5, 3], [2, 1, 1], [2, 1])
    """
    if not weights:
        return []
    weights = weights if any(weights) else [1] * len(weights)
    total = sum(weights)
    parts = [number * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda place: -(number * weights[place] % total))
    for place in by_remainder[: number - sum(parts)]:
        parts[place] += 1
    return parts
