"""Pipelines of steps in event time behind any number of shuffles, made from a list of stages, and
what must come out: a program of its own, written from docs/time.md and docs/windows.md.

An event is text: ``xyz second what``, of which x, y and z are the keys of three key extractors.
A stage is a kind and the number of its key:

* ``timers``, ``ttl``, ``both``: state with timers, that expires by event time, or both; all say
  what they have at the end;
* ``window``: tumbling windows;
* ``order``: ``in_order()`` and a plain state step.
"""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import wallaroo
from tests.conformance.apps.shapes import build
from tests.conformance.apps.steps import sink, source
from wallaroo.api.application import Application

KINDS = ("timers", "ttl", "both", "window", "order")
SECOND = wallaroo.seconds(1)
QUIET = 3 * SECOND
CHECK = 2 * SECOND + 1
TTL = 4 * SECOND
WINDOW = 5 * SECOND
NEVER = -(1 << 63)

Stage = tuple[str, int]  # kind, number of its key


class Shape(NamedTuple):
    """What an application is made from."""

    stages: tuple[Stage, ...]
    sources: int = 1
    delay_s: int = 0

    def __str__(self) -> str:
        stages = " ".join(f"{kind}-{key}" for kind, key in self.stages)
        return f"{self.sources} sources, delay {self.delay_s}, {stages}"


class Kept:
    """State of a key."""

    def __init__(self) -> None:
        self.count = 0
        self.keys = ""


def said(keys: str, place: int, what: str, count: int, time: int) -> str:
    """What a step says of a key."""
    return f"{keys} {what}{place}.{count}@{time / SECOND:.9f}"


# every kind behind every other one; behind one source, and where two meet
SHAPES = tuple(
    Shape(((first, 0), (second, 1)), sources, delay_s=sources)
    for sources in (1, 2)
    for first, second in product(KINDS, KINDS)
)
DEEP = Shape((("both", 0), ("both", 1), ("order", 2), ("both", 0)), sources=2, delay_s=1)


def lines_for(shape: Shape, count: int = 60) -> list[tuple[int, str]]:
    """Return lines, each with the number of its source: out of order, some late."""
    chance = random.Random(7)
    return [
        (
            chance.randrange(shape.sources),
            f"{''.join(chance.choices('abc', k=3))} {number // 3 + chance.randrange(5)} {number}",
        )
        for number in range(count)
    ]


# -- the application


def time_of(event: str) -> int:
    return int(event.split()[1]) * SECOND


def _key_extractor(number: int, place: int) -> Any:
    @wallaroo.key_extractor(f"key {number} of stage {place}")
    def key(event: str) -> str:
        return event[number]

    return key


def _timed(kind: str, place: int) -> Any:
    has_timers = kind != "ttl"

    def gone(own: Kept, context: wallaroo.Context) -> str:
        return said(own.keys, place, "gone", own.count, context.event_time)

    expiry: dict[str, Any] = {"ttl": TTL, "ttl_time": "event", "on_expire": gone}

    @wallaroo.state_computation(
        f"{kind} of stage {place}", state=Kept, **(expiry if kind != "timers" else {})
    )
    def step(event: str, own: Kept, context: wallaroo.Context) -> str:
        own.count += 1
        own.keys = event[:3]
        if has_timers:
            context.set_timer("quiet", context.event_time + QUIET)
            if own.count % 2:
                context.set_timer(f"check {own.count % 4}", context.event_time + CHECK)
            elif own.count % 6 == 0:
                context.cancel_timer("check 1")
        return said(own.keys, place, "e", own.count, context.event_time)

    def due(own: Kept, context: wallaroo.Context, name: str) -> str | None:
        if not own.keys:
            return None
        return said(own.keys, place, name[0], own.count, context.event_time)

    if has_timers:
        step.on_timer(due)

    @step.on_end
    def ended(own: Kept, context: wallaroo.Context) -> str | None:
        return said(own.keys, place, "end", own.count, 0) if own.keys else None

    return step


class Listed(wallaroo.Aggregation[str, list[str], str]):
    """The events of a window, sorted: in which order they come is not promised."""

    def __init__(self, place: int):
        self.place = place

    def initial_accumulator(self) -> list[str]:
        return []

    def update(self, event: str, events: list[str]) -> list[str]:
        events.append(event)
        return events

    def combine(self, left: list[str], right: list[str]) -> list[str]:
        return left + right

    def output(self, key: str, events: list[str]) -> str:
        return listed(events, self.place)


def listed(events: list[str], place: int) -> str:
    """What a window says."""
    return f"{min(events)[:3]} w{place}.{len(events)}: {' | '.join(sorted(events))}"


def _counting(place: int) -> Any:
    @wallaroo.state_computation(f"count of stage {place}", state=Kept)
    def count(event: str, own: Kept, context: wallaroo.Context) -> str:
        own.count += 1
        return said(event[:3], place, "o", own.count, context.event_time)

    return count


def application(shape: Shape, inputs: Path, outputs: Path) -> Application:
    """Build it."""
    delay = wallaroo.seconds(shape.delay_s)
    first, *others = (
        source(inputs, name).with_event_time(time_of, allow_before_1980=True, delay=delay)
        for name in ("in", "in2")[: shape.sources]
    )
    pipeline: Any = first.merge(others[0]) if others else first
    for place, (kind, key) in enumerate(shape.stages):
        pipeline = pipeline.key_by(_key_extractor(key, place))
        if kind == "window":
            windows = wallaroo.range_windows(WINDOW)
            pipeline = pipeline.to(windows.over(Listed(place), name=f"windows of stage {place}"))
        elif kind == "order":
            pipeline = pipeline.in_order(name=f"in order {place}").to(_counting(place))
        else:
            pipeline = pipeline.to(_timed(kind, place))
    return build("in time", pipeline.to_sink(sink(outputs)))


# -- what must come out


class Item(NamedTuple):
    """An event between two stages: its time, and the watermark of its source before it."""

    time: int
    mark: int
    text: str


def expected(shape: Shape, lines: Iterable[tuple[int, str]]) -> list[str]:
    """What comes out, per key of the last stage in order; ``lines`` with the number of their
    source.
    """
    items: list[Item] = []
    newest = [NEVER] * shape.sources
    for number, line in lines:
        at = time_of(line)
        items.append(Item(at, newest[number], line))
        newest[number] = max(newest[number], at - shape.delay_s * SECOND)
    is_ordered = shape.sources == 1
    for place, (kind, key) in enumerate(shape.stages):
        by_key: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            by_key[item.text[key]].append(item)
        of_key = {
            "window": partial(_windows, place),
            "order": partial(_count, place),
        }.get(kind, partial(_Loop.run, kind, place, max(newest), is_ordered))
        items = [output for some in by_key.values() for output in of_key(some)]
        is_ordered = False
    return [item.text for item in items]


def _windows(place: int, items: list[Item]) -> list[Item]:
    windows: dict[int, list[str]] = defaultdict(list)
    for item in items:
        end = (item.time // WINDOW + 1) * WINDOW
        if item.mark < end:
            windows[end].append(item.text)
    return [Item(end - 1, end - 1, listed(texts, place)) for end, texts in sorted(windows.items())]


def _in_order(items: list[Item]) -> list[Item]:
    placed = [Item(item.time, max(item.time - 1, item.mark), item.text) for item in items]
    return sorted(placed, key=lambda item: (item.mark, item.time, pickle.dumps(item.text, 5)))


def _count(place: int, items: list[Item]) -> list[Item]:
    in_time = [item for item in items if item.time >= item.mark]
    return [
        Item(item.time, item.mark, said(item.text[:3], place, "o", count, item.time))
        for count, item in enumerate(_in_order(in_time), 1)
    ]


class _Loop:
    """One key of a step with timers or expiry, event by event."""

    def __init__(self, kind: str, place: int):
        self.has_timers = kind != "ttl"
        self.ttl = None if kind == "timers" else TTL
        self.place = place
        self.state: Kept | None = None
        self.used: int | None = None
        self.timers: dict[str, tuple[int, int]] = {}  # name -> time, watermark when it was set
        self.outputs: list[Item] = []

    @staticmethod
    def run(kind: str, place: int, end: int, is_ordered: bool, items: list[Item]) -> list[Item]:
        loop = _Loop(kind, place)
        for item in items if is_ordered else _in_order(items):
            loop.pass_time(item.mark)
            loop.event(item)
        loop.pass_time(end)
        loop.ttl = None
        loop.pass_time(1 << 63)
        loop.end(end)
        return loop.outputs

    def pass_time(self, mark: int) -> None:
        """Timers and expiry up to a watermark, in order of time; a timer first."""
        while True:
            due = [(at, 0, name) for name, (at, _) in self.timers.items()]
            if self.ttl is not None and self.used is not None:
                due.append((self.used + self.ttl, 1, ""))
            at, is_expiry, name = min(due, default=(1 << 64, 0, ""))
            if at > mark:
                return
            if is_expiry:
                self.say("gone", at, at, at - 1)
                self.state = self.used = None
            else:
                _, added = self.timers.pop(name)
                self.state = self.state or Kept()
                self.say(name[0], at, at, max(at - 1, added))

    def event(self, item: Item) -> None:
        own = self.state = self.state or Kept()
        own.count += 1
        own.keys = item.text[:3]
        if self.has_timers:
            self.timers["quiet"] = item.time + QUIET, item.mark
            if own.count % 2:
                self.timers[f"check {own.count % 4}"] = item.time + CHECK, item.mark
            elif own.count % 6 == 0:
                self.timers.pop("check 1", None)
        newest = max(item.time, item.mark)
        self.used = newest if self.used is None else max(newest, self.used)
        self.say("e", item.time, item.time, item.mark)

    def end(self, mark: int) -> None:
        if self.state is not None:
            self.say("end", 0, mark, mark)

    def say(self, what: str, shown: int, time: int, mark: int) -> None:
        own = self.state
        if own is not None and own.keys:
            text = said(own.keys, self.place, what, own.count, shown)
            self.outputs.append(Item(time, mark, text))
