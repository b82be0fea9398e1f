"""Print the rows of the Delta table of bills, in the order of their orders."""

from __future__ import annotations

import sys

from deltalake import DeltaTable


def main(table: str) -> None:
    """Print one row per line."""
    for row in DeltaTable(table).to_pyarrow_table().sort_by("id").to_pylist():
        print(" ".join(str(value) for value in row.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
