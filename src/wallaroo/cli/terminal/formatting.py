"""Human-readable tables, times, sizes, numbers and key groups.

Where it runs: driver and a terminal.  All functions but ``print_table`` are pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

# per worker; sticky placement leaves few ranges of key groups, and a line has to end somewhere
RANGES_SHOWN = 8
# right-aligned columns
NUMBERS = frozenset({"entries", "bytes", "delta bytes", "added", "changed", "removed"})


def duration(seconds: float) -> str:
    """Format a time span in two units: ``8.2 s``, ``1 min 03 s``, ``2 h 05 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a number with its noun.

    >>> counted(1, "task"), counted(1200, "task"), counted(0, "batch", "batches")
    ('1 task', '1,200 tasks', '0 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def milliseconds(value_ms: float) -> str:
    """Format a latency to three digits: ``4.25 ms``, ``412 ms``, ``12.5 s``."""
    if value_ms >= 10_000:
        return f"{value_ms / 1000:.1f} s"
    return f"{value_ms:,.0f} ms" if value_ms >= 100 else f"{value_ms:.3g} ms"


def size(count: float) -> str:
    """Format bytes in the largest fitting unit of 1024: ``5.6 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def group_ranges(groups: Iterable[int]) -> str:
    """Format key groups as ranges, at most ``RANGES_SHOWN`` of them.

    >>> group_ranges([0, 1, 2, 3, 9, 11, 12]), group_ranges([])
    ('0-3, 9, 11-12', '')
    >>> group_ranges(range(0, 40, 2))
    '0, 2, 4, 6, 8, 10, 12, 14 and 12 more ranges'
    """
    runs: list[list[int]] = []
    for group in sorted(groups):
        if runs and group == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], group]
        else:
            runs.append([group])
    more = f" and {len(runs) - RANGES_SHOWN} more ranges" if len(runs) > RANGES_SHOWN else ""
    return ", ".join("-".join(map(str, run)) for run in runs[:RANGES_SHOWN]) + more


def spread(counts: Sequence[int]) -> str:
    """Format how many key groups each of some workers has.

    >>> spread([64, 64]), spread([42, 43, 43]), spread([1])
    ('64 key groups each', '42 to 43 key groups each', '1 key group each')
    """
    least = min(counts)
    most = max(counts)
    number = f"{least}" if least == most else f"{least} to {most}"
    return f"{number} key group{'' if most == 1 else 's'} each"


def print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows under their heads, each column as wide as its widest cell."""
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = zip(row, widths, head, strict=True)
        print(
            "  ".join(
                cell.rjust(width) if name in NUMBERS else cell.ljust(width)
                for cell, width, name in cells
            ).rstrip()
        )


def utc_text(time_ms: int) -> str:
    """Write a time, given in unix milliseconds, to the second.

    >>> utc_text(1_700_000_000_999)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )
