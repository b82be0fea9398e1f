"""Time spans as whole nanoseconds.

Where it runs: pure.
"""

from __future__ import annotations


def nanoseconds(count: float) -> int:
    """Return ``count`` nanoseconds in nanoseconds."""
    return int(count)


def microseconds(count: float) -> int:
    """Return ``count`` microseconds in nanoseconds.

    >>> microseconds(2)
    2000
    """
    return int(count * 1_000)


def milliseconds(count: float) -> int:
    """Return ``count`` milliseconds in nanoseconds."""
    return int(count * 1_000_000)


def seconds(count: float) -> int:
    """Return ``count`` seconds in nanoseconds.

    >>> seconds(1.5)
    1500000000
    """
    return int(count * 1_000_000_000)


def minutes(count: float) -> int:
    """Return ``count`` minutes in nanoseconds."""
    return int(count * 60_000_000_000)


def hours(count: float) -> int:
    """Return ``count`` hours in nanoseconds."""
    return int(count * 3_600_000_000_000)
