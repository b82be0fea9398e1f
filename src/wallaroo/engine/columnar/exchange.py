"""Producer side of a block shuffle, with a bucket per task."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.engine.blocks.packing import Kind, Packing
from wallaroo.engine.columnar.keys import Array, Coder, FieldKeys, Keys, TimedKeys, in_rows
from wallaroo.engine.columnar.packing import (
    pack_events,
    pack_keys,
    pack_rows,
    packed_rows,
    travelling,
)
from wallaroo.engine.columnar.rows import Rows, count_of, take

# a bucket is sent when it holds this many rows: a block's cost to its reader (0.2 ms) is then about
# 10 ns per row
BLOCK_ROWS_MIN = 16384
_COMPARED_MAX = 4  # tasks; above, rows are sorted by task rather than compared with each


@dataclass(slots=True)
class _Run:
    """Rows of one dtype or schema that go into one block."""

    kind: Any
    rows: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)  # Keys, or TimedKeys
    partitions: list[str] = field(default_factory=list)  # one for each of these runs of rows
    count: int = 0


def _taken(keys: Keys, at: Array, copied: Any) -> Keys:
    """Return the keys of these rows, which were copied."""
    if isinstance(keys, FieldKeys):
        return FieldKeys(copied[keys.name], keys.name)
    return keys.take(at)


class ColumnExchange:
    """Path of blocks to the next stage across a shuffle; see ``Exchange``."""

    def __init__(
        self, stage: int, origin: int, producer: int, owners: tuple[int, ...], packing: Packing
    ):
        self.stage = stage
        self.origin = origin
        self.producer = producer
        self._owners = owners
        self._packing = packing
        self._coder = Coder()
        self._tasks: Array = np.empty(0, np.uint16)  # by number of key
        self._buckets: list[list[_Run]] = [[] for _ in range(max(owners) + 1)]
        self._sequence = 0
        self._partition = ""

    def turn(self, partition: str) -> None:
        """Attribute the rows from here on to this partition of the stage's source."""
        self._partition = partition

    def put(self, keys: Keys, rows: Rows) -> None:
        """Accept rows with their keys, or raise TypeError or ValueError and accept none."""
        rows = travelling(rows)
        keys = self._in_rows(keys, rows)
        if len(self._buckets) == 1:
            self._coder.codes(keys)
            self._add(0, keys, self._copied(rows, None))
            return
        tasks = self._tasks_of(keys)
        copies = [(task, at, self._copied(rows, at)) for task, at in self._split(tasks)]
        for task, at, copy in copies:
            self._add(task, _taken(keys, at, copy[1]), copy)

    def _in_rows(self, keys: Any, rows: Rows) -> Any:
        return in_rows(keys, rows)

    def _tasks_of(self, keys: Keys) -> Array:
        codes = self._coder.codes(keys)
        known = len(self._tasks)
        if len(self._coder.keys) > known:
            groups = len(self._owners)
            more = [
                self._owners[group_of(encode_key(key), groups)] for key in self._coder.keys[known:]
            ]
            self._tasks = np.concatenate([self._tasks, np.array(more, np.uint16)])
        return self._tasks[codes]

    def _split(self, tasks: Array) -> Iterator[tuple[int, Array]]:
        """Yield each task that receives rows, and their indexes in order."""
        count = len(self._buckets)
        if count <= _COMPARED_MAX:
            for task in range(count):
                at = np.flatnonzero(tasks == task)
                if len(at):
                    yield task, at
            return
        order = np.argsort(tasks, kind="stable")
        ends = np.cumsum(np.bincount(tasks, minlength=count))
        for task, (first, end) in enumerate(
            zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
        ):
            if first < end:
                yield task, order[first:end]

    def _copied(self, rows: Rows, at: Array | None) -> tuple[Any, Any, int]:
        """Return the kind of these rows, a copy (at these indexes), and their count."""
        if isinstance(rows, np.ndarray):
            copy = packed_rows(rows, at)
            return (copy.dtype, copy.shape[1:]), copy, len(copy)
        some = rows if at is None else take(rows, at)
        if isinstance(some, list):
            return "events", (pack_events(some, self._packing), [None] * len(some)), len(some)
        return some.schema, some, count_of(some)

    def _add(self, task: int, keys: Keys, copied: tuple[Any, Any, int]) -> None:
        kind, rows, count = copied
        runs = self._buckets[task]
        if not runs or runs[-1].kind != kind:
            runs.append(_Run(kind))
        run = runs[-1]
        run.rows.append(rows)
        run.keys.append(keys)
        run.partitions.append(self._partition)
        run.count += count

    def drain(
        self, receipt_ms: int, events_min: int = BLOCK_ROWS_MIN
    ) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for the rows that fill a block, and forget them."""
        for task, runs in enumerate(self._buckets):
            while runs and (len(runs) > 1 or runs[0].count >= events_min):
                run = runs.pop(0)
                yield task, self._block(run, receipt_ms)
                self._sequence += 1

    def _block(self, run: _Run, receipt_ms: int) -> Block:
        return Block(
            self.stage,
            self.origin,
            self.producer,
            self._sequence,
            receipt_ms,
            run.count,
            pickle.dumps((pack_keys(run.keys), pack_rows(run.rows)), 5),
            Kind.COLUMNS,
        )

    def finish(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for all remaining rows."""
        return self.drain(receipt_ms, 1)


class TimedColumnExchange(ColumnExchange):
    """The same path for rows with times, which have ``TimedKeys``."""

    def _in_rows(self, keys: TimedKeys, rows: Rows) -> TimedKeys:
        return keys.with_keys(in_rows(keys.keys, rows))

    def _block(self, run: _Run, receipt_ms: int) -> Block:
        timed: list[TimedKeys] = run.keys
        plain = replace(run, keys=[each.keys for each in timed])
        counts = zip(run.partitions, map(len, timed), strict=True)
        return (
            super()
            ._block(plain, receipt_ms)
            ._replace(
                times=np.concatenate([each.times for each in timed]).tobytes(),
                watermarks=np.concatenate([each.watermarks for each in timed]).tobytes(),
                partitions=tuple(
                    (partition, sum(count for _, count in of_partition))
                    for partition, of_partition in groupby(counts, itemgetter(0))
                ),
            )
        )
