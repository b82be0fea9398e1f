"""Partial aggregation of window events before a shuffle.

One accumulator per key and pane is sent instead of the events.

Where it runs: pure (in workers), in stages that leave through an exchange into windows.

Invariants:

* Events are combined only if they share key, pane, partition and producer.  They are sent with the
  time and the watermark of the first event of the pane, so that a later raise of watermarks
  (``blocks.with_floors``) treats all of them as it would have treated each (``windows.panes``).
* Accumulators are emitted in the order in which their panes began, so a partition's watermarks
  rise.
* An event that is late by its own partition's watermark is dropped here, as it would be after the
  shuffle.
* The number of events in each pane is recorded, so that late ones are counted exactly even if the
  pane turns out late once its watermark is raised (``sent``).
* Accumulators keep copies of mutable parts of events. An event for which ``update`` raises is sent
  separately, between the accumulators of earlier and later events, as it may be late.
* If a result depends on event order, accumulators are sent before the source's next partition
  begins, since several connections, for example, share one order.
* A batch's events are sent one by one if an earlier batch had nearly as many accumulators as
  events; results do not depend on it (``reductions``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from wallaroo.dataflow.plan.model import COLLECT_KEY
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.blocks.keys import Key, normalize_key
from wallaroo.engine.blocks.packing import Packing, accumulators
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.exchange.reductions import Reductions
from wallaroo.engine.failures.error_context import blame, shorten
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.time.partition_times import PreAggregated
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.losses import Cell, CellOf, Loss, uncounted
from wallaroo.steps.windows.aggregation import Alone, Partial
from wallaroo.steps.windows.entries import Slot
from wallaroo.steps.windows.interface import counted_late
from wallaroo.steps.windows.panes import Panes
from wallaroo.steps.windows.spec import RangeWindowSpec
from wallaroo.steps.windows.step import WindowStep

KEY_TYPES = frozenset({str, bytes, int})
EVENTS_EACH_MAX = 10  # average events per waiting accumulator at which all are sent


class _Sums(NamedTuple):
    """One pane's accumulators by key, with its first event's time and watermark."""

    event_ns: int
    watermark_ns: int
    by_key: dict[Any, Any]
    events: Cell  # their number


class _Waiting:
    """Accumulators that wait to be sent, and counts of their events."""

    def __init__(self, time: StageTime, lost: CellOf, *, are_ordered: bool):
        self.are_ordered = are_ordered  # across partitions as well
        self.sums: dict[str, dict[Slot, _Sums]] = {}  # by partition
        self.sent: list[PreAggregated] = []
        self.accumulators = 0  # their number
        self.events: Cell = [0]  # events of the current pane since it was entered
        self._events_before = 0  # events of all panes before that
        self._current: _Sums | None = None
        self._time = time
        self._pre_aggregated = lost(Loss.ADDED_UP)
        self._count_late = counted_late(time, lost, is_dropped=True)

    def of(self, partition: str, slot: Slot) -> _Sums:
        """Return the accumulators of a pane, which begins with the current event if it is new."""
        self._leave()
        sums = self.sums.setdefault(partition, {})
        found = sums.get(slot)
        if found is None:
            found = sums[slot] = _Sums(self._time.event_ns, self._time.watermark_ns, {}, [0])
        self._current = found
        return found

    def _leave(self) -> None:
        if self._current is not None:
            self._current.events[0] += self.events[0]
            self._events_before += self.events[0]
            self.events[0] = 0

    def take(self) -> dict[str, dict[Slot, _Sums]]:
        """Return all of them, to be sent."""
        self._leave()
        self._current = None
        taken = self.sums
        self.sums = {}
        self._events_before = 0
        return taken

    @property
    def number(self) -> int:
        """Return the number of events whose accumulators wait."""
        return self._events_before + self.events[0]

    def drop(self) -> None:
        """Count the current event, which is late."""
        self._pre_aggregated[0] += 1
        self._count_late()

    def note_sent(self, stage: int, partition: str, sums: _Sums) -> None:
        """Count the events of accumulators that are sent."""
        events = sums.events[0]
        self._pre_aggregated[0] += events - len(sums.by_key)
        self.accumulators += len(sums.by_key)
        self.sent.append(PreAggregated(stage, partition, sums.event_ns, sums.watermark_ns, events))


class PartialAggregation:
    """The accumulators of one exchange of one task.

    ``by_key`` holds the current pane's, or None for late events. It is valid while an event's time
    is within ``lower`` and ``upper``, and its watermark within ``floor`` and ``ceiling``.
    """

    __slots__ = (
        "_exchange",
        "_panes",
        "_partition",
        "_step",
        "_time",
        "by_key",
        "ceiling",
        "count",
        "floor",
        "lower",
        "upper",
        "waiting",
    )

    def __init__(
        self,
        step: WindowStep[Any, Any],
        exchange: Exchange,
        time: StageTime,
        lost: CellOf = uncounted,
        is_ordered: bool = False,
    ):
        self._step = step
        self._exchange = exchange
        self._time = time
        assert isinstance(step.spec, RangeWindowSpec)  # ``may_add_up``
        self._panes = Panes(step.spec)
        self._partition = ""
        self.waiting = _Waiting(time, lost, are_ordered=is_ordered)
        self.count = 0
        self.by_key: dict[Any, Any] | None = None
        self.lower = 1
        self.upper = 0
        self.floor = 0
        self.ceiling = 0

    def turn(self, partition: str) -> None:
        """Attribute the events added from here on to this partition."""
        if self.waiting.are_ordered and self.count and partition != self._partition:
            self.send()
        self._partition = partition
        self.upper = self.lower - 1

    def enter(self) -> None:
        """Find the pane of the current time and watermark."""
        time = self._time
        pane = self._panes.at(time.event_ns, time.watermark_ns)
        if pane is None:
            self.by_key = None
            self.upper = self.lower - 1
            return
        slot, self.lower, self.upper, self.floor, self.ceiling = pane
        self.by_key = self.waiting.of(self._partition, slot).by_key

    def add(
        self,
        event_ns: int,
        watermark_ns: int,
        accumulators: Iterable[tuple[Key, Any]],
        events: int,
        absorb: Callable[[Any, Any], Any],
    ) -> None:
        """Add accumulators of one pane, whose first event has this time."""
        self._time.event_ns = event_ns
        self._time.watermark_ns = watermark_ns
        self.enter()
        by_key = self.by_key
        assert by_key is not None  # late events have no accumulators
        for key, accumulator in accumulators:
            if key in by_key:
                by_key[key] = absorb(by_key[key], accumulator)
            else:
                by_key[key] = accumulator
                self.count += 1
        self.waiting.events[0] += events

    def send_if_many(self, reductions: Reductions) -> None:
        """Send the accumulators if there are many, or if they may have grown large."""
        many_events = self.waiting.number >= EVENTS_EACH_MAX * reductions.accumulators_max
        if many_events or self.count >= reductions.accumulators_max:
            self.send()

    def send(self) -> None:
        """Move all accumulators into the exchange's buckets."""
        routes = self._exchange.routes
        route = self._exchange.route
        time = self._time
        now = time.event_ns, time.watermark_ns
        for partition, sums in self.waiting.take().items():
            self._exchange.turn(partition)
            for each in sums.values():
                self.waiting.note_sent(self._exchange.origin, partition, each)
                time.event_ns, time.watermark_ns, by_key, _ = each
                for key, accumulator in by_key.items():
                    normal_key, keys, values, _ = routes[key] if key in routes else route(key)
                    try:
                        values.append(accumulator)
                    except BaseException as error:  # an application's own ``serialize``
                        blame(self._step, f"accumulator of key {shorten(key)}", error)
                    keys.append(key if normal_key is None else normal_key)
        time.event_ns, time.watermark_ns = now
        self.count = 0
        self.by_key = None
        self.upper = self.lower - 1

    def send_alone(self, key: Any, event: Any) -> None:
        """Send an event behind all accumulators.  Raises if it cannot be pickled."""
        alone = Alone(event)
        self.send()
        self._exchange.turn(self._partition)
        normal_key, keys, values, _ = self._exchange.route(key)
        values.append(alone)
        keys.append(key if normal_key is None else normal_key)

    def note_reduction(self, reductions: Reductions, each_min: int) -> None:
        """Record how many accumulators were sent, and for how many events."""
        events = sum(each.events for each in self.waiting.sent)
        reductions.note(self._step, events, self.waiting.accumulators, each_min)


def packing_for(step: WindowStep[Any, Any], packing: Packing) -> Packing:
    """Return the packing of a step's accumulators."""

    def not_packed(accumulator: Any, error: BaseException) -> None:
        blame(step, f"accumulator {shorten(accumulator)}", error)

    return accumulators(packing, not_packed)


class PartialAggregationExchange(NamedTuple):
    """Exchange that pre-aggregates its events."""

    aggregation: PartialAggregation
    exchange: Exchange
    calls: Partial
    reductions: Reductions

    def turn(self, partition: str) -> None:
        """Attribute the events from here on to this partition of the stage's source."""
        self.aggregation.turn(partition)

    def drain(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket that is full."""
        self.aggregation.send_if_many(self.reductions)
        yield from self.exchange.drain(receipt_ms)

    def finish(self, receipt_ms: int) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for each bucket that is not empty."""
        self.aggregation.send()
        self.aggregation.note_reduction(self.reductions, self.calls.events_min)
        yield from self.exchange.finish(receipt_ms)


class _UnpicklableError(Exception):
    """Error of an event that cannot be pickled."""

    def __init__(self, reason: BaseException):
        super().__init__(str(reason))
        self.reason = reason


def _require_picklable(event: Any) -> None:
    try:
        pickle.dumps(event, 5)
    except BaseException as error:
        raise _UnpicklableError(error) from error


def emit_partial_aggregates(
    extract: Callable[[Any], Any],
    calls: Partial,
    aggregation: PartialAggregation,
    time: StageTime,
    key_failed: OnError,
    failed: OnError,
    not_packed: OnError,
) -> Emit:
    """Extract the key and add the event to its accumulator.

    ``not_packed`` accepts the first event of a class that cannot be pickled: such events would be
    rejected in a batch whose events cross one by one.
    """
    initial = calls.initial
    update = calls.update
    key_types = KEY_TYPES
    events = aggregation.waiting.events
    packed: set[type[Any]] = set()

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            if type(key) not in key_types:
                key = normalize_key(key)
        except BaseException as error:
            key_failed(event, error, before)
        else:
            if not (
                aggregation.lower <= time.event_ns < aggregation.upper
                and aggregation.floor <= time.watermark_ns < aggregation.ceiling
            ):
                aggregation.enter()
            by_key = aggregation.by_key
            if by_key is not None:
                try:
                    try:
                        accumulator = by_key[key]
                    except KeyError:
                        if type(event) not in packed:
                            _require_picklable(event)
                            packed.add(type(event))
                        accumulator = by_key[key] = initial()
                        aggregation.count += 1
                    changed = update(event, accumulator)
                    if changed is not None:
                        by_key[key] = changed
                    events[0] += 1
                except _UnpicklableError as unpicklable:
                    not_packed(event, unpicklable.reason, before)
                except BaseException:
                    try:
                        aggregation.send_alone(key, event)
                    except BaseException as pack_error:
                        failed(event, pack_error, key)
            else:
                aggregation.waiting.drop()

    return process


def collected(event: Any) -> Key:
    """Return the key of all events of ``collect()``."""
    return COLLECT_KEY
