"""Delta and Iceberg tables for the tests of their sinks: where they are, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from wallaroo.sinks import DeltaSinkConfig, IcebergSinkConfig

FORMATS = ("delta", "iceberg")
NAME = "out.counts"


def options_of(folder: Path) -> dict[str, str]:
    """A catalog in an SQLite file, and its warehouse beside it."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def catalog_of(folder: Path) -> Catalog:
    return load_catalog("default", **options_of(folder))


def sink(form: str, folder: Path, columns: Any, encoder: Any = None, **options: Any) -> Any:
    """The configuration of a sink to the table of a folder."""
    if form == "delta":
        return DeltaSinkConfig(str(folder / "table"), columns, encoder, **options)
    return IcebergSinkConfig(NAME, columns, encoder, options=options_of(folder), **options)


def content(form: str, folder: Path) -> Any:
    """What an independent reader sees, as an Arrow table."""
    if form == "delta":
        return DeltaTable(folder / "table").to_pyarrow_table()
    return catalog_of(folder).load_table(NAME).scan().to_arrow()


def rows(form: str, folder: Path) -> list[tuple[Any, ...]]:
    """The same as sorted tuples."""
    return sorted(tuple(row.values()) for row in content(form, folder).to_pylist())


def versions(form: str, folder: Path) -> list[list[tuple[Any, ...]]]:
    """The rows of each version of the table."""
    if form == "delta":
        table = DeltaTable(folder / "table")
        return [
            [tuple(row.values()) for row in _version(table, one).to_pylist()]
            for one in range(table.version() + 1)
        ]
    table = catalog_of(folder).load_table(NAME)
    return [
        [
            tuple(row.values())
            for row in table.scan(snapshot_id=one.snapshot_id).to_arrow().to_pylist()
        ]
        for one in table.snapshots()
    ]


def _version(table: DeltaTable, version: int) -> Any:
    table.load_as_version(version)
    return table.to_pyarrow_table()


def append(form: str, folder: Path, added: Any) -> None:
    """Write as another writer."""
    if form == "delta":
        write_deltalake(folder / "table", added, mode="append")
    else:
        catalog_of(folder).load_table(NAME).append(added)
