"""Time spans as whole nanoseconds.

Where it runs: pure.
"""

from __future__ import annotations


def nanoseconds(count: float) -> int:
    """Nanoseconds in ``count`` nanoseconds."""
    return int(count)


def microseconds(count: float) -> int:
    """Nanoseconds in ``count`` microseconds.

    >>> microseconds(2)
    2000
    """
    return int(count * 1_000)


def milliseconds(count: float) -> int:
    """Nanoseconds in ``count`` milliseconds."""
    return int(count * 1_000_000)


def seconds(count: float) -> int:
    """Nanoseconds in ``count`` seconds.

    >>> seconds(1.5)
    1500000000
    """
    return int(count * 1_000_000_000)


def minutes(count: float) -> int:
    """Nanoseconds in ``count`` minutes."""
    return int(count * 60_000_000_000)


def hours(count: float) -> int:
    """Nanoseconds in ``count`` hours."""
    return int(count * 3_600_000_000_000)
