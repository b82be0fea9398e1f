"""Delta's connector for Spark as a source: each row once, if the driver is killed in between."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.connectors.spark.delta_child import JARS, STREAM
from tests.forks import Forks

PER_FILE = 200
pytestmark = [
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.skipif(not JARS.is_dir(), reason="run scripts/setup-test-servers"),
]


def append(table: Path, files: range) -> None:
    for number in files:
        ids = range(number * PER_FILE, (number + 1) * PER_FILE)
        write_deltalake(table, pa.table({"id": list(ids)}), mode="append")


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "point"),
    [("table", "commit.before"), (STREAM, "commit.after")],
)
def test_each_row_comes_once_if_the_driver_is_killed(
    tmp_path: Path, child_of: Callable[..., Forks], form: str, point: str
) -> None:
    """A stream continues with what came since; a table that is read ends, whatever comes."""
    application = child_of("tests.connectors.spark.delta_child")
    table = tmp_path / "table"
    append(table, range(3))

    arguments = (table, tmp_path, form)
    assert application.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    append(table, range(3, 5))
    assert application.run(*arguments)[0] == 0

    read = sorted(map(int, (tmp_path / "out.txt").read_text().split()))
    assert read == list(range((5 if form == STREAM else 3) * PER_FILE))


def test_rows_that_were_deleted_are_not_in_a_table(
    tmp_path: Path, child_of: Callable[..., Forks]
) -> None:
    table = tmp_path / "table"
    append(table, range(2))
    DeltaTable(table).delete(f"id % 2 = 1 AND id < {PER_FILE}")
    assert child_of("tests.connectors.spark.delta_child").run(table, tmp_path, "table")[0] == 0
    read = sorted(map(int, (tmp_path / "out.txt").read_text().split()))
    assert read == [*range(0, PER_FILE, 2), *range(PER_FILE, 2 * PER_FILE)]
