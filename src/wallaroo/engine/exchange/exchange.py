"""The producer side of a shuffle, with a bucket per task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from wallaroo.engine.blocks.blocks import BLOCK_EVENTS_MIN, Block, pack_times
from wallaroo.engine.blocks.keys import Key, locate, normalize_key
from wallaroo.engine.blocks.packing import Column, Packing, pack
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.losses import Cell


class Bucket(Protocol):
    """A collector of keys or values, one at a time."""

    def append(self, item: Any, /) -> None:
        """Append one."""


# The destination of the events of one key: the key that is sent, the collector of keys, the
# collector of values of the exchange's ``atomic`` types, and the function that accepts any value.
# The key is None if it is or contains a number: the event's own key is sent, because 1, True and
# 1.0 compare equal but are not all keys (``normalize_key``).
Route = tuple[Any, Bucket, Bucket, Callable[[Any], None]]


class StampedKeys:
    """A key list that also records each event's time and watermark."""

    __slots__ = ("_began", "_partition", "_runs", "_time", "keys", "times", "watermarks")

    def __init__(self, keys: list[Any], time: StageTime):
        self.keys = keys
        self._time = time
        self.times: list[int] = []
        self.watermarks: list[int] = []
        self._partition = ""
        self._began = 0  # index of that partition's first event
        self._runs: list[tuple[str, int]] = []

    def append(self, key: Key) -> None:
        """Add the key of the event that is being processed."""
        self.keys.append(key)
        self.times.append(self._time.event_ns)
        self.watermarks.append(self._time.watermark_ns)

    def turn(self, partition: str) -> None:
        """Attribute the keys added from here on to this partition."""
        count = len(self.times)
        if count > self._began:
            self._runs.append((self._partition, count - self._began))
            self._began = count
        self._partition = partition

    def take(self) -> tuple[bytes, bytes, tuple[tuple[str, int], ...]]:
        """Return times and watermarks, packed, and the runs of partitions; reset in place."""
        self.turn(self._partition)
        packed = pack_times(self.times), pack_times(self.watermarks), tuple(self._runs)
        self.times.clear()
        self.watermarks.clear()
        self._runs.clear()
        self._began = 0
        return packed


class Exchange:
    """Path from one stage to the stage after a shuffle.

    ``route(key)`` is called once per distinct key; its result is kept in ``routes``, so that an
    event costs one dict lookup and two appends, and equal keys are one object that pickles to two
    bytes.

    If ``replaced`` is given, only the last event of each key matters: earlier ones of a full bucket
    are dropped, and counted there.  The others keep their order, so dropping any is the same as
    dropping none for a step that keeps the last one.
    """

    def __init__(
        self,
        stage: int,
        origin: int,
        producer: int,
        owners: tuple[int, ...],
        packing: Packing,
        time: StageTime | None = None,
        own_task: int = -1,
        replaced: Cell | None = None,
    ):
        self.stage = stage
        self.origin = origin
        self.producer = producer
        self._own_task = own_task  # the task whose blocks never leave this process; -1: none
        self.routes: dict[Any, Route] = {}
        self.packing = packing
        self._buckets: list[tuple[list[Any], Column]] = [
            ([], packing.column()) for _ in range(max(owners) + 1)
        ]
        # the times of the events in each bucket, if the plan has event time
        self._stamped = (
            None if time is None else [StampedKeys(keys, time) for keys, _ in self._buckets]
        )
        into: Sequence[Bucket] = self._stamped or [keys for keys, _ in self._buckets]
        collectors = [
            (bucket, column.atoms, column.put)
            for bucket, (_, column) in zip(into, self._buckets, strict=True)
        ]
        self._collectors = [collectors[task] for task in owners]  # by key group
        self._replaced = replaced
        self._sequence = 0
        self._has_numbers = False  # among the keys so far

    def route(self, key: Any) -> Route:
        """Return and cache the route of ``key``; raise TypeError if it is not a valid key."""
        normal_key = normalize_key(key)
        is_number = isinstance(normal_key, int)
        if isinstance(normal_key, tuple):
            is_number = int in map(type, normal_key)
        if is_number:
            self._has_numbers = True
        group, _ = locate(normal_key, len(self._collectors))
        travels = None if is_number else normal_key
        found = self.routes[key] = (travels, *self._collectors[group])
        return found

    def turn(self, partition: str) -> None:
        """Attribute the events from here on to this partition of the stage's source."""
        for stamps in self._stamped or ():
            stamps.turn(partition)

    def drain(
        self, receipt_ms: int, events_min: int = BLOCK_EVENTS_MIN
    ) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket of at least ``events_min`` events; empty it."""
        for task, (keys, column) in enumerate(self._buckets):
            if self._replaced is not None and len(keys) >= events_min:
                self._replaced[0] += _drop_replaced(keys, column)
            events = len(keys)
            if events >= events_min:
                values = column.take_values() if task == self._own_task else None
                unpacked = None if values is None else (list(keys), values)
                packed = pack(keys, column, self._has_numbers) if unpacked is None else b""
                keys.clear()  # in place: routes hold this list
                stamps = () if self._stamped is None else self._stamped[task].take()
                block = Block(
                    self.stage,
                    self.origin,
                    self.producer,
                    self._sequence,
                    receipt_ms,
                    events,
                    packed,
                    self.packing.kind,
                    *stamps,
                )._replace(unpacked=unpacked)
                self._sequence += 1
                yield task, block

    def finish(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket that is not empty."""
        yield from self.drain(receipt_ms, 1)
        self.routes.clear()  # no events follow; operators and routes refer to each other in cycles


def _drop_replaced(keys: list[Any], column: Column) -> int:
    """Drop all but each key's last event, if the values allow it; return the count."""
    last = dict(zip(keys, range(len(keys)), strict=True))
    dropped = len(keys) - len(last)
    if not dropped:
        return 0
    places = sorted(last.values())
    if not column.keep(places):
        return 0
    keys[:] = [keys[place] for place in places]
    return dropped
