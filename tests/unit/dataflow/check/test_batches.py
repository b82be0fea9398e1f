"""What keeps vectorized steps from running is reported when the application is built."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import wallaroo
from wallaroo.errors import PipelineError

Array = np.ndarray[Any, Any]
LAYOUT = wallaroo.fixed_layout([("symbol", "S4"), ("size", "i4")])
SINK = wallaroo.StdoutSinkConfig()


@wallaroo.batch_key_extractor
def symbols(rows: Array) -> Array:
    return rows["symbol"]


def build(*steps: Any) -> None:
    config = wallaroo.TCPSourceConfig("in", "localhost", 0, LAYOUT)
    pipeline: Any = wallaroo.source("in", config)
    for step in steps:
        is_key = isinstance(step, wallaroo.KeyExtractor)
        pipeline = pipeline.key_by(step) if is_key else pipeline.to(step)
    wallaroo.build_application("app", pipeline.to_sink(wallaroo.StdoutSinkConfig()))


def problems(*steps: Any) -> str:
    """The text of what is wrong, all of it."""
    with pytest.raises(PipelineError) as caught:
        build(*steps)
    return str(caught.value)


def test_a_function_says_what_its_rows_are() -> None:
    @wallaroo.batch_computation
    def unsaid(rows):  # type: ignore[no-untyped-def]
        return rows

    found = problems(unsaid)

    assert "step 'unsaid'" in found
    assert "test_batches.py" in found
    assert "Nothing says in which form its function takes its rows." in found
    assert "Annotate its first argument: one of numpy.ndarray" in found


def test_an_annotation_that_is_not_a_form_of_rows_is_named() -> None:
    @wallaroo.batch_computation
    def mistaken(rows: dict[str, int]) -> Any:
        return rows

    assert "Its first argument is annotated with dict[str, int], which is not" in problems(mistaken)


def test_a_schema_is_one_of_pyarrow() -> None:
    with pytest.raises(PipelineError, match=r"Its schema is \{'a': <class 'int'>\}, not one of py"):
        wallaroo.json_lines({"a": int})


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @wallaroo.batch_computation
    def own(rows: Array) -> Array:
        return rows

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    assert "numpy is not here. Install it, here and on every host: numpy." in problems(own)


def test_a_state_step_takes_three_arguments() -> None:
    @wallaroo.batch_state_computation("count", state=[("count", "i8")])
    def count(rows: Array) -> Array:
        return rows

    found = problems(symbols, count)

    assert "a batch_state_computation is called with three arguments or four arguments" in found
    assert "Write it as: def count(rows: numpy.ndarray, at, states): ..." in found


def test_a_function_with_a_setup_takes_its_result_too() -> None:
    @wallaroo.batch_computation(setup=dict)
    def score(rows: np.ndarray) -> np.ndarray:
        return rows

    found = problems(score)

    assert "takes 1 argument; a batch_computation is called with two arguments" in found
    assert "Write it as: def score(rows: numpy.ndarray, prepared): ..." in found


def test_a_state_step_needs_a_key() -> None:
    @wallaroo.batch_state_computation("count", state=[("count", "i8")])
    def count(rows: Array, at: Array, states: Array) -> Array:
        return rows

    assert "no key_by() or collect() comes before it" in problems(count)


def test_states_hold_no_objects_and_begin_as_a_row() -> None:
    @wallaroo.batch_state_computation("objects", state=[("thing", object)])
    def objects(rows: Array, at: Array, states: Array) -> Array:
        return rows

    @wallaroo.batch_state_computation("begin", state=[("count", "i8")], initial=("many",))
    def begin(rows: Array, at: Array, states: Array) -> Array:
        return rows

    found = problems(symbols, objects, begin)

    assert "holds Python objects" in found
    assert "Its initial state ('many',) is not a row of" in found


@pytest.mark.parametrize(
    ("kind", "value"), [("S2", b"abc"), ("i8", 1.5), ("i1", 300), ("U1", "ab")]
)
def test_an_initial_value_is_one_of_its_field(kind: str, value: Any) -> None:
    @wallaroo.batch_state_computation("begin", state=[("value", kind)], initial=(value,))
    def begin(rows: Array, at: Array, states: Array) -> Array:
        return rows

    assert f"Its initial state ({value!r},) is not a row of" in problems(symbols, begin)


@pytest.mark.parametrize(
    ("kind", "value"), [("S2", b"a"), ("f8", math.nan), ("f8", 1), ("?", True), ("f4", 0.1)]
)
def test_an_initial_value_may_be_of_another_type(kind: str, value: Any) -> None:
    @wallaroo.batch_state_computation("begin", state=[("value", kind)], initial=(value,))
    def begin(rows: Array, at: Array, states: Array) -> Array:
        return rows

    build(symbols, begin)


def test_a_generator_is_refused() -> None:
    @wallaroo.batch_computation
    def each(rows: list[Any]) -> Any:
        yield from rows

    assert "Return all rows at once." in problems(each)


@wallaroo.key_extractor
def symbol_of(row: dict[str, Any]) -> bytes:
    return row["symbol"]  # type: ignore[no-any-return]


@wallaroo.batch_computation("halved")
def halved(rows: Array) -> Array:
    return rows[::2]


@wallaroo.computation("same")
def same(row: Any) -> Any:
    return row


class Total(wallaroo.Aggregation[Any, int, int]):
    def initial_accumulator(self) -> int:
        return 0

    def update(self, data: Any, accumulator: int) -> int:
        return accumulator + 1

    def combine(self, accumulator1: int, accumulator2: int) -> int:
        return accumulator1 + accumulator2

    def output(self, key: Any, accumulator: int) -> int:
        return accumulator


def windows() -> Any:
    return wallaroo.range_windows(wallaroo.seconds(1)).over(Total)


@pytest.mark.parametrize(
    "steps",
    [(symbols, windows()), (symbol_of, halved, windows()), (same, halved, symbol_of, windows())],
    ids=["a key extractor", "behind a key", "behind an event"],
)
def test_blocks_do_not_come_where_times_matter(steps: tuple[Any, ...]) -> None:
    found = problems(*steps)

    assert "It is a vectorized step among steps for which time matters (step 'Total')" in found
    assert "Such steps may come first" in found


def test_rows_are_not_put_in_order() -> None:
    config = wallaroo.TCPSourceConfig("in", "localhost", 0, LAYOUT)
    ordered: Any = wallaroo.source("in", config).key_by(symbols).in_order()

    with pytest.raises(PipelineError, match=r"time matters \(step 'in order'\)"):
        wallaroo.build_application("app", ordered.to_sink(wallaroo.StdoutSinkConfig()))


def test_steps_belong_where_they_do() -> None:
    found = problems(LAYOUT)

    assert "to() was given the batch_decoder 'fixed layout' instead of a computation" in found
    assert "A decoder goes into a source configuration." in found


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: wallaroo.fixed_layout("i4"), "has no fields of a fixed length"),
        (lambda: wallaroo.fixed_layout("nonsense"), "is not a dtype"),
        (lambda: wallaroo.fixed_layout([("a", "i4")], fields=["b"]), "'b' is not a field"),
        (lambda: wallaroo.fixed_layout([("a", "i4")], on_error="x"), "on_error='x' is unknown"),
        (lambda: wallaroo.batch_computation("a", batch=0), "batch=0 is not a number of rows"),
        (lambda: wallaroo.batch_computation("a", setup=5), "setup=5 is not a function"),  # type: ignore[call-overload]
        (lambda: wallaroo.batch_state_computation("a"), "needs the state's dtype"),
        (lambda: wallaroo.batch_state_computation("a", state="i8"), "neither a numpy dtype with"),
        (
            lambda: wallaroo.batch_state_computation("a", state=[("n", "i8")], initial=(1, 2)),
            "has not a value per field",
        ),
        (lambda: wallaroo.batch_encoder("a")(5), "expected a function, got 5"),
    ],
)  # fmt: skip
def test_decorators_say_what_is_wrong_with_their_arguments(make: Any, what: str) -> None:
    with pytest.raises(PipelineError, match=what):
        make()


def test_a_key_extractor_of_rows_may_follow_a_column_of_times() -> None:
    left: Any = wallaroo.source("left", wallaroo.TCPSourceConfig("a", "localhost", 0, LAYOUT))
    right: Any = wallaroo.source("right", wallaroo.TCPSourceConfig("b", "localhost", 0, LAYOUT))
    left = left.with_event_time("at")
    right = right.with_event_time("at")
    keyed: Any = left.merge(right).key_by(symbols)

    assert wallaroo.build_application("app", keyed.to(windows()).to_sink(SINK)).plan.has_blocks


def test_each_source_of_rows_needs_a_column_of_times() -> None:
    left: Any = wallaroo.source("left", wallaroo.TCPSourceConfig("a", "localhost", 0, LAYOUT))
    right: Any = wallaroo.source("right", wallaroo.TCPSourceConfig("b", "localhost", 0, LAYOUT))
    keyed = left.with_event_time("at").merge(right).key_by(symbols)

    with pytest.raises(PipelineError, match=r'may follow with_event_time\("column"\)'):
        wallaroo.build_application("app", keyed.to(windows()).to_sink(SINK))


def test_a_column_of_times_needs_rows() -> None:
    source: Any = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "localhost", 0, LAYOUT))

    @wallaroo.batch_computation
    def whole(rows: Array) -> Array:
        return rows

    timed = source.to(same).to(whole).with_event_time("at").key_by(symbol_of).to(windows())

    with pytest.raises(PipelineError) as caught:
        wallaroo.build_application("app", timed.to_sink(SINK))

    assert "It names a column, 'at', and events come to it." in str(caught.value)
    assert "with_event_time(lambda event: event['at'])" in str(caught.value)
    assert "test_batches.py" in str(caught.value)


def timed_rows() -> Any:
    config = wallaroo.TCPSourceConfig("in", "localhost", 0, LAYOUT)
    return wallaroo.source("in", config).with_event_time("size")


def problem_of(keyed: Any, *others: Any) -> str:
    with pytest.raises(PipelineError) as caught:
        wallaroo.build_application("app", *(end.to_sink(SINK) for end in (keyed, *others)))
    return str(caught.value)


def test_rows_may_have_other_uses_right_before_their_key() -> None:
    rows = timed_rows()
    counted = rows.key_by(symbols).to(windows())
    others = [rows.key_by("size"), rows.to(same)]
    named = [
        wallaroo.StdoutSinkConfig(name=str(number)) for number, _ in enumerate([counted, *others])
    ]
    ends = [end.to_sink(sink) for end, sink in zip([counted, *others], named, strict=True)]

    assert wallaroo.build_application("app", *ends).plan.has_blocks


def test_a_key_of_rows_does_not_follow_a_branch() -> None:
    large, small = timed_rows().branch(lambda row: row["size"] > 5)

    problem = problem_of(large.key_by(symbols).to(windows()), small)

    assert "directly, if their stream has other uses; not behind branch()." in problem


@pytest.mark.parametrize("is_before", [True, False])
def test_rows_are_not_merged_with_themselves(is_before: bool) -> None:
    rows = timed_rows()
    keyed = rows.key_by(symbols)
    merged = rows.merge(rows).key_by(symbols) if is_before else keyed.merge(keyed)

    problem = problem_of(merged.to(windows()))

    assert "key_by 'symbols'" in problem
    assert "Its rows are merged with themselves, and would meet block by block." in problem
    assert "Use a per-event key extractor." in problem
