"""Kafka positions: an offset for every partition of every topic, and the arithmetic of them.

Where it runs: everywhere; pure.

A position's place is ``{topic: {partition: offset}}`` with partitions as text, since it is stored
as JSON; the offset is that of the next record to be read.  Offsets that hold no event (transaction
markers, records that compaction removed) count as events: sizes are upper bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wallaroo.sources.log import Position, Range
from wallaroo.sources.offsets import cut

Offsets = dict[str, dict[str, int]]
Flat = dict[tuple[str, int], int]


def flat(place: Mapping[str, Mapping[str, int]]) -> Flat:
    """Return offsets by (topic, partition).

    >>> flat({"t": {"0": 5, "10": 7}})
    {('t', 0): 5, ('t', 10): 7}
    """
    return {
        (topic, int(partition)): offset
        for topic, partitions in place.items()
        for partition, offset in partitions.items()
    }


def position_of(offsets: Flat) -> Position:
    """Return the position for offsets by (topic, partition); ``events`` is their sum.

    >>> position_of({("t", 1): 7, ("t", 0): 5})
    Position(place={'t': {'0': 5, '1': 7}}, events=12)
    """
    place: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        place.setdefault(topic, {})[str(partition)] = offset
    return Position(place, sum(offsets.values()))


def split(start: Flat, end: Flat, pieces: int) -> list[list[Range]]:
    """Cut everything between two positions into at most ``pieces`` lists of ranges of about the
    same size; parts of one partition go to pieces in order.

    >>> split({("t", 0): 0, ("t", 1): 0}, {("t", 0): 6, ("t", 1): 2}, 2)
    ... # doctest: +NORMALIZE_WHITESPACE
    [[Range(partition='t-0', start=['t', 0, 0], end=4, events=4)],
     [Range(partition='t-0', start=['t', 0, 4], end=6, events=2),
      Range(partition='t-1', start=['t', 1, 0], end=2, events=2)]]
    """
    parts = cut(dict(sorted(start.items())), end, pieces)
    return [[range_of(*part) for part in piece] for piece in parts]


def range_of(partition: tuple[str, int], low: int, high: int) -> Range:
    """Return the range of one partition's offsets ``low`` to ``high``, the latter not included."""
    topic, number = partition
    return Range(f"{topic}-{number}", [topic, number, low], high, high - low)


def missing(start: Flat, first: Flat) -> Iterator[tuple[str, int, int, int]]:
    """Yield ``(topic, partition, wanted, first)`` for every partition whose records from ``wanted``
    on are gone, so that the first one that can be read is ``first``.

    >>> list(missing({("t", 0): 3, ("t", 1): 9}, {("t", 0): 5, ("t", 1): 9}))
    [('t', 0, 3, 5)]
    """
    for (topic, partition), offset in sorted(start.items()):
        oldest = first.get((topic, partition), offset)
        if offset < oldest:
            yield topic, partition, offset, oldest
