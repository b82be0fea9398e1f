"""Rows for PostgreSQL: the server reads back what the encoder returned; what it cannot hold is
refused in the task.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import wallaroo
from tests.connectors.postgres.server import running_server
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.sinks import PostgresSinkConfig, copy_row, row_encoder
from wallaroo.sinks.wrapped_encoder import WrappedEncoder
from wallaroo.testing import run_step

TEXT = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"))


class Color(enum.StrEnum):
    RED = "red\t"


class Number(enum.IntEnum):
    ONE = 1


@row_encoder
def as_row(event: dict[str, Any]) -> tuple[str, int] | None:
    """The encoder of most tests."""
    return (event["word"], event["total"]) if event["total"] else None


@wallaroo.encoder(name="three")
def three_values(event: object) -> Any:
    return (1, 2, 3)


@wallaroo.encoder
def no_tuple(event: object) -> Any:
    return "word"


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    with (
        running_server() as server,
        psycopg.connect(server.dsn, autocommit=True, client_encoding="utf8") as connection,
    ):
        yield connection


def read_back(
    connection: psycopg.Connection[Any], types: str, rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    connection.execute("DROP TABLE IF EXISTS back")
    connection.execute(
        f"CREATE TEMPORARY TABLE back (id bigint GENERATED ALWAYS AS IDENTITY, {types})".encode()
    )
    columns = ", ".join(column.split()[0] for column in types.split(", "))
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY back ({columns}) FROM STDIN".encode()) as copy,
    ):
        copy.write(b"".join(map(copy_row, rows)))
    return connection.execute(f"SELECT {columns} FROM back ORDER BY id".encode()).fetchall()


@pytest.mark.postgres
@settings(max_examples=60, deadline=None)
@given(rows=some.lists(some.tuples(some.none() | TEXT, some.none() | TEXT), max_size=20))
def test_any_text_comes_back_as_it_was_and_null_stays_null(
    connection: psycopg.Connection[Any], rows: list[Any]
) -> None:
    assert read_back(connection, "a text, b text", rows) == rows


@pytest.mark.postgres
@settings(max_examples=40, deadline=None)
@given(
    row=some.tuples(
        some.integers(-(2**63), 2**63 - 1),
        some.floats(allow_nan=False),
        some.binary(),
        some.booleans(),
    )
)
def test_numbers_bytes_and_booleans_come_back_exactly(
    connection: psycopg.Connection[Any], row: tuple[Any, ...]
) -> None:
    assert read_back(connection, "a bigint, b float8, c bytea, d boolean", [row]) == [row]


@pytest.mark.postgres
def test_the_awkward_texts_come_back(connection: psycopg.Connection[Any]) -> None:
    texts = [
        "\\N",
        "\\.",
        "\\",
        "\\\\N",
        "",
        "a\tb",
        "a\nb",
        "a\r\nb",
        "NULL",
        "größer 🐘",
        "\b\f\v",
        "\x7f\x01",
    ]
    assert read_back(connection, "a text", [(text,) for text in texts]) == [
        (text,) for text in texts
    ]


@pytest.mark.postgres
def test_times_decimals_uuids_and_json_come_back(connection: psycopg.Connection[Any]) -> None:
    types = "a numeric, b timestamptz, c date, d time, e interval, f uuid, g jsonb, h jsonb"
    row = (
        *(
            Decimal("12345678901234567890.000000000123"),
            datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
            date(900, 1, 31),
        ),
        *(time(1, 2, 3, 4), timedelta(days=-3, seconds=5, microseconds=6), UUID(int=77)),
        *({"a\t": ['"\n\\', None, 1.5]}, [1, {"b": "ü"}]),
    )
    assert read_back(connection, types, [row]) == [row]


@pytest.mark.postgres
def test_a_negative_interval_is_the_same_in_every_intervalstyle(
    connection: psycopg.Connection[Any],
) -> None:
    connection.execute("SET intervalstyle = sql_standard")
    span = timedelta(days=-3, seconds=5, microseconds=6)
    connection.execute("CREATE TEMP TABLE spans (span interval)")
    with connection.cursor().copy("COPY spans FROM STDIN") as copy:
        copy.write(copy_row((span,)))
    connection.execute("SET intervalstyle = postgres")
    assert connection.execute("SELECT span FROM spans").fetchone() == (span,)


def test_a_subclass_is_written_as_its_base() -> None:
    assert copy_row((Color.RED, Number.ONE)) == b"red\\t\t1\n"


@pytest.mark.parametrize(
    ("value", "error"),
    [("a\0b", "NUL"), ("\ud800", "surrogates"), (object(), "a object cannot be written")],
)
def test_what_postgresql_cannot_hold_is_refused_in_the_task(value: object, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        copy_row((value,))


def configured(encoder: Any = None, columns: Any = ("word", "total")) -> PostgresSinkConfig:
    return PostgresSinkConfig("dbname=x password=secret", "counts", columns, encoder)


def test_the_sinks_encoder_writes_rows_and_none_writes_nothing() -> None:
    encoder = configured(as_row).encoder
    assert encoder is not None
    assert run_step(encoder, [{"word": "a", "total": 1}, {"word": "b", "total": 0}]) == [b"a\t1\n"]
    assert as_row({"word": "a", "total": 1}) == ("a", 1)


def test_without_an_encoder_outputs_are_rows() -> None:
    encoder = configured().encoder
    assert encoder is not None
    assert run_step(encoder, [("a", None), ["b", 2]]) == [b"a\t\\N\n", b"b\t2\n"]


@pytest.mark.parametrize(
    ("wrong", "what"), [(three_values, "this one returned 3"), (no_tuple, "this one returned str")]
)
def test_a_row_that_does_not_fit_the_columns_is_the_encoders_error(wrong: Any, what: str) -> None:
    encoder = configured(wrong).encoder
    assert encoder is not None
    with pytest.raises(
        UserCodeError, match=f"must return a tuple of 2 values, for the columns word, total, {what}"
    ) as caught:
        run_step(encoder, ["event"])
    assert (caught.value.step, caught.value.place) == (wrong.step_name, wrong.place)


def test_an_error_inside_of_the_users_encoder_is_placed_on_its_line() -> None:
    encoder = configured(as_row).encoder
    assert encoder is not None
    with pytest.raises(UserCodeError) as caught:
        run_step(encoder, [{}])
    file, line = as_row.place.rsplit(":", 1)
    assert caught.value.place in {f"{file}:{int(line) + offset}" for offset in (1, 2, 3)}


def test_a_configuration_travels_and_its_encoder_by_reference() -> None:
    travelled = pickle.loads(pickle.dumps(configured(as_row)))
    assert isinstance(travelled.encoder, WrappedEncoder)
    assert travelled.encoder.inner == as_row
    assert travelled.encoder.function({"word": "a", "total": 1}) == b"a\t1\n"
    assert pickle.loads(pickle.dumps(configured())).encoder.function((1, 2)) == b"1\t2\n"


def test_what_becomes_of_an_error_stays_as_the_user_chose() -> None:
    encoder = configured(row_encoder(on_error="skip")(lambda event: (event, 1))).encoder
    assert encoder is not None
    assert encoder.on_error == "skip"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lambda: row_encoder(on_error="ignore")(as_row.function),
            r"test_postgres_rows\.py.*'stop'",
        ),
        (lambda: row_encoder(7)(as_row.function), "name=7 is not a name"),  # type: ignore[call-overload]
        (lambda: row_encoder("rows")("not a function"), "expected a function, got 'not"),
    ],
)
def test_a_row_encoder_that_cannot_be_made_is_refused(wrong: Callable[[], Any], said: str) -> None:
    with pytest.raises(WallarooParameterError, match=said):
        wrong()


def test_an_application_with_the_sink_is_built_without_a_problem_and_shows_no_password() -> None:
    pipeline = wallaroo.source("words", wallaroo.FileSourceConfig("words", "words.txt")).to_sink(
        configured(as_row)
    )
    assert wallaroo.build_application("Words", pipeline)
    assert configured().label == "postgres counts"
    assert "secret" not in repr(configured())


@pytest.mark.parametrize(
    ("table", "columns"),
    [("counts", "word"), ("counts", ()), ("", ("a",)), ("a.b.c", ("a",)), ("a.", ("a",))],
)
def test_names_that_cannot_be_are_refused_with_the_fix(table: str, columns: Any) -> None:
    with pytest.raises(WallarooParameterError, match="Give "):
        PostgresSinkConfig("", table, columns)
