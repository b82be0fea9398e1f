"""Tables, numbers and times as lines of text.

Where it runs: a terminal.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

# right-aligned columns
NUMBERS = frozenset({"entries", "bytes", "delta bytes", "added", "changed", "removed"})


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


def grouped(number: int) -> str:
    """Write a whole number in groups of three digits.

    >>> grouped(1234567)
    '1 234 567'
    """
    return f"{number:,}".replace(",", " ")


def utc_text(time_ms: int) -> str:
    """Write a time, given in unix milliseconds, to the second.

    >>> utc_text(1_700_000_000_999)
    '2023-11-14 22:13:20 UTC'
    """
    return datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC).strftime(
        "%Y-%m-%d %H:%M:%S UTC"
    )
