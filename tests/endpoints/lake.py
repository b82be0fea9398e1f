"""Delta and Iceberg tables as ends, read by the formats' own libraries; files that Spark reads.

Where it runs: the verifier.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.connectors.files.s3.client import S3Client
from tests.connectors.files.s3.server import KEY, SECRET
from tests.endpoints.interface import Input, Output
from tests.endpoints.objects import BUCKET
from tests.verification.applications.sequence import EVENT

DELTA = f"s3://{BUCKET}/windows"
ICEBERG = "out.windows"


def storage_of(port: int) -> dict[str, str]:
    """Return deltalake's options for the server of the tests."""
    return {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
    }


def catalog_of(uri: str, folder: Path) -> dict[str, str]:
    """Return pyiceberg's options for a catalog in a database, with files in a folder."""
    return {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}


class SparkFiles(Input):
    """A folder to which files of JSON lines are added, one for each portion."""

    portion_s = 1.5  # Spark reads a file at a time, or the order of a key's numbers would be lost

    def __init__(self, folder: Path):
        self._folder = folder / "files"
        self._folder.mkdir()
        self.arguments = ["--source", "spark", "--folder", str(folder)]
        self._put = 0

    def put(self, payloads: list[bytes]) -> None:
        self._put += 1
        rows = [dict(zip(("key", "number"), EVENT.unpack(each), strict=True)) for each in payloads]
        partial = self._folder / f".{self._put}.json"
        partial.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        partial.rename(self._folder / f"{self._put:06d}.json")


class LakeOutput(Output):
    """A table without an order of its own: lines are in the order of keys and numbers."""

    is_watched = True

    def lines(self) -> Iterator[bytes]:
        return iter(sorted((line.encode() for line in self._lines()), key=_place))

    def known(self) -> Iterator[bytes]:
        try:
            return self.lines()
        except Exception:  # noqa: BLE001  # a store's list may lack a file for a moment
            return iter(())

    def _lines(self) -> list[str]:
        lines: list[str] = self._table()["line"].to_pylist()
        return lines

    def _table(self) -> pa.Table:
        raise NotImplementedError


class DeltaOutput(LakeOutput):
    """A Delta table in an S3 store."""

    def __init__(self, port: int, kind: str):
        S3Client(port).make_bucket(BUCKET)
        self.arguments = ["--sink", kind, "--port", str(port), "--target", DELTA]
        self._options = storage_of(port)

    def _table(self) -> pa.Table:
        return DeltaTable(DELTA, storage_options=self._options).to_pyarrow_table()


class IcebergOutput(LakeOutput):
    """An Iceberg table with its catalog in a PostgreSQL database."""

    def __init__(self, port: int, folder: Path, kind: str):
        uri = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        self.arguments = ["--sink", kind, "--catalog", uri, "--target", ICEBERG]
        self.arguments += ["--folder", str(folder)]
        self._options: dict[str, Any] = catalog_of(uri, folder)

    def _table(self) -> pa.Table:
        catalog = load_catalog("default", **self._options)
        try:
            return catalog.load_table(ICEBERG).scan().to_arrow()
        finally:
            catalog.engine.dispose()


def _place(line: bytes) -> tuple[int, int]:
    return int(line.split(b" ")[0]), int(line.rstrip(b"]").split(b" ")[-1])
