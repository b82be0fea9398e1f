"""Applications of many shapes: several keys, merges, sources and sinks.  Each takes (input folder,
output folder).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.steps import by_first_word, by_itself, pass_on, sink, source
from wallaroo.api.application import Application


class Count:
    def __init__(self) -> None:
        self.count = 0


def counting(name: str) -> Any:
    """A state step ``event -> "event n"``: n-th event of its key."""

    @wallaroo.state_computation(name, state=Count)
    def count(event: str, own: Count) -> str:
        own.count += 1
        return f"{event} {own.count}"

    return count


count_one, count_two, count_three = (
    counting("count one"),
    counting("count two"),
    counting("count three"),
)


@wallaroo.key_extractor("by length")
def by_length(event: str) -> int:
    return len(event.partition(" ")[0])


@wallaroo.computation_multi("words")
def words(line: str) -> list[str]:
    return line.split()


@wallaroo.computation("exclaim")
def exclaim(event: str) -> str:
    return event + "!"


def build(name: str, pipeline: Any) -> Application:
    return wallaroo.build_application(name, pipeline)


def ends_in_a_digit(event: str) -> bool:
    return event[-1].isdigit()


def plain_functions(inputs: Path, outputs: Path) -> Application:
    """Functions without decorators, by name and by value, before and after a shuffle."""
    shown: list[str] = []
    pipeline = (
        source(inputs)
        .flat_map(lambda line: (word for word in line.split()))
        .filter(ends_in_a_digit)
        .peek(shown.append, name="look")
        .map(str.upper)
        .key_by(by_itself)
        .to(count_one)
        .map(lambda event: None if event.startswith("X2") else event + "!")
    )
    return build("plain functions", pipeline.to_sink(sink(outputs)))


def running_totals(inputs: Path, outputs: Path) -> Application:
    return build(
        "running totals",
        source(inputs).to(words).key_by(by_itself).to(count_one).to_sink(sink(outputs)),
    )


def several_keys(inputs: Path, outputs: Path) -> Application:
    """Three key_by, three state steps, four levels."""
    keyed = source(inputs).key_by(by_first_word).to(count_one).key_by(by_length).to(count_two)
    return build("several keys", keyed.key_by(by_first_word).to(count_three).to_sink(sink(outputs)))


def newest_of_a_batch(inputs: Path, outputs: Path) -> Application:
    """Behind a state step, and behind a shuffle of its own."""
    counted = source(inputs).key_by(by_first_word).to(count_one)
    return wallaroo.build_application(
        "newest of a batch",
        counted.latest_per_key().to_sink(sink(outputs)),
        counted.map(exclaim)
        .key_by(lambda event: len(event.split()[0]))
        .latest_per_key(name="again")
        .to_sink(sink(outputs, "out2")),
    )


def unkeyed(inputs: Path, outputs: Path) -> Application:
    return build("unkeyed", source(inputs).to(exclaim).to_sink(sink(outputs)))


def collected(inputs: Path, outputs: Path) -> Application:
    return build(
        "collected", source(inputs).to(exclaim).collect().to(count_one).to_sink(sink(outputs))
    )


def collected_without_state(inputs: Path, outputs: Path) -> Application:
    return build("collected", source(inputs).collect().to(exclaim).to_sink(sink(outputs)))


def merged(inputs: Path, outputs: Path) -> Application:
    both = source(inputs, "left").merge(source(inputs, "right"))
    return build("merged", both.key_by(by_first_word).to(count_one).to_sink(sink(outputs)))


def merges_of_merges(inputs: Path, outputs: Path) -> Application:
    first = source(inputs, "a").to(exclaim).merge(source(inputs, "b"))
    second = source(inputs, "c").merge(source(inputs, "d").to(pass_on))
    return build(
        "merges of merges",
        first.merge(second).key_by(by_first_word).to(count_one).to_sink(sink(outputs)),
    )


def keyed_on_both_sides(inputs: Path, outputs: Path) -> Application:
    """Each side has a key extractor of its own; one state step behind."""
    left = source(inputs, "left").key_by(by_first_word)
    right = source(inputs, "right").to(exclaim).key_by(by_length)
    return build("keyed on both sides", left.merge(right).to(count_one).to_sink(sink(outputs)))


def unbalanced(inputs: Path, outputs: Path) -> Application:
    """A keyed state pipeline merged with a plain source, in front of another key_by."""
    deep = source(inputs, "deep").key_by(by_first_word).to(count_one)
    both = deep.merge(source(inputs, "plain"))
    return build("unbalanced", both.key_by(by_first_word).to(count_two).to_sink(sink(outputs)))


def keyed_streams_meet(inputs: Path, outputs: Path) -> Application:
    """Merged behind steps that follow their key_by: events reach the state step with the key they
    had.
    """
    left = source(inputs, "left").key_by(by_first_word).to(count_one)
    right = source(inputs, "right").key_by(by_first_word).to(exclaim)
    return build("keyed streams meet", left.merge(right).to(count_two).to_sink(sink(outputs)))


def several_sinks(inputs: Path, outputs: Path) -> Application:
    """Two sources, keyed state, three sinks."""
    both = source(inputs, "left").merge(source(inputs, "right")).key_by(by_first_word).to(count_one)
    return build(
        "several sinks",
        both.to_sinks([sink(outputs, "out"), sink(outputs, "out2"), _loud(outputs)]),
    )


@wallaroo.encoder("loud")
def loud(event: str) -> bytes | None:
    """Encode for one of the sinks only, and not everything."""
    return event.upper().encode() if event.endswith(" 1") else None


def _loud(outputs: Path) -> wallaroo.FileSinkConfig:
    return wallaroo.FileSinkConfig(outputs / "out3.txt", loud, form="lines")


def stateless_step_twice(inputs: Path, outputs: Path) -> Application:
    twice = source(inputs).to(exclaim).key_by(by_first_word).to(exclaim).to(count_one).to(exclaim)
    return build("stateless step twice", twice.to_sink(sink(outputs)))


def no_encoder(inputs: Path, outputs: Path) -> Application:
    return build(
        "no encoder",
        source(inputs)
        .to(exclaim)
        .to_sink(wallaroo.FileSinkConfig(outputs / "out.txt", form="lines")),
    )
