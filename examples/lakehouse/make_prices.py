"""Write the lines of a CSV file as the Delta table of prices, in place of what it had."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from deltalake import write_deltalake

TYPES = {"item": pa.string(), "at": pa.timestamp("us", "UTC"), "cents": pa.int64()}


def main(file: str, table: str) -> None:
    """Write the table."""
    options = pyarrow.csv.ConvertOptions(column_types=TYPES)
    Path(table).parent.mkdir(exist_ok=True)
    rows = pyarrow.csv.read_csv(file, convert_options=options)
    write_deltalake(table, rows, mode="overwrite")


if __name__ == "__main__":
    main(*sys.argv[1:])
