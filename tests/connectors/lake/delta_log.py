"""Delta tables whose log is written by hand, action by action, as the protocol describes them: with
features that no writer for the tests has.
"""

from __future__ import annotations

import json
import struct
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROARING_ARRAY = 1681511377  # the magic number of the protocol's form of a bitmap
ROARING = 12346  # that of a bitmap without runs
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def column(name: str, kind: str, nullable: bool = True, **metadata: object) -> dict[str, Any]:
    """A field of a table's schema."""
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def versions(reader: int, writer: int) -> dict[str, Any]:
    """A protocol before features had names."""
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def writes(*features: str) -> dict[str, Any]:
    """A protocol with features of writers."""
    return {**versions(1, 7), "writerFeatures": features}


def reads(*features: str) -> dict[str, Any]:
    """A protocol with features of readers and writers."""
    return {**versions(3, 7), "readerFeatures": features, "writerFeatures": features}


@dataclass(frozen=True)
class Form:
    """A table of two columns, or of more."""

    protocol: dict[str, Any]
    settings: dict[str, str] = field(default_factory=dict)
    more: tuple[dict[str, Any], ...] = ()
    mapped: dict[str, dict[str, Any]] = field(default_factory=dict)  # metadata by column

    def actions(self) -> list[dict[str, Any]]:
        """The actions that create the table, or change it to this form."""
        fields = [
            column(name, kind, **self.mapped.get(name, {}))
            for name, kind in (("key", "string"), ("value", "long"))
        ]
        schema = {"type": "struct", "fields": [*fields, *self.more]}
        table = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": [],
            "configuration": self.settings,
            "createdTime": 0,
        }
        return [{"protocol": self.protocol}, {"metaData": table}]


def commit(table: Path, actions: list[dict[str, Any]]) -> None:
    """Add a version to a table."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    number = len(list(log.glob("*.json")))
    info = {"commitInfo": {"timestamp": 0, "inCommitTimestamp": number, "operation": "TEST"}}
    lines = [json.dumps(action) for action in [info, *actions]]
    (log / f"{number:020}.json").write_text("\n".join(lines))


def added(table: Path, rows: pa.Table, deleted: list[int] | None = None) -> dict[str, Any]:
    """Write a file; return the action that adds it, without the rows at some places."""
    path = table / "rows.parquet"
    pq.write_table(rows, path)
    return {
        "add": {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
            "deletionVector": _deletion_vector(deleted) if deleted else None,
        }
    }


def _deletion_vector(places: list[int]) -> dict[str, Any]:
    """A deletion vector within the action."""
    bitmap = struct.pack("<IIHHI", ROARING, 1, 0, len(places) - 1, 16)
    bitmap += b"".join(struct.pack("<H", place) for place in places)
    packed = struct.pack("<IQI", ROARING_ARRAY, 1, 0) + bitmap
    size = len(packed)
    return {
        "storageType": "i",
        "pathOrInlineDv": _z85(packed + b"\0" * (-size % 4)),
        "sizeInBytes": size,
        "cardinality": len(places),
    }


def _z85(packed: bytes) -> str:
    text = ""
    for start in range(0, len(packed), 4):
        number = int.from_bytes(packed[start : start + 4], "big")
        text += "".join(Z85[number // 85**power % 85] for power in range(4, -1, -1))
    return text
