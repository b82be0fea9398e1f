"""Blocks: what crosses a shuffle, a few thousand events at a time.

Where it runs: pure.

The law of blocks: a task that reads its blocks ``in_order`` sees, in every attempt, the same events
in the same order, as long as its producers were deterministic.  Each producer ends with one
*marker* to every consumer, naming its attempt, so that a consumer can state which attempts it has
read and nobody can miss a producer that had nothing to say.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

# a bucket is sent when it holds this many events: 128 KiB of 60-byte frames (measured optimum,
# DESIGN 1)
BLOCK_EVENTS_MIN = 2048
# values nobody can mutate behind our back
ATOMIC = frozenset({str, bytes, int, float, bool, type(None)})


class Block(NamedTuple):
    """Events for one stage in one task, packed."""

    stage: int  # the stage that will process them
    origin: int  # the stage that made them
    producer: int  # index of the producing task within its level
    sequence: int  # number of this block within its producer
    # when its newest input came in, so far as the producer knows; never falls within a producer
    receipt_ms: int
    events: int
    packed: bytes  # pickle of (keys, values), two lists of equal length


def in_order(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks in the order in which a task processes them: deterministic, and about as the
    events came in.

    Within one origin the order is the producers' own; where several origins meet in a stage (a
    merge), the one whose next block is older comes first.
    """
    by_origin: dict[tuple[int, int], list[Block]] = {}
    for block in blocks:
        by_origin.setdefault((block.stage, block.origin), []).append(block)
    runs = [sorted(by_origin[origin], key=_place) for origin in sorted(by_origin)]
    return heapq.merge(*runs, key=_receipt)


def _place(block: Block) -> tuple[int, int]:
    return block.producer, block.sequence


def _receipt(block: Block) -> int:
    return block.receipt_ms


class Marker(NamedTuple):
    """The last thing a producer sends to each consumer; to consumer 0 it carries the producer's
    reports as well.
    """

    level: int
    producer: int
    attempt: str
    reports: tuple[Any, ...]


class Frozen:
    """A value pickled the moment it was emitted, so that later mutation of state it refers to does
    not reach it.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: bytes):
        self.raw = raw

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return pickle.loads, (self.raw,)


Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Packing:
    """How values become bytes: of a state object, of a block's two lists, and of a value that must
    not change any more.
    """

    dumps: Dumps
    loads: Loads
    pack: Callable[[list[Any], list[Any]], bytes]
    unpack: Callable[[bytes], tuple[list[Any], list[Any]]]
    freeze: Callable[[Any], Any]


def _dumps(value: Any) -> bytes:
    return pickle.dumps(value, 5)


def _pack(keys: list[Any], values: list[Any]) -> bytes:
    return pickle.dumps((keys, values), 5)


def freeze(value: Any) -> Any:
    """Return ``value`` if it is atomic, else a ``Frozen`` copy of it."""
    return value if type(value) in ATOMIC else Frozen(pickle.dumps(value, 5))


PICKLED = Packing(_dumps, pickle.loads, _pack, pickle.loads, freeze)


def packing_of(serializer: tuple[Any, Any] | None) -> Packing:
    """Return the packing for an application: pickle, or its own ``serialize``/``deserialize``,
    applied to one value at a time.
    """
    if serializer is None:
        return PICKLED
    serialize, deserialize = serializer

    def pack(keys: list[Any], values: list[Any]) -> bytes:
        return pickle.dumps((keys, [serialize(value) for value in values]), 5)

    def unpack(packed: bytes) -> tuple[list[Any], list[Any]]:
        keys, values = pickle.loads(packed)
        return keys, [deserialize(value) for value in values]

    def copy(value: Any) -> Any:
        return value if type(value) in ATOMIC else deserialize(serialize(value))

    return Packing(serialize, deserialize, pack, unpack, copy)
