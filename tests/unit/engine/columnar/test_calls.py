"""Rows that a vectorized function names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import wallaroo
from wallaroo.engine.columnar.calls import indexes
from wallaroo.testing import LocalRun, run_local


@pytest.mark.parametrize(
    ("named", "wrong"), [([-1], -1), ([0, 2, -3], -3), ([1, 3], 3), ([4, -1], 4), (-2, -2)]
)
def test_an_error_names_the_row_that_is_not_there(named: Any, wrong: int) -> None:
    """The first one, also if its index is negative and others are valid."""
    with pytest.raises(IndexError, match=f"row {wrong} is out of range: there are 3 rows"):
        indexes(named, 3)


def test_the_first_and_the_last_row_are_there() -> None:
    assert indexes([0, 2], 3).tolist() == [0, 2]


LAYOUT = np.dtype([("k", "S1"), ("v", "i8")])


@wallaroo.batch_key_extractor
def by_key(rows: NDArray[Any]) -> NDArray[Any]:
    return rows["k"]


class Seen:
    def __init__(self) -> None:
        self.values: list[int] = []


@wallaroo.state_computation(name="seen", state=Seen)
def collect(row: dict[str, Any], seen: Seen) -> str:
    seen.values.append(row["v"])
    return f"{row['k'].decode()} {seen.values}"


@wallaroo.batch_computation
def above_one(rows: NDArray[Any]) -> NDArray[Any]:
    return rows[rows["v"] > 1]


def ran(*steps: Any, dead_letters: bool = False) -> LocalRun:
    """Run steps after a vectorized key extractor over six rows of two keys, in one block."""
    pipeline = wallaroo.source(
        "s", wallaroo.FileSourceConfig("s", "x", wallaroo.fixed_layout(LAYOUT))
    ).key_by(by_key)
    for step in steps:
        pipeline = pipeline.to(step)
    application = wallaroo.build_application(
        "app",
        pipeline.to_sink(wallaroo.StdoutSinkConfig(wallaroo.encoder(str))),
        dead_letters=wallaroo.FileSinkConfig("letters") if dead_letters else None,
    )
    rows = np.array([(b"ab"[at % 2 : at % 2 + 1], at) for at in range(6)], LAYOUT)
    return run_local(application, {"s": [row.tobytes() for row in rows]}, batches=1, tasks=1)


def test_rows_that_lost_their_keys_do_not_meet_a_state_per_event() -> None:
    with pytest.raises(wallaroo.UserCodeError, match=r"step 'above_one'.*returned 4 rows for 6"):
        ran(above_one, collect)


def test_rows_that_lost_their_keys_may_become_events_without_state() -> None:
    values = ran(above_one, wallaroo.computation("value")(lambda row: row["v"]))

    assert values.text.split() == ["2", "3", "4", "5"]


def test_a_row_that_an_error_names_twice_fails_once() -> None:
    @wallaroo.batch_computation(on_error="dead-letter")
    def refuse(rows: NDArray[Any]) -> NDArray[Any]:
        if len(rows) == 6:
            raise wallaroo.RowError([1, 1, 2, -0], "named twice")
        return rows

    done = ran(refuse, dead_letters=True)

    assert done.errors == {"refuse": 3}
    assert len(done.dead_letters) == 3
    assert len(done.outputs) == 3


def test_a_run_without_a_sink_for_dead_letters_has_none() -> None:
    assert ran().dead_letters == []


def none_at_one(rows: NDArray[Any]) -> NDArray[Any]:
    return np.array([None if row["v"] == 1 else {"v": row["v"]} for row in rows], object)


def test_none_in_an_array_of_objects_is_left_out_as_in_a_list() -> None:
    done = ran(wallaroo.batch_computation("objects")(none_at_one))

    assert len(done.outputs) == 5


def masked(rows: NDArray[Any]) -> Any:
    return np.ma.masked_array(rows["v"], rows["v"] == 1)


def doubled_of_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows, rows], axis=1)


def doubled_of_arrow(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([rows["v"], rows["v"]], names=["k", "k"])


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (masked, "it returned a masked array"),
        (doubled_of_pandas, "several columns named 'k'"),
        (doubled_of_arrow, "several columns named 'k'"),
    ],
)
def test_rows_of_which_a_part_would_be_lost_are_refused(function: Any, why: str) -> None:
    with pytest.raises(wallaroo.UserCodeError, match=why):
        ran(wallaroo.batch_computation("wrong")(function))
