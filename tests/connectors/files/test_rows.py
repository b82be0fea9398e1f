"""Rows as staged bytes: together if their values are plain, one by one otherwise."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.connectors.file.files import staged
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.files.rows import TOGETHER_MIN, RowPack, as_table, each_row, schema_of
from wallaroo.connectors.lake.rows import ChangePack
from wallaroo.connectors.sql.postgres import rows as postgres_rows
from wallaroo.connectors.sql.rows import ChangePack as SQLChangePack
from wallaroo.connectors.sql.sqlite import rows as sqlite_rows
from wallaroo.errors import WallarooParameterError
from wallaroo.sinks import Delete, DeltaSinkConfig, PostgresSinkConfig, RollingSinkConfig
from wallaroo.testing import run_local

COLUMNS = {
    "name": "string",
    "count": "int32",
    "price": "double",
    "is_open": "bool",
    "raw": "binary",
    "day": "date32",
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("us"),
}
LETTERS = {"step": "string", "error": "string", "batch": "int64", "key": "string"}
EAST = timezone(timedelta(hours=5))
PLAIN = ("tea", 3, 0.5, True, b"x", date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), None)
ROWS = st.tuples(
    st.none() | st.text(max_size=3),
    st.none() | st.integers(-(2**31), 2**31 - 1) | st.just(np.int8(7)) | st.just(2.0),
    st.none() | st.floats(allow_nan=False) | st.integers(0, 9) | st.just(np.float64(0.5)),
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=3),
    st.none() | st.dates() | st.datetimes(),
    st.none() | st.datetimes() | st.datetimes(timezones=st.just(EAST)),
    st.none() | st.datetimes() | st.datetimes(timezones=st.just(UTC)),
)


def packed(pack: Callable[[Any], Any], rows: list[Any]) -> list[bytes]:
    """The staged form of a task's rows."""
    return pack.pack_all([pack(row) for row in rows])  # type: ignore[attr-defined, no-any-return]


@given(st.lists(ROWS, max_size=3 * TOGETHER_MIN))
def test_rows_are_the_same_however_they_are_packed(rows: list[Any]) -> None:
    whole = packed(RowPack(COLUMNS), rows)
    one_by_one = [output for row in rows for output in packed(RowPack(COLUMNS), [row])]
    assert len(whole) == len(rows)
    assert list(each_row(whole)) == list(each_row(one_by_one)) == rows
    schema = schema_of(COLUMNS)
    assert as_table(whole, schema).equals(as_table(one_by_one, schema))


def test_plain_rows_are_one_output_and_others_keep_their_places() -> None:
    odd = ("odd", np.int8(1), *PLAIN[2:])
    rows = [PLAIN] * TOGETHER_MIN + [odd] + [PLAIN] * (TOGETHER_MIN - 1)
    outputs = packed(RowPack(COLUMNS), rows)
    filled = [place for place, output in enumerate(outputs) if output]
    assert filled == [0, *range(TOGETHER_MIN, len(rows))]
    assert list(each_row(outputs)) == rows


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128),
        ("int64", -(2**63) - 1),
        ("int64", 0.5),
        ("int64", "3"),
        ("string", "\ud800"),
        ("string", 3),
        ("double", "x"),
        ("bool", 1),
        ("date32", "2026-01-02"),
        ("uint8", 1.5),
        ("int64", np.float32(1.5)),
        (pa.list_(pa.int64()), [1, 2.9]),
        (pa.large_list(pa.list_(pa.uint8())), [[1], [0.5]]),
        (pa.struct({"x": pa.int64()}), {"x": 1.7}),
        (pa.struct({"x": pa.int64()}), (1.7,)),
        (pa.struct({"x": pa.int64()}), [("x", 1.7)]),
        (pa.map_(pa.string(), pa.int64()), {"x": 1.7}),
        (pa.map_(pa.int64(), pa.string()), [(1.7, "x")]),
        ("float32", 1e300),
        (pa.list_(pa.float32()), [-1e300]),
    ],
)
def test_a_value_that_does_not_fit_is_refused_alone(kind: Any, value: Any) -> None:
    pack = RowPack({"first": "int64", "second": kind})
    with pytest.raises(ValueError, match="column 'second'"):
        pack((1, value))
    assert list(each_row(packed(pack, [(1, None)]))) == [(1, None)]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.decimal128(9, 2), pa.uint8()])
def test_values_that_may_change_or_need_a_check_are_packed_at_once(kind: Any) -> None:
    value: Any = [1] if pa.types.is_list(kind) else 1
    pack = RowPack({"values": kind})
    outputs = [pack((Decimal(1) if pa.types.is_decimal(kind) else value,)) for _ in range(100)]
    if pa.types.is_list(kind):
        value.append(2)
    assert {type(output) for output in outputs} == {bytes}
    assert [pickle.loads(output) for output in pack.pack_all(outputs)] == [
        ([1],) if pa.types.is_list(kind) else (1,)
    ] * 100


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uint8", np.int64(3)),
        ("int64", 2.0),
        (pa.list_(pa.int64()), (1, None, 2.0)),
        (pa.list_(pa.float64()), np.array([1.5, 2.5])),
        (pa.struct({"x": pa.int64(), "y": pa.string()}), {"x": 1}),
        (pa.map_(pa.string(), pa.list_(pa.int64())), {"x": [1], "y": None}),
        ("float32", 0.1),
        ("float32", float("inf")),
        (pa.list_(pa.float32()), [float("nan"), None]),
        (pa.list_(pa.float32()), None),
    ],
)
def test_a_value_that_fits_is_taken(kind: Any, value: Any) -> None:
    (row,) = each_row(packed(RowPack({"values": kind}), [(value,)]))
    assert row[0] is None if value is None else len(row) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_become_json_have_no_nan_and_no_infinity(tmp_path: Path, number: float) -> None:
    """Readers refuse such lines as a whole."""
    columns = {"value": "double", "values": pa.list_(pa.float64())}
    config = RollingSinkConfig(str(tmp_path), columns=columns, form="lines")
    with pytest.raises(ValueError, match=r"column 'value': .* JSON has no NaN and no infinity"):
        config.encoder.function((number, []))
    with pytest.raises(ValueError, match=r"column 'values': .* JSON has no NaN and no infinity"):
        config.encoder.function((1.0, [1.0, number]))
    flat = RowPack({"value": "double"}, is_finite=True)
    assert flat((0.5,)) == (0.5,)
    assert flat((None,)) == (None,)
    assert len(flat.block(pa.table({"value": [0.5, None]}))) == 2
    with pytest.raises(ValueError, match="a number may be NaN or infinite"):
        flat.block(pa.table({"value": [0.5, number]}))


def test_a_number_that_is_too_large_for_a_column_is_no_infinity_in_a_block() -> None:
    pack = RowPack({"value": "float32"})
    assert len(pack.block(pa.table({"value": [0.5, float("inf"), None]}))) == 3
    with pytest.raises(ValueError, match="a value is too large"):
        pack.block(pa.table({"value": [0.5, 1e300]}))


def test_nan_is_no_key_of_a_table() -> None:
    """No other NaN equals it, so that a table would keep several rows of one key."""
    nan = float("nan")
    pack = ChangePack({"key": pa.float64(), "value": pa.float64()}, ("key",))
    for output in ((nan, 1.0), Delete(nan)):
        with pytest.raises(ValueError, match="key column 'key' is nan"):
            pack(output)
    assert pack((1.0, nan))[0] == 1.0
    with pytest.raises(ValueError, match="a value of the key is None or NaN"):
        pack.block(pa.table({"key": [1.0, nan], "value": [1.0, 1.0]}))
    assert len(pack.block(pa.table({"key": [1.0], "value": [nan]}))) == 1
    with pytest.raises(ValueError, match="key column 'venue' is nan"):
        SQLChangePack(sqlite_rows.packed, ("venue",), ("venue",))((nan,))
    config: Any = PostgresSinkConfig("dbname=d", "t", ("venue",), key="venue")
    assert config.encoder.function((nan,)) == b"+nan\n"  # PostgreSQL's NaN equals itself


def test_a_key_of_none_and_a_deletion_among_plain_rows() -> None:
    pack = ChangePack({"key": pa.string(), "value": pa.int64()}, ("key",))
    with pytest.raises(ValueError, match="key column 'key' is None"):
        pack((None, 1))
    rows = [(str(number), number) for number in range(100)]
    outputs = packed(pack, [*rows[:50], Delete("3"), *rows[50:]])
    assert list(each_row(outputs)) == [*rows[:50], ["3", None], *rows[50:]]


class Venue(NamedTuple):
    symbol: str
    venue: str


class Other(NamedTuple):
    first: str
    second: str


def test_a_named_tuple_is_written_by_its_names() -> None:
    columns = {"venue": pa.string(), "symbol": pa.string()}
    for pack in (RowPack(columns), ChangePack(columns, ("venue",))):
        rows = list(each_row(packed(pack, [Venue("A", "X"), Other("X", "B"), ("X", "C")])))
        assert rows == [("X", "A"), ("X", "B"), ("X", "C")]
    assert list(each_row(packed(RowPack({"venue": pa.string()}), [Venue("A", "X")]))) == [("X",)]


@pytest.mark.parametrize("module", [sqlite_rows, postgres_rows])
def test_a_named_tuple_goes_into_a_table_by_its_names(module: Any) -> None:
    columns = ("venue", "symbol")
    plain = module.packed(("X", "A"), columns)
    assert module.packed(Venue("A", "X"), columns) == plain
    assert module.packed(Other("X", "A"), columns) == plain
    pack = SQLChangePack(module.packed, columns, ("venue",))
    assert pack(Venue("A", "X")) == b"+" + plain
    assert pack(Delete(Venue("A", "X"))) == pack(Delete("X"))


def test_dead_letters_of_a_table_are_packed_together(tmp_path: Path) -> None:
    @wallaroo.computation(on_error="dead-letter")
    def picky(number: int) -> int:
        raise ValueError(f"not {number}")

    letters = DeltaSinkConfig(str(tmp_path / "letters"), LETTERS)
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, as_number))
    pipeline = source.to(picky).to_sink(wallaroo.StdoutSinkConfig())
    application = wallaroo.build_application("letters", pipeline, dead_letters=letters)
    result = run_local(application, {"in": [b"%d" % each for each in range(40)]}, tasks=1)
    assert [letter["error"] for letter in result.dead_letters] == [
        f"ValueError: not {number}" for number in range(40)
    ]
    assert {(letter["batch"], letter["key"]) for letter in result.dead_letters} == {(0, None)}


def test_a_table_for_dead_letters_without_a_field_of_theirs_is_refused(tmp_path: Path) -> None:
    letters = DeltaSinkConfig(str(tmp_path / "letters"), {"word": "string"})
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, as_number))
    with pytest.raises(WallarooParameterError, match="is a field of a dead letter"):
        wallaroo.build_application(
            "letters", source.to_sink(wallaroo.StdoutSinkConfig()), dead_letters=letters
        )


@wallaroo.decoder(header_length=4, length_fmt=">I")
def as_number(payload: bytes) -> int:
    return int(payload)


def test_record_batches_become_parquet_by_the_block(tmp_path: Path) -> None:
    @wallaroo.batch_computation
    def as_rows(numbers: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"half": [each / 2 for each in numbers], "n": numbers})

    config = RollingSinkConfig(str(tmp_path / "out"), columns={"n": "int64", "half": "double"})
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, as_number))
    application = wallaroo.build_application("rolled", source.to(as_rows).to_sink(config))
    result = run_local(application, {"in": [b"1", b"2", b"3"]}, tasks=1)
    assert [bool(output) for output in result.outputs] == [True, False, False]
    committer = config.committer("s", tmp_path / "staging", True)
    committer.recover(history_to(-1), [])
    committer.commit(commit_of(0), staged(config, tmp_path / "staging", 0, result.outputs))
    committer.close(60.0)
    [part] = (tmp_path / "out").glob("part-*")
    assert pq.read_table(part).to_pydict() == {"n": [1, 2, 3], "half": [0.5, 1.0, 1.5]}
