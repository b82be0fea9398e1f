"""ShuffleBench's input and its rules: which consumers want a record.

The definitions are those of the benchmark (arXiv 2403.04570, github.com/dynatrace-research/
ShuffleBench): records of random bytes; each of 1,000 consumers wants a record if the record's hash
is in its range, and all of them want a fifth of the records together.  A consumer counts its
records, and sums their first eight bytes; with the tenth it sends both, and sets them to 0.

Records are random, so that here their first eight bytes are their hash.

Where it runs: everywhere, the peers' Pythons included.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random

RECORD_BYTES = 1024
CONSUMERS = 1000
SELECTIVITY = 0.2
PER_OUTPUT = 10
SEED = 24
_ALL = 1 << 63
_WIDTH = int(SELECTIVITY / CONSUMERS * _ALL)
_numbers = Random(SEED)
_RANGES = sorted((_numbers.getrandbits(63), consumer) for consumer in range(CONSUMERS))
_BEGINNINGS = [begin for begin, _ in _RANGES]


def wanted_by(record: bytes) -> list[int]:
    """Return the consumers of a record.

    >>> from random import Random
    >>> records = [Random(number).randbytes(16) for number in range(10_000)]
    >>> 1_800 < sum(len(wanted_by(record)) for record in records) < 2_200
    True
    """
    value = int.from_bytes(record[:8], "big") >> 1
    found = []
    at = bisect_right(_BEGINNINGS, value) - 1  # -1: the last range, which may reach over the end
    while (value - _RANGES[at][0]) % _ALL < _WIDTH:
        found.append(_RANGES[at][1])
        at -= 1
    return found


def number_of(record: bytes) -> int:
    """Return what a record adds to the sum of its consumer."""
    return int.from_bytes(record[:8], "big", signed=True)


def wrapped(total: int) -> int:
    """Return a sum as it is in 64 bits.

    >>> wrapped(2**63)
    -9223372036854775808
    """
    return (total + _ALL) % (2 * _ALL) - _ALL
