"""Delta and Iceberg tables for the tests of their sinks: where they are, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.types import DoubleType, StringType

from wallaroo.sinks import DeltaSinkConfig, IcebergSinkConfig

FORMATS = ("delta", "iceberg")
JARS = Path(__file__).resolve().parents[3] / ".servers" / "spark-delta"  # with Delta Kernel
NAME = "out.counts"
URI = "catalog's uri"  # a file in a folder whose catalog is a server


def options_of(folder: Path) -> dict[str, str]:
    """The catalog of a folder: a server of the REST protocol if it has one, or an SQLite file."""
    if (folder / URI).exists():
        return {"type": "rest", "uri": (folder / URI).read_text()}
    return sql_options_of(folder)


def sql_options_of(folder: Path) -> dict[str, str]:
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
    if form == "kernel":
        options = {"kernel_jars": str(JARS), **options}
    if form != "iceberg":
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


def add_column(form: str, folder: Path) -> None:
    """Add a column as the table's owner."""
    if form == "delta":
        DeltaTable(folder / "table").alter.add_columns([Field("more", PrimitiveType("double"))])
        return
    with catalog_of(folder).load_table(NAME).update_schema() as update:
        update.add_column("more", DoubleType())


def remove_column(form: str, folder: Path, name: str) -> None:
    """Remove a column as the owner; of a Delta table, by writing all of it again."""
    if form == "delta":
        rest = content(form, folder).drop_columns([name])
        write_deltalake(folder / "table", rest, mode="overwrite", schema_mode="overwrite")
        return
    table = catalog_of(folder).load_table(NAME)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(name)


def retype_column(form: str, folder: Path, name: str) -> None:
    """Let a column hold texts, as the owner: it is removed, and another one has its name."""
    remove_column(form, folder, name)
    if form == "delta":
        table = DeltaTable(folder / "table")
        table.alter.add_columns([Field(name, PrimitiveType("string"))])
        return
    with catalog_of(folder).load_table(NAME).update_schema() as update:
        update.add_column(name, StringType())


def append(form: str, folder: Path, added: Any) -> None:
    """Write as another writer."""
    if form == "delta":
        write_deltalake(folder / "table", added, mode="append")
    else:
        catalog_of(folder).load_table(NAME).append(added)
