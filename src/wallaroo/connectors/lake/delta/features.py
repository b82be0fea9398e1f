"""Delta tables that deltalake cannot write as their protocol demands, each with its way out.

Where it runs: driver.

The library refuses some of these tables with each commit, as it does the commit of a slower writer,
and writes nulls into others.  So the sink checks a table before it writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from deltalake import DeltaTable, __version__

from wallaroo.connectors.lake.delta.sink import DeltaSinkConfig

WRITER_VERSION_MAX = 7  # from which on features have names
IDENTITY_VERSION = 6  # before features had names, this version stood for identity columns
WRITTEN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",  # if it is unused
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
LIBRARY = f"deltalake {__version__}"
COPY = "let the sink create a table of its own, from which Spark copies the rows"
RETENTION = "delta.setTransactionRetentionDuration"
EXPRESSION = "delta.generationExpression"


def generated_columns(table: DeltaTable) -> dict[str, str]:
    """Return the expressions of columns that are computed from others."""
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    return {
        field["name"]: str(field["metadata"][EXPRESSION])
        for field in fields
        if EXPRESSION in field.get("metadata", {})
    }


def refusal_of(config: DeltaSinkConfig, table: DeltaTable) -> str:
    """Return the reason why the sink cannot write a table, and the way out; or an empty string."""
    protocol = table.protocol()
    settings: Mapping[str, str | None] = table.metadata().configuration
    features = set(protocol.writer_features or ()) - WRITTEN
    if protocol.min_writer_version == IDENTITY_VERSION:
        features = {"identityColumns"}
    if protocol.min_writer_version > WRITER_VERSION_MAX:
        features = {f"writer version {protocol.min_writer_version}"}
    if features:
        return (
            f"has {', '.join(sorted(features))} in its protocol, which {LIBRARY} does not write. "
            f"As its owner, remove what can be removed (ALTER TABLE … DROP FEATURE); or {COPY}."
        )
    return next(_unwritten(config, settings, generated_columns(table)), "")


def _unwritten(
    config: DeltaSinkConfig, settings: Mapping[str, str | None], generated: Mapping[str, str]
) -> Iterator[str]:
    """Yield refusals of what the settings of a table and its columns demand."""
    mode = settings.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        yield (
            f"maps its columns to other names (delta.columnMapping.mode={mode}), under which "
            f"{LIBRARY} would write nulls. As its owner, set the mode to 'none' (ALTER TABLE … SET "
            f"TBLPROPERTIES), which writes its files again; or {COPY}."
        )
    if retained := settings.get(RETENTION):
        yield (
            f"forgets writers ({RETENTION}={retained}), and with them which output it has. As its "
            f"owner, unset that property (ALTER TABLE … UNSET TBLPROPERTIES); or {COPY}."
        )
    if config.key and (settings.get("delta.appendOnly") or "").lower() == "true":
        yield (
            "is append-only (delta.appendOnly=true), and the sink replaces rows. Leave out key=; "
            "or set delta.appendOnly to false as the table's owner."
        )
    for name, expression in generated.items():
        if config.key and name not in config.columns:
            yield (
                f"computes column '{name}' ({expression}), which {LIBRARY} does not compute again "
                f"for rows that are replaced. Add '{name}' to columns=, with values that are "
                f"equal to the expression; or leave out key=."
            )
