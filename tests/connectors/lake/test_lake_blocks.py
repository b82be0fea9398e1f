"""Rows of vectorized steps in tables: whole blocks, as exact as rows one by one."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wallaroo
from tests.connectors.lake.tables import FORMATS, rows, sink
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import Delete
from wallaroo.sources import ReplayableSource
from wallaroo.testing import run_local

form = pytest.mark.parametrize("form", FORMATS)
COLUMNS = {"key": "string", "value": "int64"}
COUNT = 9000
KEYS = 7
PAIR = np.dtype([("value", "i4"), ("key", "S1")])


class Numbers(ReplayableSource[int]):
    """Numbers up to a count."""

    def __init__(self) -> None:
        super().__init__("numbers")

    def partitions(self) -> list[str]:
        return ["0"]

    def end(self, partition: str) -> int:
        return COUNT

    def is_ended(self) -> bool:
        return True

    def read(self, partition: str, start: int, end: int) -> Any:
        yield from range(start, end)


@wallaroo.batch_computation
def keyed(numbers: list[int]) -> pa.RecordBatch:
    """Rows as narrow columns, in another order than the table's, and one more."""
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(numbers, pa.int32()),
            "key": pa.array([str(n % KEYS) for n in numbers], pa.large_string()),
            "more": pa.array(numbers),
        }
    )


@wallaroo.batch_computation(on_error="skip")
def doubtful(numbers: list[int]) -> pa.RecordBatch:
    """The third row does not fit."""
    values = [number + 0.5 if number == 2 else float(number) for number in numbers]
    return pa.RecordBatch.from_pydict({"key": ["k"] * len(values), "value": values})


@wallaroo.batch_computation
def as_array(numbers: list[int]) -> Any:
    """Texts of numpy are bytes: these rows are written one by one."""
    return np.array([(number, b"k") for number in numbers], PAIR)


def outputs_of(config: Any, step: Any, inputs: list[int]) -> tuple[list[bytes], list[Any]]:
    decoder = Json(int).decoder
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, decoder))
    application = wallaroo.build_application("lake", source.to(step).to_sink(config))
    result = run_local(application, {"in": inputs}, tasks=1)
    return result.outputs, result.decoded


@form
@pytest.mark.parametrize("key", [(), ("key",)])
def test_blocks_come_into_a_table_whole_and_in_order(
    form: str, tmp_path: Path, key: tuple[str, ...]
) -> None:
    config = sink(form, tmp_path, COLUMNS, key=key, group_s=0.0)
    pipeline = wallaroo.source("numbers", Numbers()).to(keyed).to_sink(config)
    options = wallaroo.RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(wallaroo.build_application("lake", pipeline), options, InProcessHost(2))
    run.begin()
    assert run.wait(400)
    assert run.status().outputs == COUNT
    first = COUNT - KEYS if key else 0
    assert rows(form, tmp_path) == sorted((str(n % KEYS), n) for n in range(first, COUNT))


@form
def test_rows_of_a_block_are_one_staged_output_and_counted_each(form: str, tmp_path: Path) -> None:
    outputs, decoded = outputs_of(sink(form, tmp_path, COLUMNS), keyed, [5, 6, 7])
    assert [bool(each) for each in outputs] == [True, False, False]
    assert decoded == [{"key": str(n % KEYS), "value": n} for n in (5, 6, 7)]


@form
def test_a_block_with_a_row_that_does_not_fit_is_written_row_by_row(
    form: str, tmp_path: Path
) -> None:
    config = sink(form, tmp_path, COLUMNS, skipping)
    with pytest.raises(wallaroo.UserCodeError, match=r"column 'value': 2\.5 .*not a whole number"):
        outputs_of(sink(form, tmp_path, COLUMNS), doubtful, [1, 2, 3])
    _, decoded = outputs_of(config, doubtful, [1, 2, 3])
    assert decoded == [{"key": "k", "value": 1}, {"key": "k", "value": 3}]


@form
def test_a_block_without_a_key_in_a_row_names_the_row(form: str, tmp_path: Path) -> None:
    @wallaroo.batch_computation
    def without_key(numbers: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": ["a", None], "value": numbers})

    with pytest.raises(wallaroo.UserCodeError, match="key column 'key' is None"):
        outputs_of(sink(form, tmp_path, COLUMNS, key="key"), without_key, [1, 2])


@wallaroo.encoder(on_error="skip")
def skipping(row: dict[str, Any]) -> dict[str, Any]:
    return row


@form
def test_values_that_no_column_takes_as_they_are_go_one_by_one(form: str, tmp_path: Path) -> None:
    outputs, decoded = outputs_of(sink(form, tmp_path, COLUMNS), as_array, [1])
    assert pickle.loads(outputs[0]) == (b"k", 1)
    assert decoded == [{"key": b"k", "value": 1}]


def test_deletions_and_rows_are_decoded(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Count:
        key: str
        value: int

    config = sink("delta", tmp_path, Count, key="key")
    outputs = [config.encoder.function(change) for change in (Count("a", 1), Delete("b"))]
    staged = config.encoder.pack_all(outputs)
    assert config.decoded_all(staged) == [{"key": "a", "value": 1}, Delete(("b",))]
