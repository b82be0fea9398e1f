"""Offset arithmetic: steps over partitions, and ranges.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

# how much larger than the others a piece may be so that no partition is cut
UNEVEN_MAX = 1.2
Partition = TypeVar("Partition", bound=Hashable)


def backlog(start: Mapping[Partition, int], head: Mapping[Partition, int]) -> int:
    """Return the backlog in offsets over all partitions of ``head``.

    A partition that is not in ``start`` has been read up to 0.

    >>> backlog({"a": 500, "b": 10}, {"b": 30, "c": 4})
    24
    """
    return sum(max(0, offset - start.get(partition, 0)) for partition, offset in head.items())


def advanced(
    start: Mapping[Partition, int], head: Mapping[Partition, int], events_max: int
) -> dict[Partition, int]:
    """Move ``start`` towards ``head`` by at most ``events_max`` offsets.

    They are shared in proportion to the backlogs (at least one per partition with a backlog).  A
    partition that is only in ``start`` keeps its offset.

    >>> advanced({"a": 0, "b": 0}, {"a": 30, "b": 10}, 20)
    {'a': 15, 'b': 5}
    >>> advanced({"a": 4}, {"a": 9}, 100)
    {'a': 9}
    """
    backlog = {
        partition: max(0, head.get(partition, offset) - offset)
        for partition, offset in start.items()
    }
    total = sum(backlog.values())
    if total <= events_max:
        return {partition: offset + backlog[partition] for partition, offset in start.items()}
    moved: dict[Partition, int] = {}
    for partition, offset in start.items():
        share = events_max * backlog[partition] // total
        moved[partition] = offset + (max(1, share) if backlog[partition] else 0)
    return moved


def cut(
    start: Mapping[Partition, int], end: Mapping[Partition, int], pieces: int
) -> list[list[tuple[Partition, int, int]]]:
    """Cut the offsets between two positions into at most ``pieces`` lists.

    Each is a list of ``(partition, low, high)``, all of about the same size; parts of one partition
    go to pieces in order.

    If partitions are about equally full, each goes to one piece, and always to the same one: the
    reader of a partition continues with it.

    >>> cut({"a": 0, "b": 0}, {"a": 6, "b": 2}, 2)
    [[('a', 0, 4)], [('a', 4, 6), ('b', 0, 2)]]
    >>> cut({"a": 0, "b": 0, "c": 0, "d": 0}, {"a": 6, "b": 5, "c": 5, "d": 4}, 2)
    [[('a', 0, 6), ('b', 0, 5)], [('c', 0, 5), ('d', 0, 4)]]
    """
    total = sum(max(0, end[partition] - offset) for partition, offset in start.items())
    if total == 0:
        return []
    size = -(-total // pieces)
    return _in_wholes(start, end, pieces, size) or _exactly(start, end, size)


def _in_wholes(
    start: Mapping[Partition, int], end: Mapping[Partition, int], pieces: int, size: int
) -> list[list[tuple[Partition, int, int]]]:
    """Assign whole partitions to pieces; return nothing if a piece would be too large."""
    if len(start) < pieces:
        return []
    lists: list[list[tuple[Partition, int, int]]] = [[] for _ in range(pieces)]
    for number, (partition, low) in enumerate(start.items()):
        if low < end[partition]:
            lists[number * pieces // len(start)].append((partition, low, end[partition]))
    largest = max(sum(high - low for _, low, high in piece) for piece in lists)
    return [piece for piece in lists if piece] if largest <= size * UNEVEN_MAX else []


def _exactly(
    start: Mapping[Partition, int], end: Mapping[Partition, int], size: int
) -> list[list[tuple[Partition, int, int]]]:
    """Cut into pieces of ``size``, the last one smaller."""
    lists: list[list[tuple[Partition, int, int]]] = [[]]
    room = size
    for partition, low in start.items():
        while low < end[partition]:
            if room == 0:
                lists.append([])
                room = size
            high = min(end[partition], low + room)
            lists[-1].append((partition, low, high))
            room -= high - low
            low = high
    return lists
