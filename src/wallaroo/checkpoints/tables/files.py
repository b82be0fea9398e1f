"""Rows of tables from elsewhere: files of Parquet, CSV and JSON lines, and Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from wallaroo.errors import PeerError, optional_library
from wallaroo.user_code.references import load

FORMS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
ROWS_AT_ONCE = 16_384


def rows_of_table(path: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, of a folder of files, or of a Delta table.

    Raises PeerError if they cannot be read.
    """
    folder = Path(path)
    is_delta = (folder / "_delta_log").is_dir()
    broken: tuple[type[Exception], ...] = (OSError, pa.ArrowException)
    if is_delta:
        with optional_library(f"Delta table {path}", "deltalake"):
            broken += (load("deltalake.exceptions:DeltaError"),)
    try:
        for batch in _delta_batches(path) if is_delta else _batches(folder):
            yield from batch.to_pylist()
    except broken as error:
        words = " ".join(str(error).split())
        raise PeerError(f"table {path} cannot be read: {words}.") from error


def _delta_batches(path: str) -> Iterator[pa.RecordBatch]:
    """Yield a Delta table's rows as its engine reads them.

    The table's Arrow data set has nulls in columns that are mapped to other names.
    """
    table = load("deltalake:DeltaTable")(path)
    query: Any = load("deltalake:QueryBuilder")().register("rows", table)
    yield from pa.RecordBatchReader.from_stream(query.execute("SELECT * FROM rows"))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    found = path
    if path.is_dir():
        found = next((file for file in sorted(path.rglob("*")) if file.suffix in FORMS), path)
    form = FORMS.get(found.suffix)
    if form is None:
        raise PeerError(
            f"the form of table {path} is unknown. Give a Delta table, or files named "
            f"{', '.join('*' + suffix for suffix in FORMS)}."
        )
    yield from ds.dataset(str(path), format=form).to_batches(batch_size=ROWS_AT_ONCE)
