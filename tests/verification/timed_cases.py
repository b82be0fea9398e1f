"""The timed cases: timers, expiry and as-of joins.

Their oracles determine the output of timers and expiry per key, and the quote each order meets.

Where it runs: the verifier.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar

from tests.verification.applications import joined, timers
from tests.verification.event_input import BEGIN_MS, KEYS, STEP_MS
from wallaroo.testing.verify.cases import Case, State
from wallaroo.testing.verify.trial.result import Faults


class Timed(Case):
    """A case whose state is judged by its output when due."""

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Accept any state: it is judged by the output when it is due."""

    def state(self) -> State:
        return {}

    def facts(self, state: Any) -> Any:
        return None


class Timers(Timed):
    """Events of frequent and rare keys.

    An independent loop over the input counts by key and second, and finds the spans in which a key
    was used.  A second is output once, in order per key, when the watermark has passed it, unless
    the last event in it cancelled it.  A span ends before the first event of its key at which the
    newest event of all, less the delay, is ``KEPT_MS`` or more past the span's newest event; after
    a sender reconnected, the watermark of its first events may be lower, and two spans be one.
    """

    module: ClassVar[str] = "tests.verification.applications.timers"
    sources: ClassVar[tuple[str, ...]] = ("Events",)
    CALLED_OFF = 0.1  # share of events
    _LINE = re.compile(rb"(\d+):(due|gone) (\d+) (\d+)")

    def __init__(self, seed: int):
        super().__init__(seed)
        self._made = 0
        self._newest_ms = 0
        self._counts: dict[tuple[int, int], int] = {}  # (key, begin of the second in ms)
        # key -> spans: newest event, and events so far; the last one may continue
        self._spans: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)
            self._made += 1
            at_ms = BEGIN_MS + self._made * STEP_MS - chance.randrange(timers.DELAY_MS)
            is_called_off = chance.random() < self.CALLED_OFF
            self._count(key, at_ms, is_called_off)
            self._use(key, at_ms)
            self._newest_ms = max(self._newest_ms, at_ms)
            made.append(timers.EVENT.pack(key, at_ms, is_called_off))
        return made

    def _count(self, key: int, at_ms: int, is_called_off: bool) -> None:
        place = key, at_ms - at_ms % timers.SECOND_MS
        if is_called_off:
            self._counts.pop(place, None)
        else:
            self._counts[place] = self._counts.get(place, 0) + 1

    def _use(self, key: int, at_ms: int) -> None:
        spans = self._spans[key]
        newest_ms, events = spans[-1] if spans else (0, 0)
        if spans and not self._has_passed(newest_ms + timers.KEPT_MS):
            spans[-1] = max(newest_ms, at_ms), events + 1
        else:
            spans.append((at_ms, events + 1))

    def _has_passed(self, at_ms: int) -> bool:
        return at_ms <= self._newest_ms - timers.DELAY_MS

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        seconds: dict[tuple[int, int], int] = {}
        gone: dict[int, list[tuple[int, int]]] = defaultdict(list)
        newest: dict[tuple[bytes, int], int] = {}
        count = 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            if found is None:
                faults.note("wrong", repr(line))
                continue
            key, at_ms, events = (int(found[part]) for part in (1, 3, 4))
            before_ms = newest.get((found[2], key), 0)
            is_due = found[2] == b"due"
            if (key, at_ms) in seconds if is_due else (at_ms, events) in gone[key]:
                faults.note("duplicated", repr(line))
            elif at_ms < before_ms:
                faults.note("out_of_order", repr(line))
            newest[found[2], key] = max(before_ms, at_ms)
            if is_due:
                seconds[key, at_ms] = events
            elif (at_ms, events) not in gone[key]:
                gone[key].append((at_ms, events))
        self._judge_seconds(seconds, faults)
        for key in self._spans.keys() | gone.keys():
            self._judge_spans(key, sorted(gone[key]), faults)
        return count

    def _judge_seconds(self, seconds: dict[tuple[int, int], int], faults: Faults) -> None:
        due = {
            place: events
            for place, events in self._counts.items()
            if self._has_passed(place[1] + timers.SECOND_MS)
        }
        for place in due.keys() | seconds.keys():
            if place not in seconds:
                faults.note("lost", f"(key, second) {place}")
            elif seconds[place] != due.get(place):
                faults.note("wrong", f"(key, second) {place}: {seconds[place]}")

    def _judge_spans(self, key: int, gone: list[tuple[int, int]], faults: Faults) -> None:
        spans = dict(self._spans.get(key, ()))  # newest event -> events until then
        before = 0
        for newest_ms, events in gone:
            if spans.get(newest_ms) != before + events:
                faults.note("wrong", f"key {key}: {events} events until {newest_ms}")
            before = spans.get(newest_ms, before)
        last_ms, total = self._spans[key][-1] if spans else (0, 0)
        if before < total and self._has_passed(last_ms + timers.KEPT_MS):
            faults.note("lost", f"key {key}: {total - before} events until {last_ms}")


class Joined(Timed):
    """Orders and quotes of the same keys, on separate streams.

    No two events of a stream have the same time.  Every order that both streams' watermarks have
    passed is output once, in order per key, with the newest quote of its key at its time, whenever
    that quote arrived.
    """

    module: ClassVar[str] = "tests.verification.applications.joined"
    sources: ClassVar[tuple[str, ...]] = ("Orders", "Quotes")
    _LINE = re.compile(rb"(\d+) (\d+) (\d+)")

    def __init__(self, seed: int):
        super().__init__(seed)
        # source -> key -> times in us, by number - 1
        self._times: dict[str, dict[int, list[int]]] = {
            source: defaultdict(list) for source in self.sources
        }
        self._made = dict.fromkeys(self.sources, 0)
        self._newest_us = dict.fromkeys(self.sources, 0)

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        times = self._times[source]
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)
            self._made[source] += 1
            number = self._made[source]
            at_ms = BEGIN_MS + number * STEP_MS - chance.randrange(joined.DELAY_MS)
            at_us = at_ms * 1000 + number % 1000  # no other event of the source has this time
            self._newest_us[source] = max(self._newest_us[source], at_us)
            times[key].append(at_us)
            made.append(joined.EVENT.pack(key, len(times[key]), at_us))
        return made

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        quotes = {
            key: sorted((at_us, number) for number, at_us in enumerate(times, 1))
            for key, times in self._times["Quotes"].items()
        }
        orders = self._times["Orders"]
        passed_us = min(self._newest_us.values()) - joined.DELAY_MS * 1000
        seen: set[tuple[int, int]] = set()
        newest: dict[int, int] = {}
        count = 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            key, order, quote = map(int, found.groups()) if found else (-1, 0, 0)
            if (key, order) in seen:
                faults.note("duplicated", repr(line))
                continue
            if not 0 < order <= len(orders.get(key, ())):
                faults.note("wrong", repr(line))
                continue
            at_us = orders[key][order - 1]
            if at_us >= passed_us or quote != _newest_at(quotes.get(key, []), at_us):
                faults.note("wrong", repr(line))
            elif newest.get(key, 0) > at_us:
                faults.note("out_of_order", repr(line))
            seen.add((key, order))
            newest[key] = max(newest.get(key, 0), at_us)
        for key, times in orders.items():
            for order, at_us in enumerate(times, 1):
                if at_us < passed_us and (key, order) not in seen:
                    faults.note("lost", f"key {key}, order {order}")
        return count


def _newest_at(quotes: list[tuple[int, int]], at_us: int) -> int:
    """Return the number of the newest quote at a time, 0 if there is none."""
    place = bisect_right(quotes, at_us, key=lambda quote: quote[0])
    return quotes[place - 1][1] if place else 0
