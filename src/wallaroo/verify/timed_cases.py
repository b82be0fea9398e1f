"""The timed cases: what timers and expiry must say about the events of each key, and which quote
each order must meet.

Where it runs: the verifier.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, ClassVar

from wallaroo.verify.applications import joined, timers
from wallaroo.verify.case import KEYS, Case, State
from wallaroo.verify.ledger import Faults

STEP_MS = 5  # of event time between two events
BEGIN_MS = 1_000_000_000_000


class Timed(Case):
    """A case whose state is judged by what comes of it when it is due."""

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """What is kept is judged when it is due."""

    def state(self) -> State:
        return {}

    def facts(self, state: Any) -> Any:
        return None


class Timers(Timed):
    """Events of keys, some often, some seldom.

    An independent loop over the input says for how many events each key was not silent: a span
    ends before the first event of the key at which the newest event of all, less the delay, is so
    far behind the newest one of the key.
    """

    module: ClassVar[str] = "wallaroo.verify.applications.timers"
    sources: ClassVar[tuple[str, ...]] = ("Events",)
    SPANS_MS: ClassVar[dict[str, int]] = {"silent": timers.GAP_MS, "gone": timers.KEPT_MS}
    _LINE = re.compile(rb"(\d+):(\w+) (\d+) (\d+)")

    def __init__(self, seed: int):
        super().__init__(seed)
        self._made = 0
        self._newest_ms = 0
        # (key, kind) -> newest event and number of events: what has ended, and what goes on
        self._ended: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        self._going: dict[tuple[int, str], tuple[int, int]] = {}

    def payloads(self, source: str, count: int) -> list[bytes]:
        chance = self._chances[source]
        made = []
        for _ in range(count):
            key = int(KEYS * chance.random() ** 2)
            self._made += 1
            at_ms = BEGIN_MS + self._made * STEP_MS - chance.randrange(timers.DELAY_MS)
            for kind, span_ms in self.SPANS_MS.items():
                newest_ms, events = self._going.get((key, kind), (at_ms, 0))
                if events and self._has_passed(newest_ms + span_ms):
                    self._ended[key, kind].append((newest_ms, events))
                    newest_ms, events = at_ms, 0
                self._going[key, kind] = max(newest_ms, at_ms), events + 1
            self._newest_ms = max(self._newest_ms, at_ms)
            made.append(timers.EVENT.pack(key, at_ms))
        return made

    def _has_passed(self, at_ms: int) -> bool:
        return at_ms <= self._newest_ms - timers.DELAY_MS

    def judge(self, lines: Iterable[bytes], faults: Faults) -> int:
        expected = {place: list(ended) for place, ended in self._ended.items()}
        for place, (newest_ms, events) in self._going.items():
            if self._has_passed(newest_ms + self.SPANS_MS[place[1]]):
                expected.setdefault(place, []).append((newest_ms, events))
        seen: dict[tuple[int, str], set[tuple[int, int]]] = defaultdict(set)
        newest: dict[tuple[int, str], int] = {}
        count = 0
        for line in lines:
            count += 1
            found = self._LINE.fullmatch(line)
            place = (int(found[1]), found[2].decode()) if found else (-1, "")
            span = (int(found[3]), int(found[4])) if found else (0, 0)
            if span in seen[place]:
                faults.note("duplicated", repr(line))
            elif span not in expected.get(place, ()):
                faults.note("wrong", repr(line))
            elif newest.get(place, 0) > span[0]:
                faults.note("out_of_order", repr(line))
            seen[place].add(span)
            newest[place] = max(newest.get(place, 0), span[0])
        for place, spans in expected.items():
            for span in spans:
                if span not in seen[place]:
                    faults.note("lost", f"{place}: {span}")
        return count


class Joined(Timed):
    """Orders and quotes of the same keys, on streams of their own, all at different times.

    Every order that both streams' watermarks have passed comes once, in order per key, with the
    newest quote of its key at its time, whenever that one came.
    """

    module: ClassVar[str] = "wallaroo.verify.applications.joined"
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
    """The number of the newest quote at a time, 0 where there is none."""
    place = bisect_right(quotes, at_us, key=lambda quote: quote[0])
    return quotes[place - 1][1] if place else 0
