"""Tables of other writers with features that a sink's library does not write, or writes wrongly:
refused when the sink is opened, by a sentence; and those that it can write are written right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.connectors.lake.delta_log import Form, added, column, commit, reads, versions, writes
from tests.connectors.lake.tables import FORMATS, NAME, catalog_of, rows, sink
from tests.connectors.lake.test_lake_sinks import KEYED, opened, put, system_of, tokens_of
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import commit_of
from wallaroo.errors import PeerError
from wallaroo.sinks import Delete

Eventually = Callable[..., None]
MAPPED = {
    name: {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    for number, name in enumerate(("key", "value"), 1)
}
BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
BY_ID = {**BY_NAME, "delta.columnMapping.mode": "id"}
APPEND_ONLY = {"delta.appendOnly": "true"}
CHANGES = {"delta.enableChangeDataFeed": "true"}
LIMIT = {"delta.constraints.small": "value < 100"}
INVARIANT = {"delta.invariants": json.dumps({"expression": {"expression": "more < 100"}})}
DOUBLE = column("more", "long", **{"delta.generationExpression": "value * 2"})
IDENTITY = column("more", "long", **{"delta.identity.start": 1, "delta.identity.step": 1})
MAPS = r"maps its columns to other names .*mode={}\), under which deltalake .* write nulls\. .*none"
HAS = r"has {} in its protocol, which deltalake \S+ does not write\. .*DROP FEATURE.*; or let the "

REFUSED = {
    "columns mapped, by version": (Form(versions(2, 5), BY_NAME, (), MAPPED), MAPS.format("name")),
    "columns mapped by name": (
        Form(reads("columnMapping"), BY_NAME, (), MAPPED),
        MAPS.format("name"),
    ),
    "columns mapped by id": (Form(reads("columnMapping"), BY_ID, (), MAPPED), MAPS.format("id")),
    "identity, by version": (Form(versions(1, 6), {}, (IDENTITY,)), HAS.format("identityColumns")),
    "identity": (Form(writes("identityColumns"), {}, (IDENTITY,)), HAS.format("identityColumns")),
    "defaults": (Form(writes("allowColumnDefaults")), HAS.format("allowColumnDefaults")),
    "row tracking": (
        Form(writes("rowTracking", "domainMetadata"), {"delta.enableRowTracking": "true"}),
        HAS.format("domainMetadata, rowTracking"),
    ),
    "clustering": (
        Form(writes("clustering", "domainMetadata")),
        HAS.format("clustering, domainMetadata"),
    ),
    "writers that are forgotten": (
        Form(versions(1, 2), {"delta.setTransactionRetentionDuration": "interval 7 days"}),
        r"forgets writers \(delta.setTransactionRetentionDuration=interval 7 days\).* unset that",
    ),
    "times in commits": (Form(writes("inCommitTimestamp")), HAS.format("inCommitTimestamp")),
    "types that widen": (Form(reads("typeWidening")), HAS.format("typeWidening")),
    "Iceberg's readers": (Form(writes("icebergCompatV1")), HAS.format("icebergCompatV1")),
    "vacuum's check": (Form(reads("vacuumProtocolCheck")), HAS.format("vacuumProtocolCheck")),
    "a writer's feature to come": (Form(writes("feature2030")), HAS.format("feature2030")),
    "a version to come": (Form(versions(1, 9)), HAS.format("writer version 9")),
    "a reader's feature to come": (Form(reads("feature2030")), "feature2030.* Correct the table"),
    "a reader's version to come": (Form(versions(9, 9)), "reader version 9.* Correct the table"),
}
KEYED_ONLY = {
    "rows that stay": (
        Form(versions(1, 2), APPEND_ONLY),
        r"is append-only .*, and the sink replaces rows\. Leave out key=; or set delta.appendOnly",
    ),
    "computed columns": (
        Form(versions(1, 4), {}, (DOUBLE,)),
        r"computes column 'more' \(value \* 2\), which deltalake .*Add 'more' to columns=",
    ),
}
WRITTEN = {
    "plain": Form(versions(1, 2)),
    "mapping that is unused": Form(reads("columnMapping"), {"delta.columnMapping.mode": "none"}),
    "deletion vectors": Form(reads("deletionVectors"), {"delta.enableDeletionVectors": "true"}),
    "changes": Form(writes("changeDataFeed"), CHANGES),
    "checkpoints of two parts": Form(reads("v2Checkpoint"), {"delta.checkpointPolicy": "v2"}),
    "constraint": Form(versions(1, 3), LIMIT),
}
APPENDED = {
    "rows that stay": Form(versions(1, 2), APPEND_ONLY),
    "computed columns": Form(writes("generatedColumns"), {}, (DOUBLE,)),
}


def named(cases: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", list(cases.values()), ids=list(cases))


def made(folder: Path, form: Form) -> Path:
    """Create a Delta table."""
    table = folder / "table"
    commit(table, form.actions())
    return table


def content(table: Path) -> list[tuple[Any, ...]]:
    """The rows, read by the library's engine, which knows more features than its Arrow reader."""
    query = QueryBuilder().register("t", DeltaTable(table)).execute("select * from t order by key")
    return [tuple(row.values()) for row in pa.table(query.read_all()).to_pylist()]


@named(REFUSED)
@pytest.mark.parametrize("key", [(), ("key",)])
def test_a_delta_table_that_cannot_be_written_is_refused_when_the_sink_is_opened(
    tmp_path: Path, case: tuple[Form, str], key: tuple[str, ...]
) -> None:
    form, words = case
    made(tmp_path, form)
    with pytest.raises(PeerError, match=f"^Sink 's'.* the Delta table {tmp_path}/table.*{words}"):
        opened(sink("delta", tmp_path, KEYED, key=key), tmp_path / "s")


@named(KEYED_ONLY)
def test_a_delta_table_whose_rows_cannot_be_replaced_is_refused_with_a_key(
    tmp_path: Path, case: tuple[Form, str]
) -> None:
    form, words = case
    made(tmp_path, form)
    with pytest.raises(PeerError, match=f"the Delta table {tmp_path}/table {words}"):
        opened(sink("delta", tmp_path, KEYED, key="key"), tmp_path / "s")


@named(WRITTEN)
def test_rows_of_other_forms_of_delta_tables_are_added_and_replaced(
    tmp_path: Path, case: Form
) -> None:
    table = made(tmp_path, case)
    put(sink("delta", tmp_path, KEYED), tmp_path / "s", [("a", 1), ("b", 2), ("c", 3)])
    keyed = sink("delta", tmp_path, KEYED, key="key", name="keyed")
    put(keyed, tmp_path / "t", [("a", 4), Delete("b"), ("d", 5)], last=0)
    assert content(table) == [("a", 4), ("c", 3), ("d", 5)]


@named(APPENDED)
def test_rows_are_added_to_delta_tables_whose_rows_cannot_be_replaced(
    tmp_path: Path, case: Form
) -> None:
    table = made(tmp_path, case)
    put(sink("delta", tmp_path, KEYED), tmp_path / "s", [("a", 1), ("b", 2)])
    computed = [(2,), (4,)] if case.more else [(), ()]
    assert content(table) == [("a", 1, *computed[0]), ("b", 2, *computed[1])]


def test_deleted_rows_of_a_delta_table_stay_deleted_if_their_file_is_written_again(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, WRITTEN["deletion vectors"])
    others = pa.table({"key": ["a", "b", "c"], "value": [1, 2, 3]})
    commit(table, [added(table, others, deleted=[1])])
    assert content(table) == [("a", 1), ("c", 3)]
    put(sink("delta", tmp_path, KEYED, key="key"), tmp_path / "s", [("a", 10), ("d", 4)])
    assert content(table) == [("a", 10), ("c", 3), ("d", 4)]


def test_the_changes_of_a_delta_table_with_a_feed_are_in_it(tmp_path: Path) -> None:
    table = made(tmp_path, WRITTEN["changes"])
    config = sink("delta", tmp_path, KEYED, key="key")
    put(config, tmp_path / "s", [("a", 1), ("b", 2)])
    put(config, tmp_path / "s", [("a", 3), Delete("b")], last=0)
    feed = pa.table(DeltaTable(table).load_cdf(starting_version=1).read_all()).to_pylist()
    assert sorted((row["_change_type"], row["key"], row["value"]) for row in feed) == [
        ("delete", "b", 2),
        ("insert", "a", 1),
        ("insert", "b", 2),
        ("update_postimage", "a", 3),
        ("update_preimage", "a", 1),
    ]


@pytest.mark.parametrize("key", [(), ("key",)])
@pytest.mark.parametrize(
    ("form", "row"),
    [
        (Form(versions(1, 3), LIMIT), ("b", 200)),
        (Form(versions(1, 2), {}, (column("more", "long", **INVARIANT),)), ("b", 1, 200)),
        (Form(versions(1, 2), {}, (column("more", "long", nullable=False),)), ("b", 1, None)),
    ],
)
def test_a_row_that_a_delta_table_does_not_allow_ends_the_run_and_waits(
    tmp_path: Path, eventually: Eventually, form: Form, row: tuple[Any, ...], key: tuple[str, ...]
) -> None:
    table = made(tmp_path, form)
    columns = {**KEYED, **{more["name"]: "int64" for more in form.more}}
    config = sink("delta", tmp_path, columns, key=key, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, row))
    words = error_of(committer, eventually)
    assert f"cannot write to the Delta table {tmp_path}/table: " in words
    assert "Invalid data found: 1 rows failed validation check" in words
    assert "| b " in words
    assert "+-" not in words
    assert committer.status().pending_bytes
    assert not content(table)


def test_a_feature_that_a_delta_table_gets_while_the_sink_runs_ends_it(
    tmp_path: Path, eventually: Eventually
) -> None:
    table = made(tmp_path, WRITTEN["plain"])
    config = sink("delta", tmp_path, KEYED, key="key", group_s=0.0)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 1)))
    eventually(lambda: committer.status().committed_batch == 0, "the first row left")
    commit(table, Form(writes("rowTracking", "domainMetadata")).actions())
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    assert "has domainMetadata, rowTracking in its protocol" in error_of(committer, eventually)
    assert committer.status().pending_bytes


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        ("Transaction failed: Metadata changed since last commit.", True),
        ("Unsupported table features required: [RowTracking]", False),
        ("The transaction includes Remove action but Delta table is append-only", False),
    ],
)
def test_only_a_commit_that_was_slower_than_another_is_tried_again(
    tmp_path: Path, words: str, waits: bool
) -> None:
    system = system_of(sink("delta", tmp_path, KEYED), tmp_path / "s")
    assert bool(system.waiting_for(CommitFailedError(words))) is waits


def created(folder: Path, *more: NestedField, value: bool = False, **settings: str) -> None:
    """Create an Iceberg table with a key that must have a value."""
    catalog = catalog_of(folder)
    catalog.create_namespace(NAME.partition(".")[0])
    schema = Schema(
        NestedField(1, "key", StringType(), required=True),
        NestedField(2, "value", LongType(), required=value),
        *more,
        identifier_field_ids=[1],
    )
    catalog.create_table(NAME, schema, properties=settings)


def test_columns_of_an_iceberg_table_that_must_have_values_are_written(tmp_path: Path) -> None:
    created(tmp_path)
    put(sink("iceberg", tmp_path, KEYED), tmp_path / "s", [("a", 1), ("b", None)])
    wider = sink("iceberg", tmp_path, {**KEYED, "more": "double"}, key="key", evolve=True)
    put(wider, tmp_path / "s", [("a", 2, 0.5), Delete("b"), ("c", 3, None)], last=0)
    assert rows("iceberg", tmp_path) == [("a", 2, 0.5), ("c", 3, None)]


def test_a_null_that_an_iceberg_table_does_not_allow_ends_the_run_and_waits(
    tmp_path: Path, eventually: Eventually
) -> None:
    created(tmp_path, value=True)
    config = sink("iceberg", tmp_path, KEYED, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", None)))
    assert "field 'value' with null values to non-nullable" in error_of(committer, eventually)
    assert committer.status().pending_bytes


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_with_a_column_that_needs_a_value_is_refused(tmp_path: Path, form: str) -> None:
    if form == "delta":
        made(tmp_path, Form(versions(1, 2), {}, (column("more", "long", nullable=False),)))
    else:
        created(tmp_path, NestedField(3, "more", LongType(), required=True))
    words = f"column 'more' of the {form.capitalize()} table .* must not be null, and the sink does"
    with pytest.raises(PeerError, match=words):
        opened(sink(form, tmp_path, KEYED), tmp_path / "s")


def test_an_iceberg_table_of_other_files_is_refused(tmp_path: Path) -> None:
    created(tmp_path, **{"write.format.default": "orc"})
    with pytest.raises(PeerError, match=r"wants new files in orc .*Set that property .* parquet"):
        opened(sink("iceberg", tmp_path, KEYED), tmp_path / "s")


def test_an_iceberg_table_of_a_later_version_is_refused(tmp_path: Path) -> None:
    created(tmp_path)
    table = catalog_of(tmp_path).load_table(NAME)
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    file.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    with pytest.raises(PeerError, match=r"is of version 3 of the format, which pyiceberg \S+ does"):
        opened(sink("iceberg", tmp_path, KEYED), tmp_path / "s")
