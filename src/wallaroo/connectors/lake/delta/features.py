"""Table features that deltalake cannot write, each with a remedy.

Where it runs: driver.

For some of these tables the library fails each commit, as it does that of a slower writer; into
others it writes nulls.  So the sink checks a table before it writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, __version__

from wallaroo.connectors.lake.delta.kernel import JARS
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
DEFAULT = "CURRENT_DEFAULT"


def generated_columns(table: DeltaTable) -> dict[str, str]:
    """Return the expressions of columns that are computed from others."""
    return {
        field["name"]: str(field["metadata"][EXPRESSION])
        for field in _fields(table)
        if EXPRESSION in field["metadata"]
    }


def _fields(table: DeltaTable) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    return [{"metadata": {}, **field} for field in fields]


def is_for_kernel(config: DeltaSinkConfig, table: DeltaTable) -> bool:
    """Return whether Delta Kernel is to append to a table, as deltalake does not write it."""
    return bool(config.kernel_jars and _unknown_to_library(table))


def refusal_of(config: DeltaSinkConfig, table: DeltaTable) -> str:
    """Return the reason why the sink cannot write a table, and the way out; or an empty string."""
    unknown = _unknown_to_library(table)
    if unknown and not config.kernel_jars:
        reason, removal = unknown
        kernel = "" if config.key else "append to it with Delta Kernel (kernel_jars=); or "
        return f"{reason}. As its owner, {removal}; or {kernel}{COPY}."
    settings = table.metadata().configuration
    generated = generated_columns(table)
    by_kernel = _beyond_kernel(config, table, *unknown) if unknown else iter(())
    return next(chain(by_kernel, _unwritten(config, settings, generated)), "")


def _unknown_to_library(table: DeltaTable) -> tuple[str, str] | None:
    """Return what deltalake does not write in a table, if anything, and how to remove it."""
    protocol = table.protocol()
    features = set(protocol.writer_features or ()) - WRITTEN
    if protocol.min_writer_version == IDENTITY_VERSION:
        features = {"identityColumns"}
    if protocol.min_writer_version > WRITER_VERSION_MAX:
        features = {f"writer version {protocol.min_writer_version}"}
    if features:
        return (
            f"has {', '.join(sorted(features))} in its protocol, which {LIBRARY} does not write",
            "remove what can be removed (ALTER TABLE … DROP FEATURE)",
        )
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        return (
            f"maps its columns to other names (delta.columnMapping.mode={mode}), under which "
            f"{LIBRARY} would write nulls",
            "set the mode to 'none' (ALTER TABLE … SET TBLPROPERTIES), which writes its files "
            "again",
        )
    return None


def _beyond_kernel(
    config: DeltaSinkConfig, table: DeltaTable, reason: str, removal: str
) -> Iterator[str]:
    """Yield refusals for limits of Delta Kernel in this sink; it refuses features itself."""
    fields = {field["name"]: field["metadata"] for field in _fields(table)}
    lacking = [name for name in config.columns if name not in fields]
    defaults = [name for name, metadata in fields.items() if DEFAULT in metadata]
    beyond = {
        "replaces no rows: leave out key=": config.key,
        "adds no columns: add them as the table's owner": config.evolve and lacking,
        "is used for folders only": "://" in config.path,
        "is used for tables without partitions": table.metadata().partition_columns,
        f"computes no defaults: add {', '.join(defaults)} to columns=": [
            name for name in defaults if name not in config.columns
        ],
    }
    for words, is_wanted in beyond.items():
        if is_wanted:
            yield f"{reason}, and Delta Kernel {words}; or {removal}; or {COPY}."
    if missing := [name for name in JARS if not Path(config.kernel_jars, name).is_file()]:
        yield f"{reason}, and kernel_jars='{config.kernel_jars}' has no {', '.join(missing)}."


def _unwritten(
    config: DeltaSinkConfig, settings: Mapping[str, str | None], generated: Mapping[str, str]
) -> Iterator[str]:
    """Yield refusals of features that the table's settings and columns require."""
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
