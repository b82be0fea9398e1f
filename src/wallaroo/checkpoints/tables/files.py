"""Rows of external files (Parquet, CSV, JSON lines) and Delta tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds

from wallaroo.errors import CheckpointError, PeerError, optional_library
from wallaroo.user_code.references import load

FORMS = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
ROWS_AT_ONCE = 16_384
_KEY_TYPES = {"str": pa.string(), "int": pa.int64()}
_NUMBER = re.compile(r"[+-]?[0-9]+")


def rows_of_table(
    path: str, keys: Sequence[str] = (), key_types: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, of a folder of files, or of a Delta table.

    ``key_types`` are those of the columns ``keys`` of CSV, in which texts and numbers look alike.
    Raises PeerError if the rows cannot be read, CheckpointError if types are missing or too many.
    """
    folder = Path(path)
    is_delta = (folder / "_delta_log").is_dir()
    broken: tuple[type[Exception], ...] = (OSError, pa.ArrowException)
    if is_delta:
        with optional_library(f"Delta table {path}", "deltalake"):
            broken += (load("deltalake.exceptions:DeltaError"),)
    try:
        if is_delta or _form_of(folder) != "csv":
            if key_types:
                raise CheckpointError(
                    f"--key-type is for CSV, and table {path} states its types. Leave it out."
                )
            for batch in _delta_batches(path) if is_delta else _batches(folder, _form_of(folder)):
                yield from batch.to_pylist()
        else:
            yield from _csv_rows(folder, keys, key_types)
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


def _csv_rows(
    path: Path, keys: Sequence[str], key_types: Sequence[str]
) -> Iterator[dict[str, Any]]:
    types = {key: pa.string() for key in keys}
    types |= {key: _KEY_TYPES[name] for key, name in zip(keys, key_types, strict=False)}
    options = pyarrow.csv.ConvertOptions(column_types=types)
    form = ds.CsvFileFormat(convert_options=options)
    for batch in _batches(path, form):
        for row in batch.to_pylist():
            for key in keys[len(key_types) :]:
                if _NUMBER.fullmatch(row.get(key) or ""):
                    raise CheckpointError(
                        f"column '{key}' has {row[key]}, which in CSV may be a number or a "
                        f"text. Say what the application's keys are: --key-type int or "
                        f"--key-type str, one for each --key. Nothing was loaded."
                    )
            yield row


def _form_of(path: Path) -> str:
    """Return the form of a file, or of a folder's files.  Raises PeerError if it is unknown."""
    file = path
    if path.is_dir():
        file = next((each for each in sorted(path.rglob("*")) if each.suffix in FORMS), path)
    form = FORMS.get(file.suffix)
    if form is None:
        raise PeerError(
            f"the form of table {path} is unknown. Give a Delta table, or files named "
            f"{', '.join('*' + suffix for suffix in FORMS)}."
        )
    return form


def _batches(path: Path, form: str | ds.FileFormat) -> Iterator[pa.RecordBatch]:
    yield from ds.dataset(str(path), format=form).to_batches(batch_size=ROWS_AT_ONCE)
