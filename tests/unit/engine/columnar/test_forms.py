"""Blocks in other forms: each row becomes what it would become alone."""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

import wallaroo
from wallaroo.aggregations import Last
from wallaroo.engine.columnar.forms import as_arrow, as_form
from wallaroo.engine.columnar.rows import events_of, without_views
from wallaroo.serdes import Json
from wallaroo.testing import run_local
from wallaroo.vectorized.row_error import Inconvertible
from wallaroo.vectorized.steps import Form


def _arrow(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def _pandas(rows: pd.DataFrame) -> pd.DataFrame:
    return rows


def _polars(rows: pl.DataFrame) -> pl.DataFrame:
    return rows


def _numpy(rows: NDArray[Any]) -> NDArray[Any]:
    return rows


FUNCTIONS = {
    Form.ARROW: _arrow,
    Form.PANDAS: _pandas,
    Form.POLARS: _polars,
    Form.NUMPY: _numpy,
}
ANY_FORM = pytest.mark.parametrize("form", FUNCTIONS)


def _passed(form: Form, events: list[Any], batches: int = 1) -> tuple[list[Any], list[Any]]:
    """Return what a step that returns its rows emits, and the causes of its dead letters."""
    emitted: list[Any] = []

    @wallaroo.encoder
    def keep(event: Any) -> str:
        emitted.append(event)
        return ""

    step = wallaroo.batch_computation("same", on_error="dead-letter")(FUNCTIONS[form])
    source = wallaroo.source("s", wallaroo.FileSourceConfig("s", "x", Json().decoder))
    application = wallaroo.build_application(
        "app",
        source.to(step).to_sink(wallaroo.StdoutSinkConfig(keep)),
        dead_letters=wallaroo.FileSinkConfig("letters"),
    )
    payloads = [Json().encoder.encode(event) for event in events]
    done = run_local(application, {"s": payloads}, batches=batches, tasks=1)
    return emitted, [letter["error"] for letter in done.dead_letters]


@pytest.mark.parametrize("form", [Form.ARROW, Form.PANDAS, Form.POLARS])
def test_a_column_that_the_first_event_lacks_is_not_lost(form: Form) -> None:
    rows, _ = _passed(form, [{"s": "first"}, {"s": "x", "amount": 1}, {"t": [1]}])

    assert [row.get("s") for row in rows] == ["first", "x", None]
    assert [row.get("amount") for row in rows] == [None, 1, None]


def test_events_with_different_columns_become_arrays_of_their_own() -> None:
    events = [{"s": "first"}, {"s": "x", "amount": 1}, {"amount": 2, "s": "y"}]

    assert _passed(Form.NUMPY, events) == (events, [])


MIXED = [
    [7, "zz", 7, "zz"],
    [2**53 + 1, 1.5, 2**53 + 1],
    [True, 2, True, 1.5],
    [2**63 - 1, -1, 1.5],
    ["a", "bc", ""],
    [[1, 2], [3], [2**53 + 1, 1], [0.5, 1.5]],
]


@ANY_FORM
@pytest.mark.parametrize("values", MIXED, ids=repr)
def test_a_value_is_the_same_whatever_its_neighbours_are(form: Form, values: list[Any]) -> None:
    events = [{"v": value} for value in values]

    together, errors = _passed(form, events)
    one_by_one, _ = _passed(form, events, batches=len(events))

    assert [_value(row) for row in together] == [_value(row) for row in one_by_one]
    assert [_value(row) for row in together] == [_value(event) for event in events]
    assert errors == []


def _value(event: Any) -> Any:
    value = event["v"].tolist() if isinstance(event["v"], np.ndarray) else event["v"]
    return isinstance(value, bool), value


@ANY_FORM
def test_integers_beside_floats_become_floats_of_the_same_value(form: Form) -> None:
    assert _passed(form, [{"v": 1}, {"v": 1.5}])[0] == [{"v": 1}, {"v": 1.5}]


@ANY_FORM
def test_a_value_without_columns_between_dicts_stays_one(form: Form) -> None:
    rows, _ = _passed(form, [{"s": "a"}, "text", {"s": "b"}])

    text: Any = "text" if form is Form.NUMPY else {"value": "text"}
    assert rows == [{"s": "a"}, text, {"s": "b"}]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "column 'v' is null, for which numpy has no value"),
        ("a\0", "column 'v' ends with zero characters"),
        ([2**53 + 1, 1.5], "column 'v': values would change in a numpy array"),
        ([1, "a"], "column 'v': values would change in a numpy array"),
    ],
    ids=repr,
)
def test_a_row_that_numpy_cannot_hold_is_the_only_one_that_fails(value: Any, why: str) -> None:
    rows, errors = _passed(Form.NUMPY, [{"v": "x"}, {"v": value}, {"v": "y"}])

    assert rows == [{"v": "x"}, {"v": "y"}]
    assert len(errors) == 1
    assert why in errors[0]


def test_nulls_of_a_record_batch_fail_alone_in_an_array() -> None:
    batch = pa.RecordBatch.from_pydict({"i": [1, None, 3], "f": [None, 1.5, 2.5]})

    with pytest.raises(wallaroo.RowError, match="column 'i' is null") as refused:
        as_form(batch, Form.NUMPY)

    assert refused.value.rows.tolist() == [False, True, False]
    floats = as_form(batch.select(["f"]), Form.NUMPY)["f"].tolist()
    assert math.isnan(floats[0])
    assert floats[1:] == [1.5, 2.5]


@pytest.mark.parametrize("kind", [pa.int64(), pa.int8(), pa.uint64()])
def test_a_null_does_not_change_integers_of_a_data_frame(kind: Any) -> None:
    largest = {pa.int64(): 2**53 + 1, pa.int8(): 127, pa.uint64(): 2**64 - 1}[kind]
    batch = pa.RecordBatch.from_pydict({"i": pa.array([largest, None], kind)})

    frame = as_form(batch, Form.PANDAS)

    assert frame["i"][0] == largest
    assert as_form(frame, Form.ARROW) == batch
    assert events_of(frame) == [{"i": largest}, {"i": None}]
    assert as_form(batch.slice(0, 1), Form.PANDAS)["i"].dtype == kind.to_pandas_dtype()


@ANY_FORM
def test_an_event_without_columns_is_not_lost(form: Form) -> None:
    rows, errors = _passed(form, [{}])

    assert (rows == [{}]) is (form is Form.ARROW)
    assert len(rows) + len(errors) == 1
    assert form is Form.ARROW or "without columns" in errors[0]


def test_a_column_named_value_keeps_its_name_in_an_array() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [5]})

    assert list(events_of(as_form(batch, Form.NUMPY))) == [{"value": 5}]


@pytest.mark.parametrize(
    "values",
    [
        ["a", b"b"],
        [
            datetime.datetime(2026, 1, 1),  # noqa: DTZ001  # the case
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        ],
    ],
    ids=repr,
)
def test_values_that_a_column_would_change_have_no_common_one(values: list[Any]) -> None:
    with pytest.raises(ValueError, match="column 'v' has"):
        as_form([{"v": value} for value in values], Form.ARROW)


@wallaroo.batch_computation(on_error="dead-letter")
def old_times(rows: NDArray[Any]) -> pa.RecordBatch:
    seconds = np.where(rows["v"] < 0, -(10**11), rows["v"])
    columns = {"v": rows["v"], "old": pa.array(seconds, pa.timestamp("s"))}
    return pa.RecordBatch.from_pydict({**columns, "at": np.arange(len(rows)) + 1e9})


@wallaroo.computation
def same(row: Any) -> Any:
    return row


@wallaroo.batch_key_extractor
def by_value(rows: pa.RecordBatch) -> pa.Array:
    return rows.column("v")


BEFORE_EVENTS: dict[str, Callable[[Any], Any]] = {
    "sink": lambda rows: rows,
    "step": lambda rows: rows.to(same),
    "shuffle": lambda rows: rows.key_by(by_value).to(same),
    "sink after shuffle": lambda rows: rows.key_by(by_value),
    "timed shuffle": lambda rows: rows.with_event_time("at").key_by(by_value).to(same),
    "windows": lambda rows: (
        rows.with_event_time("at")
        .key_by(by_value)
        .to(wallaroo.range_windows(wallaroo.minutes(1)).over(Last(lambda row: row["v"])))
    ),
}


@pytest.mark.parametrize("place", BEFORE_EVENTS)
def test_a_row_that_is_no_event_fails_alone_in_the_step_that_returned_it(place: str) -> None:
    """Year -1199 is a timestamp in Arrow, and no ``datetime``."""
    source = wallaroo.source("s", wallaroo.FileSourceConfig("s", "x", wallaroo.json_lines()))
    application = wallaroo.build_application(
        "app",
        BEFORE_EVENTS[place](source.to(old_times)).to_sink(
            wallaroo.StdoutSinkConfig(wallaroo.encoder(str))
        ),
        dead_letters=wallaroo.FileSinkConfig("letters"),
    )

    done = run_local(application, {"s": [b'{"v":0}', b'{"v":-1}', b'{"v":1}']}, tasks=1)

    assert len(done.outputs) == 2
    assert len(done.dead_letters) == 1
    assert "out of range" in done.dead_letters[0]["event"]
    assert done.errors == {"old_times": 1}


VALUES_OF_COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "lists": (pa.list_(pa.int64()), [[2**53 + 1], [7, None], [], None]),
    "structs": (pa.struct([("id", pa.int64())]), [{"id": 2**53 + 1}, {"id": None}, None]),
    "texts of lists": (pa.list_(pa.string_view()), [["a", "b"], ["c"], None]),
    "views": (pa.string_view(), ["a", "longer than twelve", None]),
    "times": (pa.timestamp("us"), [datetime.datetime(2026, 1, 2, 3), None]),  # noqa: DTZ001
    "seconds": (pa.timestamp("s", "UTC"), [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]),
    "nanoseconds": (pa.timestamp("ns"), [pd.Timestamp(1_704_070_923_000_000_123), None]),
    **{
        f"durations in {unit}": (pa.duration(unit), [datetime.timedelta(days=3, seconds=5), None])
        for unit in ("s", "ms", "us", "ns")
    },
}


@pytest.mark.parametrize("form", [Form.ARROW, Form.PANDAS, Form.POLARS, Form.LIST])
@pytest.mark.parametrize("column", VALUES_OF_COLUMNS)
def test_a_row_of_any_form_becomes_the_same_event(column: str, form: Form) -> None:
    kind, values = VALUES_OF_COLUMNS[column]
    batch = without_views(pa.RecordBatch.from_pydict({"v": pa.array(values, kind)}))

    events = list(events_of(as_form(batch, form)))

    assert [event["v"] for event in events] == values
    assert [type(event["v"]) for event in events] == [type(v) for v in batch["v"].to_pylist()]
    again = as_arrow(events)["v"].to_pylist()
    assert again == values


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_of_an_array_become_times(kind: str, unit: str) -> None:
    rows = np.array([(5,), (-1,)], "i8").astype(f"{kind}[s]").astype(f"{kind}[{unit}]")
    rows = rows.view([("t", f">{kind}[{unit}]")]).byteswap().reshape(-1)

    events = [event["t"] for event in events_of(rows)]

    begin = datetime.datetime(1970, 1, 1) if kind == "M8" else datetime.timedelta()  # noqa: DTZ001
    seconds = datetime.timedelta(seconds=1)
    assert events == [begin + 5 * seconds, begin - seconds]


TEXTS = [b"x\0y", b"x\0z", b"", b"abcd"]


@pytest.mark.parametrize("dtype", ["S4", "U4", "V4"])
@pytest.mark.parametrize("form", [Form.ARROW, Form.PANDAS, Form.POLARS])
def test_a_zero_ends_no_text(form: Form, dtype: str) -> None:
    rows = np.zeros(len(TEXTS), [("id", dtype), ("n", "i4")])
    rows["id"] = np.array([each.decode() if dtype == "U4" else each for each in TEXTS], dtype)

    ids = [event["id"] for event in events_of(as_form(rows, form))]

    assert ids == rows["id"].tolist()


def test_a_row_of_views_that_is_refused_fails_alone() -> None:
    stream = io.BytesIO()
    pl.DataFrame({"v": ["a", "bad", "c"]}).write_ipc_stream(stream)

    @wallaroo.batch_computation(on_error="skip")
    def refuse(rows: pa.RecordBatch) -> pa.RecordBatch:
        wrong = pc.equal(rows["v"], "bad").to_numpy(zero_copy_only=False)
        if wrong.any():
            raise wallaroo.RowError(wrong, "bad")
        return rows

    source = wallaroo.source("s", wallaroo.FileSourceConfig("s", "x", wallaroo.arrow_ipc()))
    application = wallaroo.build_application(
        "app", source.to(refuse).to_sink(wallaroo.StdoutSinkConfig(wallaroo.encoder(str)))
    )

    done = run_local(application, {"s": [stream.getvalue()]}, tasks=1)

    assert done.text.splitlines() == ["{'v': 'a'}", "{'v': 'c'}"]
    assert done.errors == {"refuse": 1}


@wallaroo.batch_key_extractor
def by_key(rows: NDArray[Any]) -> NDArray[Any]:
    return rows["k"]


WIDTHS: dict[str, list[Any]] = {
    "M8[s]": [np.datetime64(number, "s") for number in range(6)],
    "M8[ns]": [np.datetime64(number, "ns") for number in range(6)],
    "m8[us]": [np.timedelta64(number, "us") for number in range(6)],
    "V4": [b"%d\0x" % number for number in range(6)],
    "S4": [b"%d\0x" % number for number in range(6)],
}


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_columns_of_any_fixed_width_cross_a_shuffle_and_a_join(dtype: str, tasks: int) -> None:
    rows = np.zeros(6, [("k", "i8"), ("at", "f8"), ("v", dtype)])
    rows["k"] = np.arange(6)
    rows["at"] = 1e9
    rows["v"] = np.array(WIDTHS[dtype], dtype)
    decode = wallaroo.fixed_layout(rows.dtype)
    left, right = (
        wallaroo.source(name, wallaroo.FileSourceConfig(name, name, decode))
        .with_event_time("at", name=f"times of {name}")
        .key_by(by_key)
        for name in "lr"
    )
    joined = left.join(right, wallaroo.with_columns(w="v"), within=wallaroo.seconds(1))
    values: list[Any] = []

    @wallaroo.encoder
    def keep(event: Any) -> str:
        values.append((event["v"], event["w"]))
        return ""

    application = wallaroo.build_application("app", joined.to_sink(wallaroo.StdoutSinkConfig(keep)))
    payloads = [row.tobytes() for row in rows]

    run_local(application, {"l": payloads, "r": payloads}, tasks=tasks)

    expected = [event["v"] for event in events_of(rows)]
    assert sorted(values, key=repr) == sorted(zip(expected, expected, strict=True), key=repr)


@pytest.mark.parametrize("form", [Form.ARROW, Form.POLARS, Form.LIST])
def test_nan_of_a_data_frame_stays_nan_among_floats_and_is_null_among_objects(form: Form) -> None:
    frame = pd.DataFrame({"f": [1.5, math.nan], "o": ["a", math.nan], "l": [[math.nan], None]})

    events = list(events_of(as_form(frame, form)))

    assert math.isnan(events[1]["f"])
    assert [event["o"] for event in events] == ["a", None]
    assert math.isnan(events[0]["l"][0])
    assert events[1]["l"] is None


@pytest.mark.parametrize("form", [Form.ARROW, Form.PANDAS, Form.POLARS])
def test_integers_of_64_bits_without_a_sign_stay_integers(form: Form) -> None:
    events = [{"v": 2**64 - 1}, {"v": 0}]

    assert list(events_of(as_form(events, form))) == events


NOON = np.datetime64("2026-01-01T12", "us")
SCALARS: list[Any] = [np.True_, np.int64(7), np.float32(0.5), np.str_("a"), np.timedelta64(1, "s")]


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars_of_numpy_are_values_and_beside_a_time_in_a_block_of_their_own(scalar: Any) -> None:
    assert as_arrow([{"v": scalar}, {"v": None}])["v"].to_pylist() == [scalar.item(), None]
    with pytest.raises(Inconvertible, match="column 'v' has values of several types"):
        as_arrow([{"v": NOON}, {"v": scalar}])
    assert as_arrow([{"v": NOON}, {"v": NOON}])["v"].to_pylist() == [NOON.item()] * 2


@pytest.mark.parametrize("dtype", ["S4", "U4", "V4", "S0", "M8[ns]"])
def test_a_block_without_rows_has_its_columns(dtype: str) -> None:
    assert as_arrow(np.empty(0, [("v", dtype)])).schema.names == ["v"]
