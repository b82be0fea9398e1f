"""The in-process runner: the same physical plan without Spark or a JVM.

Where it runs: anywhere; pure but for user code.  Blocks, routing, stages and state use the same
code as on Spark; only the shuffle is a list of lists, the state log a dict, and the spool a list.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from wallaroo.dataflow.plan.model import Plan, SourcePlan
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.ordered_keys import TIME_MIN, after_prefix
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.engine.exchange.reductions import REDUCTIONS, Reductions
from wallaroo.engine.failures.policies import Sample
from wallaroo.engine.levels.level import Level
from wallaroo.engine.levels.side_outputs import Committed, SideOutputs
from wallaroo.engine.stores.keyed_state import Read
from wallaroo.engine.stores.sorted_state import Change, EntryReader, namespace
from wallaroo.engine.time.partition_times import EndedOf, ObservedSource
from wallaroo.engine.time.watermarks import BatchTime, Watermarks, after_batch, with_due
from wallaroo.protocols.framing import Framing, frame_walker, framer
from wallaroo.runtime.tasks.level_driver import Fed, drain, feed_blocks, run_levels
from wallaroo.sources.chain import ChainSourceConfig
from wallaroo.sources.feeds.generator import GenSourceConfig, unpickled


class MemoryEntries:
    """Entries of one namespace, by key group; an ``EntryReader``."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[bytes, bytes]] = {}
        self._sorted: dict[int, list[bytes]] = {}

    def get(self, group: int, stored: bytes) -> bytes | None:
        return self._groups.get(group, {}).get(stored)

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        entries = self._groups.get(group)
        if not entries:
            return
        if group not in self._sorted:
            self._sorted[group] = sorted(entries)
        order = self._sorted[group]
        for at in range(bisect_left(order, low), bisect_left(order, high)):
            yield order[at], entries[order[at]]

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        for prefix in prefixes:
            for stored, value in self.scan(group, prefix, after_prefix(prefix)):
                yield prefix, stored, value

    def apply(self, changes: Iterable[Change]) -> None:
        for group, stored, value in changes:
            self._sorted.pop(group, None)
            if value is None:
                self._groups.get(group, {}).pop(stored, None)
            else:
                self._groups.setdefault(group, {})[stored] = value

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))


VALUE_FRAMING = Framing(4, ">I", 1 << 30)


class Input(NamedTuple):
    """One frame, or several, of one partition of a source."""

    source: int
    frames: bytes
    receipt_ms: int = 0  # unix time
    partition: str = ""
    times_ns: tuple[int, ...] | None = None  # its events' times, if the source knows them
    ended_of: EndedOf | None = None  # no frames: returns the partitions that end here


class Wire(bytes):
    """Bytes as they come from the network: whole frames, headers included."""


@dataclass(frozen=True, slots=True)
class _Injected:
    """A source configuration for values that need no decoding."""

    name: str
    wire_framing: Framing = VALUE_FRAMING


@dataclass(slots=True)
class BatchResult:
    """One batch's encoded outputs, state changes and number of frames.

    Outputs are by sink index.
    """

    outputs: dict[int, list[bytes]] = field(default_factory=dict)
    # by step; None: removed
    changes: dict[str, dict[Key, bytes | None]] = field(default_factory=dict)
    events: int = 0
    # events that failed without stopping the run
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    # events that left without a result
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    # by name in the step table
    entries: dict[str, list[Change]] = field(default_factory=dict)
    time: Watermarks = field(default_factory=Watermarks)


class LocalRunner:
    """The runner of batches; ``state``: committed, pickled, by state step and key.

    ``runs_ahead``: level 0 runs as if it did before the commit before it (`runtime.resident`).
    """

    runs_ahead: ClassVar[bool] = False

    def __init__(
        self, plan: Plan, values_for: Iterable[str] = (), *, reductions: Reductions = REDUCTIONS
    ):
        self.plan = _with_values(plan, frozenset(values_for))
        self._packing = packing_of(plan.serializer)
        self.state: dict[str, dict[Key, bytes]] = {}
        self.entries: dict[str, MemoryEntries] = {}
        self.time = Watermarks()  # as of the last commit
        self.batch = 0  # the next one's number
        self._reductions = reductions

    def has_payloads(self, source: int) -> bool:
        """Return whether a source decodes payloads; others get values."""
        return self.plan.sources[source].decoder.function is not unpickled.function

    def frames(self, source: int, item: Any) -> bytes:
        """Return an input's frames: payloads framed, a Wire as is, values pickled."""
        if isinstance(item, Wire):
            return bytes(item)
        if not self.has_payloads(source):
            item = _pickle(item)
        return framer(self.plan.sources[source].config.wire_framing)(item)

    def run_batch(
        self,
        pieces: Sequence[Sequence[Input]],
        tasks: int,
        watermark_ns: int | None = None,
        *,
        clock_ns: int = 0,
        is_final: bool = False,
        away: Collection[str] = (),
    ) -> BatchResult:
        """Process one batch: a list of inputs, possibly none, per task of level 0.

        Nothing is committed yet.

        ``watermark_ns``: a watermark to move to, if the input's is lower.  ``is_final``: all input
        has ended.  ``away``: sources that have been unavailable since the last batch.
        """
        result = BatchResult(outputs={sink: [] for sink in range(len(self.plan.sinks))})
        levels = self.plan.levels
        has_input = any(not Input(*given).ended_of for piece in pieces for given in piece)
        before = self._before(clock_ns, away, has_input=has_input)
        time = BatchTime(
            before,
            max(clock_ns, self.time.clock_ns),
            frozenset(range(len(self.plan.sources))),
            is_final and not before.has_ended,
            TIME_MIN if watermark_ns is None else watermark_ns,
        )
        observed: dict[int, dict[int, ObservedSource]] = {}
        due: list[tuple[int, int]] = []
        committed = Committed(self._reader, self._entries_of, self._keys_of)

        def run(number: int, task: int, received: list[Block]) -> Iterator[tuple[int, Block]]:
            level = Level(
                self.plan,
                number,
                task,
                tasks,
                committed,
                self.batch,
                time.without_marks if self.runs_ahead and number == 0 < levels - 1 else time,
                self._reductions,
            )
            if number == 0:
                feeding = self._feed_frames(level, pieces[task] if pieces else (), result)
            else:
                level.observe(observed)
                feeding = feed_blocks(level, self.plan, number, task, received)
            yield from drain(level, feeding, lambda: None)
            if number == 0:
                observed[task] = level.observed
            due.append(level.effects.due_ns())
            self._take(level.effects, result)

        run_levels([max(1, len(pieces)), *[tasks] * (levels - 1)], run)
        if self.plan.has_time or self.plan.has_end:
            marks = after_batch(time, self.plan.source_times, observed)
            result.time = with_due(marks, due)
        return result

    def _before(self, clock_ns: int, away: Collection[str], *, has_input: bool) -> Watermarks:
        before = replace(self.time, has_ended=self.time.has_ended and not has_input)
        for name in away:
            before = before.silent_for(name, clock_ns, _not_silent)
        return before

    def commit(self, result: BatchResult) -> None:
        """Apply a batch's changes to the state, for the next one."""
        for step, changes in result.changes.items():
            state = self.state.setdefault(step, {})
            for key, raw in changes.items():
                if raw is None:
                    state.pop(key, None)
                else:
                    state[key] = raw
        for name, entries in result.entries.items():
            self.entries.setdefault(name, MemoryEntries()).apply(entries)
        self.time = result.time
        self.batch += 1

    def states(self, step: str) -> dict[Key, Any]:
        """Return the committed state objects of one state step, by key."""
        return {key: self._packing.loads(raw) for key, raw in self.state.get(step, {}).items()}

    def _reader(self, step: str) -> Read:
        return self.state.get(step, {}).get

    def _keys_of(self, step: str) -> Iterable[Key]:
        return tuple(self.state.get(step, ()))

    def _entries_of(self, name: str) -> EntryReader:
        return self.entries.setdefault(name, MemoryEntries())

    def _feed_frames(self, level: Level, inputs: Sequence[Input], result: BatchResult) -> Fed:
        for given in _in_runs(inputs) if self.plan.has_blocks else inputs:
            source, frames, receipt_ms, partition, times_ns, ended_of = Input(*given)
            if ended_of is not None:
                level.end_partitions(source, ended_of)
                continue
            times = None if times_ns is None else partial(_same, times_ns)
            result.events += level.feed_frames(source, frames, receipt_ms, partition, times)
            yield None

    def _take(self, effects: SideOutputs, result: BatchResult) -> None:
        for sink, outputs in effects.take_outputs():
            result.outputs[sink].extend(outputs)
        result.errors.update(effects.failures.counts)
        result.samples += effects.failures.samples
        result.losses.update(effects.losses)
        for step, state in effects.states.items():
            result.changes.setdefault(step, {}).update(state.changes())
        for step, store in effects.stores.items():
            for kind, changes in store.changes():
                result.entries.setdefault(namespace(step, kind), []).extend(changes)


def _not_silent(partition: str | None) -> int:
    return 0


def _in_runs(inputs: Sequence[Input]) -> Iterator[Input]:
    """Yield the runs of frames from one partition, as a source's log has them."""
    for (source, receipt_ms, partition, ended_of), some in groupby(map(_whole, inputs), _origin):
        frames = b"".join(each.frames for each in some)
        yield Input(source, frames, receipt_ms, partition, ended_of=ended_of)


def _whole(given: Input) -> Input:
    return Input(*given)


def _origin(given: Input) -> tuple[int, int, str, EndedOf | None]:
    return given.source, given.receipt_ms, given.partition, given.ended_of


def _same(times_ns: tuple[int, ...]) -> tuple[int, ...]:
    return times_ns


def _pickle(value: Any) -> bytes:
    return packing_of(None).dumps(value)


def _with_values(plan: Plan, names: frozenset[str]) -> Plan:
    """Replace the decoders of sources that get values by one that unpickles them."""

    def injected(source: SourcePlan) -> SourcePlan:
        if isinstance(source.config, ChainSourceConfig):  # its payloads are the second part's
            second = source.config.second
            source = replace(source, config=second, decoder=second.decoder)
        if source.config.name in names and not isinstance(source.config, GenSourceConfig):
            return replace(source, config=_Injected(source.config.name), decoder=unpickled)
        return source

    return replace(plan, sources=tuple(map(injected, plan.sources)))


def split_wire(wire: bytes, framing: Framing) -> list[bytes]:
    """Cut whole frames apart with their headers.  Raises ValueError: half a frame at the end."""
    walk = frame_walker(framing)
    at = 0
    frames = []
    end, _ = walk(wire, 0, len(wire))
    if end != len(wire):
        raise ValueError(
            f"the last frame is not whole: {len(wire) - end} bytes after byte {end}; bytes have "
            "the headers of their frames, payloads without headers are given as a list"
        )
    if framing.is_lines:
        return [line + b"\n" for line in wire.split(b"\n")[:-1]]
    header = struct.Struct(framing.length_fmt)
    while at < end:
        size = framing.header_length + header.unpack_from(wire, at)[0]
        frames.append(wire[at : at + size])
        at += size
    return frames
