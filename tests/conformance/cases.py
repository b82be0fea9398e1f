"""What every runner must give: cases as values.

Order: outputs of one key, from one source, come in the order of its input.  A key is an output's
first word.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.conformance.apps import (
    bill,
    blocks,
    branching,
    detector,
    dropping,
    hooks,
    in_time,
    mutable,
    sessions,
    shapes,
    topology,
    values,
    windowed,
)
from tests.conformance.runners import Build

Outputs = dict[str, list[str]]
Check = Callable[[Outputs], None]
WORD_COUNT = Path(__file__).parents[2] / "examples" / "word_count"


@dataclass(frozen=True, slots=True)
class Case:
    """An application, its input by source, and what is right."""

    name: str
    build: Build
    lines: dict[str, list[str]]
    check: Check = field(repr=False)

    def __str__(self) -> str:
        return self.name


def per_key(
    outputs: Sequence[str], key_of: Callable[[str], str] = lambda line: line.partition(" ")[0]
) -> dict[str, list[str]]:
    """Outputs by key, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for output in outputs:
        found[key_of(output)].append(output)
    return dict(found)


def ordered_per_key(**expected: Sequence[str]) -> Check:
    """By sink: exactly these outputs, in this order within a key."""

    def check(outputs: Outputs) -> None:
        assert {sink: per_key(lines) for sink, lines in outputs.items()} == {
            sink: per_key(lines) for sink, lines in expected.items()
        }

    return check


def exactly(*expected: str) -> Check:
    """One sink, one order."""

    def check(outputs: Outputs) -> None:
        assert outputs == {"out": list(expected)}

    return check


def in_any_order(*expected: str) -> Check:
    """One sink, no order."""

    def check(outputs: Outputs) -> None:
        assert Counter(outputs["out"]) == Counter(expected)

    return check


def counted(*streams: tuple[Callable[[str], object], Sequence[str]]) -> Check:
    """Events of several streams, each with its key's count behind it.

    However the streams interleave: the counts of a key are 1, 2, 3 ... in the order of output, and
    the events of one key and one stream keep their order.  A stream is given as what finds an
    event's key, and its events.
    """
    key_of = {event: key_of_event(event) for key_of_event, events in streams for event in events}
    stream_of = {event: number for number, (_, events) in enumerate(streams) for event in events}
    expected: dict[tuple[object, int], list[str]] = defaultdict(list)
    for event, stream in stream_of.items():
        expected[key_of[event], stream].append(event)

    def check(outputs: Outputs) -> None:
        seen: dict[object, int] = defaultdict(int)
        found: dict[tuple[object, int], list[str]] = defaultdict(list)
        for output in outputs["out"]:
            event, _, count = output.rpartition(" ")
            key = key_of[event]
            seen[key] += 1
            assert int(count) == seen[key]
            found[key, stream_of[event]].append(event)
        assert found == expected

    return check


def first_word(event: str) -> str:
    return event.partition(" ")[0]


def length_of_first_word(event: str) -> int:
    return len(first_word(event))


def stream(tag: str, count: int = 12) -> list[str]:
    """Events of four keys, different in every stream: ``aa L0``, ``bb L1`` ..."""
    return [f"{'abcd'[number % 4] * (2 + number % 2)} {tag}{number}" for number in range(count)]


def totals(events: Sequence[str]) -> list[str]:
    """Each event with its key's running count."""
    seen: Counter[str] = Counter()
    outputs = []
    for event in events:
        seen[first_word(event)] += 1
        outputs.append(f"{event} {seen[first_word(event)]}")
    return outputs


def counted_by(events: Sequence[str], key_of: Callable[[str], object]) -> list[str]:
    """Each event with the running count of any kind of key."""
    seen: Counter[object] = Counter()
    outputs = []
    for event in events:
        seen[key_of(event)] += 1
        outputs.append(f"{event} {seen[key_of(event)]}")
    return outputs


def in_time_case(shape: in_time.Shape, name: str = "", count: int = 60) -> Case:
    """Steps in event time behind each other: each key of the last one has its outputs in order."""
    lines = in_time.lines_for(shape, count)
    key = shape.stages[-1][1]
    expected = in_time.expected(shape, lines)

    def key_of(output: str) -> str:
        return output[key]

    def check(outputs: Outputs) -> None:
        assert per_key(outputs["out"], key_of) == per_key(expected, key_of)

    by_source = {
        source: [line for number, line in lines if number == place]
        for place, source in enumerate(("in", "in2")[: shape.sources])
    }
    return Case(name or str(shape), partial(in_time.application, shape), by_source, check)


def _bill_of_rights() -> Case:
    lines = [line for line in (WORD_COUNT / "bill_of_rights.txt").read_text().split("\n") if line]
    final: dict[str, int] = json.loads((WORD_COUNT / "bill_of_rights_word_counts.json").read_text())
    expected = [
        f"{word} {number}" for word, count in final.items() for number in range(1, count + 1)
    ]
    assert len(expected) == 482
    return Case("bill of rights", bill.word_count, {"in": lines}, ordered_per_key(out=expected))


BLOCK_LINES = ["a bb a ccc", "bb", "what is that ?", "a dddd bb", "ccc a"] * 8


def _block_words() -> list[str]:
    return [word for line in BLOCK_LINES if "?" not in line for word in line.split()]


def _blocks() -> Case:
    """Rows are counted in order, and the lines that a function names are skipped."""
    expected = ordered_per_key(out=counted_by(_block_words(), str))
    return Case("blocks", blocks.counted, {"in": BLOCK_LINES}, expected)


def _blocks_and_events() -> Case:
    seen: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    expected = []
    for word in _block_words():
        seen[word] += 1
        sums[word] += seen[word]
        expected.append(f"{len(word) + 1} {word}! {seen[word]} {sums[word]}")
    check = ordered_per_key(out=expected)
    return Case("blocks and events", blocks.mixed, {"in": BLOCK_LINES}, check)


def _branches() -> Case:
    """Every event is once in each branch that it belongs to, as it was where the stream parted."""
    lines = [f"{'abcd'[number % 4] * (1 + number % 3)} {number}" for number in range(30)]
    counted = counted_by(lines, first_word)
    even = [line for line in counted if int(line.split()[2]) % 2 == 0]

    def check(outputs: Outputs) -> None:
        again = [output.rpartition(" ") for output in outputs["out"]]
        assert Counter(event for event, _, _ in again) == Counter(
            f"{line} {'even' if line in even else 'odd'}" for line in counted
        )
        for word, of_word in per_key(outputs["out"]).items():
            assert [int(output.split()[-1]) for output in of_word] == [*range(1, len(of_word) + 1)]
            numbers = [int(row.split()[1]) for row in of_word]
            assert numbers == sorted(numbers), word
        assert per_key(outputs["out2"]) == per_key([f"{line} spoiled" for line in counted])
        lengths = [output.rpartition(" ") for output in outputs["out3"]]
        assert Counter(event for event, _, _ in lengths) == Counter(even)
        for length in {length_of_first_word(event) for event, _, _ in lengths}:
            counts = [int(n) for event, _, n in lengths if length_of_first_word(event) == length]
            assert counts == [*range(1, len(counts) + 1)]

    return Case("branches", branching.build, {"in": lines}, check)


def several_keys_case(rounds: int = 3, digits: int = 1) -> Case:
    """By first word, by length, by first word: the second key mixes the words of one length, in no
    promised order.
    """
    words = ["aa", "bb", "c", "aa", "c", "aa", "d", "bb"] * rounds
    lines = [f"{word} {number:0{digits}d}" for number, word in enumerate(words)]

    def check(outputs: Outputs) -> None:
        rows = [output.split() for output in outputs["out"]]
        for word, of_word in per_key(outputs["out"]).items():
            own = [row for row in rows if row[0] == word]
            inputs = [line.split()[1] for line in lines if first_word(line) == word]
            assert [row[1:3] for row in own] == [
                [number, str(n)] for n, number in enumerate(inputs, 1)
            ]
            assert [int(row[4]) for row in own] == list(range(1, len(of_word) + 1))
        for length in (1, 2):
            counts = sorted(int(row[3]) for row in rows if len(row[0]) == length)
            assert counts == list(range(1, len(counts) + 1))
        assert len(rows) == len(lines)

    return Case("several key_by", shapes.several_keys, {"in": lines}, check)


def _several_sinks() -> Case:
    left, right = stream("L"), stream("R")

    def check(outputs: Outputs) -> None:
        counted((first_word, left), (first_word, right))(outputs)
        assert Counter(outputs["out2"]) == Counter(outputs["out"])
        assert per_key(outputs["out2"]) == per_key(outputs["out"])
        assert Counter(outputs["out3"]) == Counter(
            line.upper() for line in outputs["out"] if line.endswith(" 1")
        )

    return Case(
        "several sources and sinks", shapes.several_sinks, {"left": left, "right": right}, check
    )


LONG = [
    "str:" + "k" * 600,
    "bytes:" + "k" * 600,
    "str:" + "k" * 600 + "!",
    "str:" + "é" * 300,
    "bytes:" + "k" * 480,
]
KEYS = ["str:1", "bytes:1", "int:1", "str:", "bytes:", "int:0", "int:-1", "int:" + "9" * 30, *LONG]
MANY = ["list", "empty", "none", "tuple", "generator", "holes"]


def _pairs_as_keys() -> Case:
    lines = ["a", "bb", "b", "a", "ba", "bb", "a", "b"] * 3
    expected = []
    for counted in counted_by(lines, lambda line: (line[0], len(line))):
        expected.append(f"{counted} {counted.split()[1]}")
    return Case("pairs as keys", values.pairs_as_keys, {"in": lines}, ordered_per_key(out=expected))


def _several_outputs() -> Case:
    """The second step gives n - 1 outputs for its n-th event of a key."""
    lines = MANY * 3
    given = {
        "list": "12",
        "empty": "",
        "none": "",
        "tuple": "123",
        "generator": "12",
        "holes": "13",
    }
    events = [f"{line} {number}" for line in lines for number in given[line]]
    seen: Counter[str] = Counter()
    expected = []
    for event in events:
        seen[first_word(event)] += 1
        count = seen[first_word(event)]
        expected += [f"{event} {count}{letter}" for letter in "abcdef"[: count - 1]]
    return Case(
        "None, [], tuples and generators from multi",
        values.several_outputs,
        {"in": lines},
        ordered_per_key(out=expected),
    )


def _hooks(name: str, build: Build) -> Case:
    lines = [f"{key} {amount}" for amount in range(1, 9) for key in ("AAPL", "IBM", "")]
    expected, books = [], Counter[str]()
    for number, line in enumerate(lines):
        key, _, amount = line.partition(" ")
        books[key] += int(amount)
        expected.append(f"{key} {books[key]} {number // 3 + 1}")
    return Case(name, build, {"in": lines}, ordered_per_key(out=expected))


def _state_as_output(build: Build, name: str, is_collected: bool) -> Case:
    lines = [f"{key} {number}" for number in range(8) for key in "abc"]

    def check(outputs: Outputs) -> None:
        shown = [f"{line.split(' ')[0]}: {line.split(': ')[1]}" for line in outputs["out"]]
        expected = [
            f"{key}: {','.join(map(str, range(last + 1)))}" for last in range(8) for key in "abc"
        ]
        assert per_key(shown) == per_key(expected)
        counts = [int(line.split(" ")[1].rstrip(":")) for line in outputs["out"]]
        assert sorted(counts) == (
            list(range(1, 25)) if is_collected else sorted([*range(1, 9)] * 3)
        )

    return Case(name, build, {"in": lines}, check)


def _merges_of_merges() -> Case:
    sides = {tag: stream(tag, 9) for tag in "abcd"}
    events = {**sides, "a": [line + "!" for line in sides["a"]]}
    return Case(
        "merges of merges",
        shapes.merges_of_merges,
        sides,
        counted(*((first_word, events[tag]) for tag in "abcd")),
    )


def detector_case(depth: int) -> Case:
    lines = [f"{value} key_{key}" for value in range(1, 11) for key in range(3)]
    expected = []
    for line in lines:
        value, key = line.split()
        window = [max(0, number) for number in range(int(value) - 3, int(value) + 1)]
        expected.append(f"{key} [{','.join(map(str, window))}]")
    build = partial(detector.build, depth=depth)
    return Case(
        f"multi partition detector, depth {depth}",
        build,
        {"in": lines},
        ordered_per_key(out=expected),
    )


def topology_case(stages: tuple[str, ...]) -> Case:
    lines = [f"key_{number % 2} {number}" for number in range(40)]
    check = ordered_per_key(out=topology.expected(stages, lines))
    return Case(
        f"topology {' '.join(stages)}", partial(topology.build, stages=stages), {"in": lines}, check
    )


def dropped_state_case(*, is_multi: bool, numbers: int = 11, digits: int = 1) -> Case:
    """Each key's count begins again after its ``end``."""
    lines = [
        f"{key} {'end' if (number + place) % 4 == 3 else f'{number:0{digits}d}'}"
        for number in range(numbers)
        for place, key in enumerate("abc")
    ]
    seen: Counter[str] = Counter()
    expected: list[str] = []
    for line in lines:
        key = first_word(line)
        seen[key] += 1
        numbers = range(1, seen[key] + 1)
        expected += (
            [f"{line} {number}" for number in numbers]
            if is_multi
            else [f"{line} {seen[key]} {key}"]
        )
        if line.endswith(" end"):
            del seen[key]
    build = dropping.many_outputs if is_multi else dropping.one_output
    name = "state dropped, several outputs" if is_multi else "state dropped"
    return Case(name, build, {"in": lines}, ordered_per_key(out=expected))


LINES = stream("x", 30)
LEFT, RIGHT = stream("L"), stream("R")
FILTERED = [f"{key} {number}" for number in range(6) for key in ("x", "y", "z", "k", "l")]

TIMED_LINES = [
    f"{'abcdefg'[number * 7919 % 7]} {number // 3 + number * 31 % 4} {number}"
    for number in range(300)
]


def _timed(outputs: Outputs) -> None:
    assert per_key(outputs["out"]) == sessions.expected(TIMED_LINES)


def _newest(outputs: Outputs) -> None:
    """Which ones leave depends on the batches; a key's are in order, and its last one is there."""
    counted = counted_by(LINES, first_word)
    assert set(outputs["out"]) <= set(counted)
    for key, rows in per_key(outputs["out"]).items():
        numbers = [int(row.split()[-1]) for row in rows]
        assert numbers == sorted(set(numbers))
        assert rows[-1] == per_key(counted)[key][-1]
    lengths = per_key(outputs["out2"], lambda row: str(length_of_first_word(row)))
    assert set(lengths) == {"2", "3"}
    assert set(outputs["out2"]) <= {f"{row}!" for row in counted}


def _joined_in_windows() -> Case:
    lefts, rights = TIMED_LINES[:150], TIMED_LINES[7:120:2]
    pairs, late = windowed.in_windows(lefts, rights)
    assert late

    def check(outputs: Outputs) -> None:
        assert sorted(outputs["out"]) == sorted(pairs)
        assert sorted(outputs["out2"]) == sorted(late)

    name = "join in windows with late events"
    return Case(name, windowed.joined_in_windows, {"left": lefts, "right": rights}, check)


CASES = (
    Case(
        "running totals",
        shapes.running_totals,
        {"in": ["a b a", "", "b a  c", "a"] * 3},
        ordered_per_key(out=counted_by(["a", "b", "a", "b", "a", "c", "a"] * 3, str)),
    ),
    _bill_of_rights(),
    Case("sessions by timers", sessions.one_step, {"in": TIMED_LINES}, _timed),
    Case(
        "sliding windows",
        windowed.sliding,
        {"in": TIMED_LINES},
        ordered_per_key(out=windowed.in_sliding(TIMED_LINES)),
    ),
    Case(
        "windows added up before the shuffle",
        windowed.pre_aggregated,
        {"in": TIMED_LINES},
        ordered_per_key(out=windowed.in_sliding(TIMED_LINES)),
    ),
    Case(
        "results with their windows",
        windowed.bounded,
        {"in": TIMED_LINES},
        in_any_order(*windowed.in_bounded(TIMED_LINES)),
    ),
    _joined_in_windows(),
    Case(
        "outer join",
        windowed.joined,
        {"left": TIMED_LINES[:90], "right": TIMED_LINES[7:120:2]},
        in_any_order(*windowed.in_joined(TIMED_LINES[:90], TIMED_LINES[7:120:2])),
    ),
    Case(
        "join without a span",
        windowed.tables,
        {"left": TIMED_LINES[:60], "right": TIMED_LINES[7:90:2]},
        in_any_order(*windowed.in_tables(TIMED_LINES[:60], TIMED_LINES[7:90:2])),
    ),
    Case(
        "join until a time of its own, aggregated",
        windowed.best,
        {"left": TIMED_LINES[:90], "right": TIMED_LINES[7:120:2]},
        in_any_order(*windowed.in_best(TIMED_LINES[:90], TIMED_LINES[7:120:2])),
    ),
    Case("newest of a batch", shapes.newest_of_a_batch, {"in": LINES}, _newest),
    Case(
        "as-of join",
        windowed.latest,
        {"left": TIMED_LINES[:90], "right": TIMED_LINES[7:120:2]},
        in_any_order(*windowed.in_latest(TIMED_LINES[:90], TIMED_LINES[7:120:2])),
    ),
    Case(
        "state survives batches",
        values.state_survives,
        {"in": LINES},
        ordered_per_key(out=[f"{line} {line.rpartition(' ')[2]}" for line in totals(LINES)]),
    ),
    several_keys_case(),
    Case("unkeyed", shapes.unkeyed, {"in": LINES}, in_any_order(*(line + "!" for line in LINES))),
    Case(
        "collect in front of a state step",
        shapes.collected,
        {"in": LINES},
        exactly(*(f"{line}! {number}" for number, line in enumerate(LINES, 1))),
    ),
    Case(
        "collect without state",
        shapes.collected_without_state,
        {"in": LINES},
        exactly(*(line + "!" for line in LINES)),
    ),
    Case(
        "merge",
        shapes.merged,
        {"left": LEFT, "right": RIGHT},
        counted((first_word, LEFT), (first_word, RIGHT)),
    ),
    _merges_of_merges(),
    Case(
        "merge of two keys",
        shapes.keyed_on_both_sides,
        {"left": LEFT, "right": RIGHT},
        counted((first_word, LEFT), (length_of_first_word, [line + "!" for line in RIGHT])),
    ),
    Case(
        "unbalanced merge",
        shapes.unbalanced,
        {"deep": LEFT, "plain": RIGHT},
        counted((first_word, totals(LEFT)), (first_word, RIGHT)),
    ),
    Case(
        "keyed streams meet",
        shapes.keyed_streams_meet,
        {"left": LEFT, "right": RIGHT},
        counted((first_word, totals(LEFT)), (first_word, [line + "!" for line in RIGHT])),
    ),
    _several_sinks(),
    Case(
        "one source is empty",
        shapes.merged,
        {"left": LEFT, "right": []},
        counted((first_word, LEFT)),
    ),
    Case(
        "a stateless step used three times",
        shapes.stateless_step_twice,
        {"in": LINES},
        ordered_per_key(
            out=[
                f"{line[: line.rindex(' ')]}!! {line.rpartition(' ')[2]}!" for line in totals(LINES)
            ]
        ),
    ),
    Case(
        "no encoder",
        shapes.no_encoder,
        {"in": LINES},
        in_any_order(*(line + "!" for line in LINES)),
    ),
    Case(
        "None filters everywhere",
        values.none_filters,
        {"in": FILTERED},
        ordered_per_key(
            out=[f"{key} {number} {number + 1}" for number in (1, 3, 5) for key in "kl"]
        ),
    ),
    _several_outputs(),
    Case(
        "keys of every kind",
        values.keys_of_every_kind,
        {"in": KEYS * 3},
        ordered_per_key(out=counted_by(KEYS * 3, str)),
    ),
    _pairs_as_keys(),
    Case(
        "random keys",
        values.random_keys,
        {"in": LINES},
        in_any_order(*(f"{line} 1" for line in LINES)),
    ),
    _state_as_output(values.state_as_output, "state as output", is_collected=False),
    _state_as_output(
        values.state_as_output_collected, "state as output, collected", is_collected=True
    ),
    Case(
        "empty payloads",
        values.empty_payloads,
        {"in": ["", "a", "", "", "b"] * 4},
        ordered_per_key(
            out=[f"bytes:0 {n}" for n in range(1, 13)] + [f"bytes:1 {n}" for n in range(1, 9)]
        ),
    ),
    Case(
        "empty events and outputs",
        values.empty_outputs,
        {"in": ["", "a", "", "b"] * 5},
        in_any_order(*["", "a", "", "b"] * 5),
    ),
    _hooks("own packing, raw frames", hooks.raw_frames),
    _hooks("own packing, events", hooks.own_events),
    Case(
        "plain functions",
        shapes.plain_functions,
        {"in": ["x1 y x2", "x3", "", "x1"] * 2},
        ordered_per_key(out=["X1 1!", "X3 1!", "X1 2!", "X1 3!", "X3 2!", "X1 4!"]),
    ),
    Case(
        "one object, emitted again and again",
        mutable.reused_object,
        {"in": LINES},
        ordered_per_key(out=totals(LINES)),
    ),
    Case(
        "events share an object",
        mutable.shared_object,
        {"in": LINES},
        in_any_order(*(f"{line} 1" for line in LINES)),
    ),
    Case(
        "a decoder that is not deterministic",
        mutable.random_decoder,
        {"in": LINES},
        in_any_order(*(f"{line} True 1" for line in LINES)),
    ),
    in_time_case(in_time.DEEP, "timers and expiry behind four shuffles", count=200),
    dropped_state_case(is_multi=False),
    dropped_state_case(is_multi=True),
    _blocks(),
    _blocks_and_events(),
    Case(
        "windows of rows",
        blocks.summed,
        {"in": TIMED_LINES},
        ordered_per_key(out=blocks.in_summed(TIMED_LINES)),
    ),
    Case(
        "joins of rows",
        blocks.joined,
        {"left": TIMED_LINES[::2], "right": TIMED_LINES[1::2]},
        ordered_per_key(out=blocks.in_joined(TIMED_LINES[::2], TIMED_LINES[1::2])),
    ),
    _branches(),
    *(detector_case(depth) for depth in (1, 2, 3)),
)
