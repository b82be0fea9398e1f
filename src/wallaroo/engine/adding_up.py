"""Partial aggregation of window events before a shuffle.

One accumulator per key and pane travels instead of the events.

Where it runs: pure (in workers), in stages that leave through an exchange into windows.

Invariants:

* Events are added up only if they share key, pane, partition and producer.  They travel with the
  time and the watermark of the first event of the pane, so that a later raise of watermarks
  (``blocks.with_floors``) treats all of them as it would have treated each (``windows.panes``).
* Accumulators leave in the order in which their panes began, so a partition's watermarks rise.
* An event that is late by its own partition's watermark is dropped here, as it would be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wallaroo.engine.error_context import blame, shorten
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import OnError
from wallaroo.engine.keys import Key, normalize_key
from wallaroo.engine.operators.interface import Emit, StageTime
from wallaroo.plan.model import COLLECT_KEY
from wallaroo.steps import KeyExtractor
from wallaroo.windows.aggregation import calls_of
from wallaroo.windows.entries import Slot
from wallaroo.windows.panes import Panes
from wallaroo.windows.spec import RangeWindowSpec
from wallaroo.windows.step import WindowStep

# the most accumulators that a task keeps before it sends them
ADDED_UP_MAX = 50_000
KEY_TYPES = frozenset({str, bytes, int})


class _Sums(NamedTuple):
    """Accumulators of one pane by key.

    The time and the watermark are those of its first event.
    """

    event_ns: int
    watermark_ns: int
    by_key: dict[Any, Any]


class AddingUp:
    """The accumulators of one exchange of one task.

    ``by_key`` holds those of the current pane, or None for late events.  It stays the same as long
    as an event's time is within ``lower`` and ``upper``, and its watermark within ``floor`` and
    ``ceiling``.
    """

    __slots__ = (
        "_exchange",
        "_panes",
        "_partition",
        "_step",
        "_sums",
        "_time",
        "by_key",
        "ceiling",
        "count",
        "floor",
        "lower",
        "upper",
    )

    def __init__(self, step: WindowStep[Any, Any], exchange: Exchange, time: StageTime):
        self._step = step
        self._exchange = exchange
        self._time = time
        assert isinstance(step.spec, RangeWindowSpec)  # ``may_add_up``
        self._panes = Panes(step.spec)
        self._partition = ""
        self._sums: dict[str, dict[Slot, _Sums]] = {}  # by partition
        self.count = 0
        self.by_key: dict[Any, Any] | None = None
        self.lower = 1
        self.upper = 0
        self.floor = 0
        self.ceiling = 0

    def turn(self, partition: str) -> None:
        """Attribute the events added from here on to this partition."""
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
        sums = self._sums.setdefault(self._partition, {})
        found = sums.get(slot)
        if found is None:
            found = sums[slot] = _Sums(time.event_ns, time.watermark_ns, {})
        self.by_key = found.by_key

    def send(self, at_least: int = 1) -> None:
        """Put the accumulators into the buckets of the exchange, and start over.

        Do nothing if there are fewer than ``at_least``.
        """
        if self.count < at_least:
            return
        routes = self._exchange.routes
        route = self._exchange.route
        atomic = self._exchange.atomic
        time = self._time
        for partition, sums in self._sums.items():
            self._exchange.turn(partition)
            for time.event_ns, time.watermark_ns, by_key in sums.values():
                for key, accumulator in by_key.items():
                    own, keys, values, put = routes[key] if key in routes else route(key)
                    if type(accumulator) in atomic:
                        values.append(accumulator)
                    else:
                        self._pack(put, key, accumulator)
                    keys.append(key if own is None else own)
        self._sums.clear()
        self.count = 0
        self.upper = self.lower - 1

    def _pack(self, put: Callable[[Any], None], key: Key, accumulator: Any) -> None:
        try:
            put(accumulator)
        except BaseException as error:
            blame(self._step, f"accumulator of key {shorten(key)}", error)


def emit_added_up(
    extractor: KeyExtractor[Any, Any] | None,
    step: WindowStep[Any, Any],
    adding: AddingUp,
    time: StageTime,
    key_failed: OnError,
    failed: OnError,
) -> Emit:
    """Extract the key and add the event to its accumulator."""
    extract = _collected if extractor is None else extractor.function
    calls = calls_of(step.aggregation)
    initial = calls.initial
    update = calls.update
    key_types = KEY_TYPES

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            if type(key) not in key_types:
                key = normalize_key(key)
        except BaseException as error:
            key_failed(event, error, before)
        else:
            if not (
                adding.lower <= time.event_ns < adding.upper
                and adding.floor <= time.watermark_ns < adding.ceiling
            ):
                adding.enter()
            by_key = adding.by_key
            if by_key is not None:
                try:
                    try:
                        accumulator = by_key[key]
                    except KeyError:
                        accumulator = by_key[key] = initial()
                        adding.count += 1
                    changed = update(event, accumulator)
                    if changed is not None:
                        by_key[key] = changed
                except BaseException as update_error:
                    failed(event, update_error, key)

    return process


def _collected(event: Any) -> Key:
    return COLLECT_KEY
