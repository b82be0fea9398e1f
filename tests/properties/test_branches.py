"""Any graph of steps, branches, merges and shuffles gives what its drawing says, however its input
is cut into batches, and whatever is attempted in vain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.properties.test_pipelines import CRASH, Disturbances, disturbances
from wallaroo.api.application import Application
from wallaroo.testing import LocalApplication

Event = list[str]  # an event's number, and the steps it went through; steps change it in place
EVENTS = 12
STEP, STATE, BRANCH, MERGE = range(4)
# what is done with which of the pipelines that there are (modulo their number)
moves = st.lists(
    st.tuples(st.sampled_from((STEP, STATE, BRANCH, MERGE)), st.integers(0, 7), st.integers(0, 7)),
    max_size=7,
)
Moves = list[tuple[int, int, int]]


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(name="number")
def decode(payload: bytes) -> Event:
    return [payload.decode()]


@wallaroo.encoder("steps")
def encode(event: Event) -> str:
    return " ".join(event)


@wallaroo.key_extractor("remainder")
def remainder(event: Event) -> int:
    return int(event[0]) % 3


def tagging(tag: str) -> Any:
    def tag_it(event: Event) -> Event:
        event.append(tag)
        return event

    return tag_it


def counting(name: str) -> Any:
    @wallaroo.state_computation(name, state=Count)
    def count(event: Event, own: Count) -> Event:
        own.count += 1
        event.append(name)
        return event

    return count


def dividing(by: int) -> Any:
    def is_divided(event: Event) -> bool:
        return int(event[0]) % by == 0

    return is_divided


@dataclass
class Drawn:
    """A pipeline, and the events that it must give."""

    pipeline: Any
    events: list[tuple[str, ...]]


class Drawing:
    """A graph and its meaning, drawn move by move; pipelines stay, so that they are used again."""

    def __init__(self) -> None:
        source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "localhost", 0, decode))
        self.drawn = [Drawn(source, [(str(number),) for number in range(EVENTS)])]
        self.unused = {0}
        self.counts: dict[str, Counter[int]] = {}

    def move(self, number: int, kind: int, one: int, other: int) -> None:
        one %= len(self.drawn)
        other %= len(self.drawn)
        chosen = self.drawn[one]
        self.unused -= {one, other} if kind == MERGE else {one}
        name = f"step{number}"
        if kind == STEP:
            self._add(chosen.pipeline.map(tagging(name), name=name), self._tagged(chosen, name))
        elif kind == STATE:
            keyed = chosen.pipeline.key_by(remainder)
            self._add(keyed.to(counting(name)), self._tagged(chosen, name))
            self.counts[name] = Counter(int(event[0]) % 3 for event in chosen.events)
        elif kind == BRANCH:
            by = 2 + number % 3
            sides = chosen.pipeline.branch(dividing(by), name=name)
            for side, is_true in zip(sides, (True, False), strict=True):
                kept = [each for each in chosen.events if (int(each[0]) % by == 0) is is_true]
                self._add(side, kept)
        else:
            merged = chosen.pipeline.merge(self.drawn[other].pipeline)
            self._add(merged, chosen.events + self.drawn[other].events)

    def _tagged(self, drawn: Drawn, name: str) -> list[tuple[str, ...]]:
        return [(*event, name) for event in drawn.events]

    def _add(self, pipeline: Any, events: list[tuple[str, ...]]) -> None:
        self.unused.add(len(self.drawn))
        self.drawn.append(Drawn(pipeline, events))

    def build(self) -> tuple[Application, list[Counter[str]]]:
        """The application, and what each of its sinks must get."""
        ends = [self.drawn[place] for place in sorted(self.unused)]
        closed = [
            end.pipeline.to_sink(wallaroo.TCPSinkConfig("localhost", 1, encode)) for end in ends
        ]
        application = wallaroo.build_application("drawing", *closed)
        return application, [Counter(map(" ".join, end.events)) for end in ends]


@given(moves, disturbances)
def test_every_graph_gives_what_its_drawing_says(drawn: Moves, history: Disturbances) -> None:
    drawing = Drawing()
    for number, move in enumerate(drawn):
        drawing.move(number, *move)
    application, expected = drawing.build()
    running = LocalApplication(application)
    running.send("in", *(str(number).encode() for number in range(EVENTS)))

    for size, tasks, end in history:
        (running.attempt if end == CRASH else running.batch)(size, tasks)
    while running.waiting:
        running.batch(7, 3)

    found = running.result()
    outputs = [Counter(map(bytes.decode, some)) for some in found.by_sink.values()]
    assert outputs == expected
    for name, counts in drawing.counts.items():
        states = {key: state.count for key, state in found.state(name).items()}
        assert states == counts
