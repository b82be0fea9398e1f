"""Keys and event times by the name of a column: of rows as dicts, as objects, and as blocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wallaroo
from wallaroo.errors import UserCodeError
from wallaroo.serdes import row_decoder
from wallaroo.sources import SparkSourceConfig
from wallaroo.testing import run_local

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = [
    {"item": item, "at": BEGIN + timedelta(seconds=second)}
    for item, second in (("tea", 0), ("cup", 1), ("tea", 2), ("tea", 10), ("cup", 12))
]


@dataclass(frozen=True)
class Order:
    item: str
    at: datetime


class Row(NamedTuple):
    item: str
    at: datetime


def none(spark: Any) -> Any:
    raise AssertionError("never called")


def counted(folder: Path, events: list[Any], key: str = "item", **options: Any) -> list[bytes]:
    """Count the events of each item in each ten seconds."""
    orders = wallaroo.source("orders", SparkSourceConfig("orders", none, **options))
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(wallaroo.aggregations.Count())
    counts = orders.with_event_time("at").key_by(key).to(windows)
    sink = wallaroo.FileSinkConfig(str(folder / "out"), None)
    application = wallaroo.build_application("counts", counts.map(str).to_sink(sink))
    return sorted(run_local(application, {"orders": events}).outputs)


def test_rows_are_counted_by_their_columns(tmp_path: Path) -> None:
    assert counted(tmp_path, ROWS) == [b"1", b"1", b"1", b"2"]


@pytest.mark.parametrize("form", [Order, Row])
def test_objects_are_counted_by_their_attributes(tmp_path: Path, form: Any) -> None:
    orders = [form(**row) for row in ROWS]
    assert counted(tmp_path, orders, decoder=row_decoder(form)) == [b"1", b"1", b"1", b"2"]


def test_blocks_are_counted_by_their_columns(tmp_path: Path) -> None:
    assert counted(tmp_path, ROWS, form="batches") == [b"1", b"1", b"1", b"2"]


def test_a_name_that_events_do_not_have_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as caught:
        counted(tmp_path, ROWS, key="customer")
    assert (caught.value.step, caught.value.cause) == ("customer", "KeyError: 'customer'")
    assert "test_columns.py:" in caught.value.place


def test_a_column_that_blocks_do_not_have_is_named_with_those_they_have(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="rows have no column 'customer'; their columns are"):
        counted(tmp_path, ROWS, key="customer", form="batches")
