"""Blocks: the unit of a shuffle, a few thousand events each.

Invariant of blocks: a task that reads its blocks ``in_order`` sees, in every attempt, the same
events in the same order, as long as its producers were deterministic.  Each producer ends with one
*marker* to every consumer, naming its attempt, so that a consumer can report which attempts it
read, and detects a producer without events for it.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from wallaroo.engine.blocks.packing import Kind

# a bucket is sent when it holds this many events: 128 KiB of 60-byte frames (measured optimum,
# DESIGN 1)
BLOCK_EVENTS_MIN = 2048


class Block(NamedTuple):
    """Events for one stage in one task, packed."""

    stage: int  # the stage that will process them
    origin: int  # the stage that emitted them
    producer: int  # index of the producing task within its level
    sequence: int  # number of this block within its producer
    # receipt time of its newest input known to the producer; never falls within a producer
    receipt_ms: int
    events: int
    packed: bytes  # keys and values, two lists of equal length
    kind: Kind = Kind.VALUES  # the encoding of the values
    # the events' times, and the watermark of its source before each (``pack_times``), if the plan
    # has event time; in a block of level 0, only as far as its producer knows
    times: bytes | None = None
    watermarks: bytes = b""
    # only in a block of level 0: the partitions of its events, and how many of each, in order
    partitions: tuple[tuple[str, int], ...] = ()
    # keys and values of a block that stays in its task, instead of ``packed``
    unpacked: tuple[list[Any], list[Any]] | None = None


def pack_times(times_ns: Iterable[int]) -> bytes:
    """Pack times, unix nanoseconds.

    >>> unpack_times(pack_times([1, -2]))
    [1, -2]
    """
    return array("q", times_ns).tobytes()


def with_floors(block: Block, floors_ns: Mapping[str, int], has_receipt_times: bool) -> Block:
    """Raise the block's watermarks and receipt times to at least ``floors_ns``."""
    if block.times is None:
        return block
    times = unpack_times(block.times) if has_receipt_times else []
    marks = unpack_times(block.watermarks)
    is_changed = False
    begin = 0
    for partition, count in block.partitions:
        floor_ns = floors_ns[partition]
        end = begin + count
        if marks[begin] < floor_ns:  # they rise within a partition, so the first is the minimum
            is_changed = True
            marks[begin:end] = [max(mark, floor_ns) for mark in marks[begin:end]]
            times[begin:end] = [max(time, floor_ns) for time in times[begin:end]]
        begin = end
    if not is_changed:
        return block
    packed = pack_times(times) if has_receipt_times else block.times
    return block._replace(times=packed, watermarks=pack_times(marks))


def unpack_times(packed: bytes) -> list[int]:
    times = array("q")
    times.frombytes(packed)
    return times.tolist()


def in_order(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in the order in which a task processes them.

    The order is deterministic and close to that of arrival. Within one origin it is the producers'
    own; if several origins meet in a stage (a merge), the oldest next block comes first.
    """
    by_origin: dict[tuple[int, int], list[Block]] = {}
    for block in blocks:
        by_origin.setdefault((block.stage, block.origin), []).append(block)
    runs = [sorted(by_origin[origin], key=_place) for origin in sorted(by_origin)]
    return heapq.merge(*runs, key=attrgetter("receipt_ms"))


def _place(block: Block) -> tuple[int, int]:
    return block.producer, block.sequence


class Marker(NamedTuple):
    """A producer's last message to each consumer; consumer 0's carries the reports."""

    level: int
    producer: int
    attempt: str
    reports: tuple[Any, ...]
    # producer of level 0 -> source -> its observations; passed on from level to level. Empty
    # without event time
    observed: Mapping[int, Mapping[int, Any]] = {}
