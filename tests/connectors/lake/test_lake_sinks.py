"""The sinks of Delta and Iceberg tables, read by the formats' own libraries: each row once, whole
groups, also if the driver is killed, an answer is lost, or two drivers write.
"""

from __future__ import annotations

import pickle
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tests.connectors.lake.child import COLUMNS, TASKS, rows_of
from tests.connectors.lake.tables import (
    FORMATS,
    NAME,
    add_column,
    append,
    catalog_of,
    content,
    options_of,
    remove_column,
    retype_column,
    rows,
    sink,
    versions,
)
from tests.forks import Forks
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from tests.unit.sinks.killed_driver import stage
from wallaroo.connectors.lake.delta.committer import DeltaSystem
from wallaroo.connectors.lake.iceberg.committer import IcebergSystem
from wallaroo.errors import PeerError, WallarooError, WallarooParameterError
from wallaroo.sinks import Delete, DeltaSinkConfig, IcebergSinkConfig, SinkCommitter
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import CommitContext
from wallaroo.sinks.staging import read_staged

Eventually = Callable[..., None]
DRAIN_S = 400.0
KEYED = {"key": "string", "value": "int64"}

form = pytest.mark.parametrize("form", FORMATS)


class Pair(NamedTuple):
    key: str
    value: int


@dataclass(frozen=True)
class Trade:
    symbol: str
    size: int
    price: float | None
    at: datetime
    day: date
    tags: list[str]
    is_open: bool
    raw: bytes


def opened(config: Any, folder: Path, last: int = -1) -> SinkCommitter:
    committer = config.committer("s", folder, True)
    committer.recover(history_to(last), [])
    return committer


def with_first_row(
    form: str, folder: Path, eventually: Eventually, key: tuple[str, ...]
) -> tuple[Any, SinkCommitter]:
    """Return a keyed sink and its committer, which has written a row."""
    config = sink(form, folder, KEYED, key=key, group_s=0.0)
    committer = opened(config, folder / "s")
    committer.commit(commit_of(0), tokens_of(config, folder / "s", 0, ("a", 1)))
    eventually(lambda: committer.status().committed_batch == 0, "the first row left")
    return config, committer


def tokens_of(config: Any, folder: Path, batch: int, *outputs: Any) -> list[Any]:
    folder.mkdir(exist_ok=True)
    return stage(config, folder, batch, 1, lambda *_: list(outputs))


def put(config: Any, folder: Path, *batches: list[Any], last: int = -1) -> SinkCommitter:
    """Commit batches and let them leave."""
    committer = opened(config, folder, last)
    for number, outputs in enumerate(batches, last + 1):
        committer.commit(commit_of(number), tokens_of(config, folder, number, *outputs))
    committer.close(DRAIN_S)
    return committer


@form
def test_a_table_is_created_from_a_dataclass_and_keeps_its_values(
    form: str, tmp_path: Path
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    trades = [
        Trade("A", 1, 1.5, moment, moment.date(), ["x", "y"], True, b"\x00"),
        Trade("B", -(2**63), None, moment, moment.date(), [], False, b""),
    ]
    committer = put(sink(form, tmp_path, Trade, partition_by="day"), tmp_path / "s", trades)
    found = content(form, tmp_path).to_pylist()
    wanted = [{name: getattr(trade, name) for name in Trade.__annotations__} for trade in trades]
    assert sorted(found, key=lambda row: row["symbol"]) == wanted
    assert committer.status().outputs == 2


@form
def test_named_tuples_are_rows(form: str, tmp_path: Path) -> None:
    put(sink(form, tmp_path, KEYED), tmp_path / "s", [Pair("a", 1), ("b", 2), Pair("c", 3)])
    assert rows(form, tmp_path) == [("a", 1), ("b", 2), ("c", 3)]


@form
@pytest.mark.parametrize("point", ["lake.begin", "lake.committed", "left", "commit.after"])
def test_a_killed_driver_puts_each_row_once(
    tmp_path: Path, child_of: Callable[..., Forks], form: str, point: str
) -> None:
    driver = child_of("tests.connectors.lake.child")
    arguments = (form, tmp_path, tmp_path / "driver", 3)
    point = f"{form}.left" if point == "left" else point
    assert driver.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    wanted = [row for batch in range(3) for task in range(TASKS) for row in rows_of(batch, task)]
    assert rows(form, tmp_path) == sorted(wanted)


@form
def test_no_version_of_the_table_has_a_part_of_a_commit(form: str, tmp_path: Path) -> None:
    """Groups of different sizes: the first is written alone, what came meanwhile together."""
    config = sink(form, tmp_path, COLUMNS, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    for batch in range(12):
        tokens = stage(config, tmp_path / "s", batch, TASKS, rows_of)
        committer.commit(commit_of(batch), tokens)
    committer.close(DRAIN_S)
    seen = versions(form, tmp_path)
    assert len(rows(form, tmp_path)) == 12 * TASKS * 4
    for version in seen:
        batches = [batch for _, batch, _ in version]
        assert all(batches.count(batch) == TASKS * 4 for batch in set(batches))
        assert set(batches) == set(range(len(set(batches))))


@form
def test_commits_wait_for_their_group(form: str, tmp_path: Path, eventually: Eventually) -> None:
    config = sink(form, tmp_path, KEYED, group_s=3600.0, group_bytes=200)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 0)))
    assert committer.status().is_gathering
    assert committer.backlog() == 0
    for batch in range(1, 12):
        committer.commit(commit_of(batch), tokens_of(config, tmp_path / "s", batch, ("a", batch)))
    eventually(lambda: committer.status().outputs > 1, "a group was large enough")
    committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("a", batch) for batch in range(12)]
    assert len([version for version in versions(form, tmp_path) if version]) < 12


@form
def test_an_output_replaces_the_row_with_its_key(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, KEYED, key="key")
    put(config, tmp_path / "s", [("a", 1), ("b", 2), ("a", 3)])
    put(config, tmp_path / "s", [("b", 4), ("c", 5), Delete("a"), Delete("none")], last=0)
    assert rows(form, tmp_path) == [("b", 4), ("c", 5)]
    put(config, tmp_path / "s", [Delete("b"), ("b", 6), ("c", 7), Delete({"key": "c"})], last=1)
    assert rows(form, tmp_path) == [("b", 6)]


@form
def test_a_key_may_have_several_columns(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, COLUMNS, key=("key", "batch"))
    put(config, tmp_path / "s", [("a", 1, 10), ("a", 2, 20), ("b", 1, 30)])
    put(config, tmp_path / "s", [("a", 2, 21), Delete(("b", 1)), Delete(("a", 3))], last=0)
    assert rows(form, tmp_path) == [("a", 1, 10), ("a", 2, 21)]


@form
def test_a_key_that_is_no_column_name_of_sql_works(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, {"select from": "string", "value": "int64"}, key="select from")
    put(config, tmp_path / "s", [("it's", 1), ('a "b" `c`', 2)])
    put(config, tmp_path / "s", [("it's", 3), Delete('a "b" `c`')], last=0)
    assert rows(form, tmp_path) == [("it's", 3)]


def session_of(config: Any, folder: Path) -> Any:
    session = system_of(config, folder).connect(CHECKPOINT)
    session.last()
    return session


def system_of(config: Any, folder: Path) -> Any:
    return config.open_system(CommitContext("s", folder, True))


def written(session: Any, config: Any, folder: Path, batch: int, *outputs: Any) -> bool:
    tokens = tokens_of(config, folder, batch, *outputs)
    pending = PendingBatch.of(commit_of(batch), 0, tokens)
    assert pending is not None
    return bool(session.write(pending, (read_staged(folder, token) for token in tokens)))


@form
@pytest.mark.parametrize("key", [(), ("key",)])
def test_of_two_drivers_one_writes_a_commit(
    form: str, tmp_path: Path, key: tuple[str, ...]
) -> None:
    """The older one was paused between its look at the table and its transaction."""
    config = sink(form, tmp_path, KEYED, key=key)
    put(config, tmp_path / "s", [("a", 0)])
    paused, newer = (session_of(config, tmp_path / "s") for _ in range(2))
    assert written(newer, config, tmp_path / "s", 1, ("b", 1))
    system = system_of(config, tmp_path / "s")
    with pytest.raises(system.errors) as raised:
        written(paused, config, tmp_path / "s", 1, ("b", 1))
    assert system.waiting_for(raised.value)  # it looks again
    assert not written(session_of(config, tmp_path / "s"), config, tmp_path / "s", 1, ("b", 1))
    assert rows(form, tmp_path) == [("a", 0), ("b", 1)]


@form
def test_rows_of_another_writer_in_between_delay_nothing(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, KEYED, group_s=0.0)
    put(config, tmp_path / "s", [("a", 0)])
    committer = opened(config, tmp_path / "s", 0)
    for batch in range(1, 5):
        append(form, tmp_path, pa.table({"key": ["other"], "value": [batch]}))
        committer.commit(commit_of(batch), tokens_of(config, tmp_path / "s", batch, ("a", batch)))
    committer.close(DRAIN_S)
    wanted = [("a", batch) for batch in range(5)] + [("other", batch) for batch in range(1, 5)]
    assert rows(form, tmp_path) == wanted


@form
def test_output_of_a_checkpoint_that_was_rolled_back_is_refused(
    form: str, tmp_path: Path, eventually: Eventually
) -> None:
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    behind = opened(config, tmp_path / "older")
    assert "rolled back or is an older copy" in error_of(behind, eventually)
    other = config.committer("s", tmp_path / "other", True)
    other.recover(history_to(0, line="b"), [])
    assert "rolled back or is an older copy" in error_of(other, eventually)
    assert rows(form, tmp_path) == [("a", 1)]


@form
def test_two_sinks_and_two_checkpoints_share_a_table(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    for name, checkpoint in (("t", CHECKPOINT), ("s", "f" * 32)):
        committer = config.committer(name, tmp_path / name / checkpoint, True)
        committer.recover(history_to(checkpoint=checkpoint), [])
        tokens = tokens_of(config, tmp_path / name / checkpoint, 0, (name, 2))
        committer.commit(commit_of(0, checkpoint=checkpoint), tokens)
        committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("a", 1), ("s", 2), ("t", 2)]


@form
def test_a_table_that_does_not_fit_is_refused_when_the_sink_is_opened(
    form: str, tmp_path: Path
) -> None:
    put(sink(form, tmp_path, KEYED), tmp_path / "s", [("a", 1)])
    with pytest.raises(PeerError, match=r"has no column more; it has key, value\. .*evolve=True"):
        opened(sink(form, tmp_path, {**KEYED, "more": "double"}), tmp_path / "t")
    with pytest.raises(PeerError, match=r"column 'value' of .* is int64, the sink writes string"):
        opened(sink(form, tmp_path, {"key": "string", "value": "string"}), tmp_path / "t")


@form
@pytest.mark.parametrize("key", [(), ("key",)])
def test_a_column_that_is_added_while_the_sink_runs_is_null(
    form: str, tmp_path: Path, eventually: Eventually, key: tuple[str, ...]
) -> None:
    config = sink(form, tmp_path, KEYED, key=key, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    for batch, row in enumerate([("a", 1), ("b", 2)]):
        committer.commit(commit_of(batch), tokens_of(config, tmp_path / "s", batch, row))
        eventually(lambda last=batch: committer.status().committed_batch == last, "it left")
        if not batch:
            add_column(form, tmp_path)
    committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("a", 1, None), ("b", 2, None)]


@form
@pytest.mark.parametrize("key", [(), ("key",)])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (remove_column, r"has no column value; it has key\. Add it there, .* evolve=True"),
        (
            retype_column,
            r"column 'value' of .* is (large_)?string, the sink writes int64",
        ),
    ],
)
def test_a_column_that_changes_while_the_sink_runs_ends_it_and_the_rows_wait(
    form: str,
    tmp_path: Path,
    eventually: Eventually,
    change: Callable[..., None],
    words: str,
    key: tuple[str, ...],
) -> None:
    config, committer = with_first_row(form, tmp_path, eventually, key)
    change(form, tmp_path, "value")
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    assert re.search(words, error_of(committer, eventually))
    assert [row[0] for row in rows(form, tmp_path)] == ["a"]
    assert committer.status().pending_bytes


@form
def test_evolve_adds_columns_and_columns_left_out_are_null(form: str, tmp_path: Path) -> None:
    put(sink(form, tmp_path, KEYED), tmp_path / "s", [("a", 1)])
    wider = sink(form, tmp_path, {**KEYED, "more": "double"}, evolve=True)
    put(wider, tmp_path / "s", [("b", 2, 2.5)], last=0)
    put(sink(form, tmp_path, {"key": "string"}), tmp_path / "s", [("c",)], last=1)
    found = sorted(content(form, tmp_path).to_pylist(), key=lambda row: row["key"])
    assert found == [
        {"key": "a", "value": 1, "more": None},
        {"key": "b", "value": 2, "more": 2.5},
        {"key": "c", "value": None, "more": None},
    ]


@form
def test_evolve_works_with_a_key(form: str, tmp_path: Path) -> None:
    put(sink(form, tmp_path, KEYED, key="key"), tmp_path / "s", [("a", 1), ("b", 1)])
    wider = sink(form, tmp_path, {**KEYED, "more": "double"}, evolve=True, key="key")
    put(wider, tmp_path / "s", [("b", 2, 2.5)], last=0)
    found = sorted(content(form, tmp_path).to_pylist(), key=lambda row: row["key"])
    assert found == [
        {"key": "a", "value": 1, "more": None},
        {"key": "b", "value": 2, "more": 2.5},
    ]


@form
@pytest.mark.parametrize(
    ("output", "words"),
    [
        (("a",), "a tuple of 2 values"),
        (("a", "b"), "column 'value': 'b'"),
        (("a", 2**63), "column 'value'"),
        (("a", 1.5), "column 'value': 1.5 .*1.5 is not a whole number"),
        (("\ud800", 1), "column 'key': .*surrogates not allowed"),
        ((None, 1), "key column 'key' is None"),
        (Delete(("a", 1)), r"is not a key of \(key\)"),
        (Delete({"value": 1}), r"is not a key of \(key\)"),
        (Delete(1), "column 'key': 1"),
    ],
)
def test_an_output_that_is_no_row_is_an_error_of_the_encoder(
    form: str, tmp_path: Path, output: Any, words: str
) -> None:
    encoder = sink(form, tmp_path, KEYED, key="key").encoder
    with pytest.raises(ValueError, match=words):
        encoder.function(output)


@form
def test_a_deletion_needs_a_key(form: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a sink with key="):
        sink(form, tmp_path, KEYED).encoder.function(Delete("a"))


@form
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": {}}, "are neither names and types"),
        ({"columns": {"key": "text"}}, "column 'key' has the type 'text', which Arrow"),
        ({"columns": int}, "are neither names and types"),
        ({"key": "none"}, "names 'none', which is not a column. Name some of key, value"),
        ({"partition_by": ("none",)}, "'none'.* is not a column"),
        ({"group_s": -1}, "cannot be kept"),
        ({"group_bytes": 0}, "cannot be kept"),
    ],
)
def test_a_wrong_configuration_is_refused(
    form: str, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        sink(form, tmp_path, **{"columns": KEYED, **options})


def test_a_field_without_a_column_names_the_way_out() -> None:
    @dataclass
    class Odd:
        of: complex

    with pytest.raises(WallarooParameterError, match="field 'of' has the type complex"):
        DeltaSinkConfig("x", Odd)


@form
def test_a_configuration_travels(form: str, tmp_path: Path) -> None:
    travelled = pickle.loads(pickle.dumps(sink(form, tmp_path, KEYED, key="key")))
    assert travelled.encoder.function(("a", 1)) == ("a", 1)
    assert travelled.label == (f"delta {tmp_path}/table" if form == "delta" else f"iceberg {NAME}")


def test_iceberg_partitions_by_transforms(tmp_path: Path) -> None:
    config = IcebergSinkConfig(
        NAME,
        {"key": "string", "at": pa.timestamp("us", tz="UTC")},
        partition_by=("day(at)", "bucket[4](key)"),
        options=options_of(tmp_path),
    )
    put(config, tmp_path / "s", [("a", datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2, 2)])
    table = catalog_of(tmp_path).load_table(NAME)
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[4]"]
    with pytest.raises(
        WallarooParameterError, match=r"'week\(at\)' is not a column, nor a transform"
    ):
        IcebergSinkConfig(NAME, {"at": "date32"}, partition_by="week(at)")
    with pytest.raises(WallarooParameterError, match="names no namespace"):
        IcebergSinkConfig("counts", {"at": "date32"})


def test_a_damaged_record_in_an_iceberg_table_is_named(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = sink("iceberg", tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    table = catalog_of(tmp_path).load_table(NAME)
    with table.transaction() as transaction:
        transaction.set_properties({f"wallaroo.{CHECKPOINT}.s": "gone"})
    words = error_of(opened(config, tmp_path / "s", 0), eventually)
    assert "'gone', which names no commit" in words


def test_the_identity_in_an_iceberg_table_outlives_its_snapshots(tmp_path: Path) -> None:
    config = sink("iceberg", tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    append("iceberg", tmp_path, pa.table({"key": ["other"], "value": [1]}))
    table = catalog_of(tmp_path).load_table(NAME)
    first, _ = table.snapshots()
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert session_of(config, tmp_path / "s").last() == commit_of(0)


def test_the_identity_in_a_delta_table_outlives_its_old_files_and_log(tmp_path: Path) -> None:
    """What its owner does: checkpoints, a log that is cleaned up, and vacuum."""
    config = sink("delta", tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    table = DeltaTable(tmp_path / "table")
    append("delta", tmp_path, pa.table({"key": ["other"], "value": [1]}))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.optimize.compact()
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    log = tmp_path / "table" / "_delta_log"
    assert not any('"txn"' in file.read_text() for file in log.glob("*.json"))
    assert session_of(config, tmp_path / "s").last() == commit_of(0)
    assert rows("delta", tmp_path) == [("a", 1), ("other", 1)]


@form
def test_the_owner_may_set_a_table_back(form: str, tmp_path: Path) -> None:
    """Rows that were removed in the table itself are no loss, and do not come again."""
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    first = table_version(form, tmp_path)
    put(config, tmp_path / "s", [("b", 2)], last=0)
    if form == "delta":
        DeltaTable(tmp_path / "table").restore(first)
    else:
        table = catalog_of(tmp_path).load_table(NAME)
        table.manage_snapshots().rollback_to_snapshot(first).commit()
    put(config, tmp_path / "s", [("c", 3)], last=1)
    assert rows(form, tmp_path) == [("a", 1), ("c", 3)]


def table_version(form: str, folder: Path) -> int:
    if form == "delta":
        return DeltaTable(folder / "table").version()
    snapshot = catalog_of(folder).load_table(NAME).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def remove_record(form: str, folder: Path) -> None:
    """Remove the record of what is in a table; that of a Delta table goes with its log."""
    if form == "delta":
        drop(form, folder)
        append(form, folder, pa.table({"key": ["other"], "value": [1]}))
        return
    with catalog_of(folder).load_table(NAME).transaction() as transaction:
        transaction.remove_properties(f"wallaroo.{CHECKPOINT}.s")


def restore_copy(form: str, folder: Path) -> None:
    """Put a copy in the place of a table, with the catalog that names its version."""
    shutil.rmtree(folder / ("table" if form == "delta" else "warehouse"))
    shutil.copytree(folder / "copy", folder, dirs_exist_ok=True)


@form
@pytest.mark.parametrize(
    ("change", "known"), [(restore_copy, "only up to batch 0"), (remove_record, "none")]
)
@pytest.mark.parametrize("waiting", [(), (("c", 3),)])
def test_a_table_without_output_that_had_left_is_refused(
    form: str,
    tmp_path: Path,
    eventually: Eventually,
    change: Callable[..., None],
    known: str,
    waiting: tuple[Any, ...],
) -> None:
    """Rows would be missing, or waiting ones come twice; another table continues without them."""
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("s"))
    put(config, tmp_path / "s", [("b", 2)], last=0)
    change(form, tmp_path)
    before = rows(form, tmp_path)
    tokens = tokens_of(config, tmp_path / "s", 2, *waiting)
    committer = config.committer("s", tmp_path / "s", True)
    committer.recover(history_to(2), tokens)
    words = error_of(committer, eventually)
    assert re.match(f"Sink 's': output up to batch 1 has left, and .* records {known} of", words)
    assert "Restore the newer one; or let the sink write to another table, and" in words
    assert rows(form, tmp_path) == before

    assert continued_elsewhere(form, tmp_path, tokens) == len(waiting)


def continued_elsewhere(form: str, folder: Path, tokens: list[Any]) -> int:
    """Continue after commit 2 with another table; return how many rows came into it."""
    config = sink(form, folder / "elsewhere", KEYED)
    if form == "iceberg":
        config = replace(sink(form, folder, KEYED), table="out.others")
    committer = config.committer("s", folder / "s", True)
    committer.recover(history_to(2), tokens)
    committer.close(DRAIN_S)
    return committer.status().outputs


@form
@pytest.mark.parametrize("waiting", [(), (("c", 3),)])
def test_a_table_that_was_dropped_between_two_runs_is_not_created(
    form: str, tmp_path: Path, eventually: Eventually, waiting: tuple[Any, ...]
) -> None:
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)], [("b", 2)])
    drop(form, tmp_path)
    tokens = tokens_of(config, tmp_path / "s", 2, *waiting)
    for _attempt in range(2):
        committer = config.committer("s", tmp_path / "s", True)
        committer.recover(history_to(2), tokens)
        words = error_of(committer, eventually)
        assert "was dropped since it took output of this checkpoint. No table was created" in words
        assert "Restore it; or let the sink write to another table, then run again." in words
        assert not exists(form, tmp_path)

    assert continued_elsewhere(form, tmp_path, tokens) == len(waiting)


@form
def test_a_dropped_table_is_created_for_a_checkpoint_that_has_not_written_it(
    form: str, tmp_path: Path
) -> None:
    """Checkpoint and tables are older copies; the outbox has a record of commits since then."""
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    drop(form, tmp_path)
    committer = config.committer("s", tmp_path / "s", True)
    committer.recover(history_to(0, line="b"), [])
    commit = commit_of(1, line="b")
    committer.commit(commit, tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("b", 2)]


def exists(form: str, folder: Path) -> bool:
    if form == "iceberg":
        return catalog_of(folder).table_exists(NAME)
    return (folder / "table").exists()


def drop(form: str, folder: Path) -> None:
    if form == "iceberg":
        catalog_of(folder).drop_table(NAME)
    else:
        shutil.rmtree(folder / "table")


def create_again(form: str, folder: Path) -> None:
    drop(form, folder)
    sink(form, folder, KEYED).committer("other", folder / "other", True).recover(history_to(-1), [])


def lose_files(form: str, folder: Path) -> None:
    """Lose what a table consists of; its log or catalog still names it."""
    place = folder / ("table" if form == "delta" else "warehouse")
    for file in place.rglob("*.parquet" if form == "delta" else "*.*"):
        if file.is_file():
            file.unlink()


@form
@pytest.mark.parametrize("key", [(), ("key",)])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop, "the (Delta|Iceberg) table .* was dropped while the sink wrote to it. Nothing"),
        (create_again, "output up to batch 0 has left, and .* was replaced"),
        (lose_files, "cannot write to the .* lacks files .* Restore it; or let the sink write to"),
    ],
)
def test_a_table_that_vanishes_while_the_sink_runs_is_named_and_the_ways_out_lose_nothing(
    form: str,
    tmp_path: Path,
    eventually: Eventually,
    change: Callable[..., None],
    said: str,
    key: tuple[str, ...],
) -> None:
    if (form, key, change) == ("delta", (), lose_files):
        pytest.skip("an append reads no files")
    place = tmp_path / ("table" if form == "delta" else "warehouse")
    config, committer = with_first_row(form, tmp_path, eventually, key)
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("s"))
    change(form, tmp_path)
    tokens = tokens_of(config, tmp_path / "s", 1, ("b", 2))
    committer.commit(commit_of(1), tokens)
    assert re.search(said, words := error_of(committer, eventually)), words
    with pytest.raises(WallarooError):
        committer.close(0)

    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(tmp_path / "copy", tmp_path, dirs_exist_ok=True)
    committer = config.committer("s", tmp_path / "s", True)
    committer.recover(history_to(1), tokens)
    committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("a", 1), ("b", 2)]


def test_files_that_a_vacuum_removes_between_two_groups_are_looked_for_again(
    tmp_path: Path, eventually: Eventually
) -> None:
    config, committer = with_first_row("delta", tmp_path, eventually, ("key",))
    append("delta", tmp_path, pa.table({"key": ["other"], "value": [1]}))
    table = DeltaTable(tmp_path / "table")
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("a", 2)))
    committer.close(DRAIN_S)
    assert rows("delta", tmp_path) == [("a", 2), ("other", 1)]


@form
def test_a_table_that_follows_its_checkpoint_back_is_written(form: str, tmp_path: Path) -> None:
    """Both are older copies: what had left since is of commits that no longer are."""
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("s"))
    put(config, tmp_path / "s", [("b", 2)], last=0)
    restore_copy(form, tmp_path)
    committer = opened(config, tmp_path / "s", 0)
    commit = commit_of(1, line="b")
    committer.commit(commit, tokens_of(config, tmp_path / "s", 1, ("c", 3)))
    committer.close(DRAIN_S)
    assert rows(form, tmp_path) == [("a", 1), ("c", 3)]


@pytest.mark.parametrize("there", ["rows.parquet", "metadata/v1.metadata.json"])
def test_a_folder_of_other_files_is_refused_when_the_sink_is_opened(
    tmp_path: Path, there: str
) -> None:
    """Files of a writer who knows no log would be hidden, and vacuum would delete them."""
    file = tmp_path / "table" / there
    file.parent.mkdir(parents=True)
    file.write_text("another writer's")
    words = rf"Sink 's': .* {tmp_path}/table holds other files \({there.split('/')[0]}\).*"
    with pytest.raises(PeerError, match=words):
        opened(sink("delta", tmp_path, KEYED), tmp_path / "s")
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_a_path_that_is_no_folder_is_refused_when_the_sink_is_opened(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("in the way")
    words = f"Sink 's' cannot write to the Delta table {tmp_path}/table: .*Nothing is lost"
    with pytest.raises(PeerError, match=words):
        opened(sink("delta", tmp_path, KEYED), tmp_path / "s")


@form
def test_a_damaged_table_is_refused_when_the_sink_is_opened(form: str, tmp_path: Path) -> None:
    config = sink(form, tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1)])
    logs = "table/_delta_log/*.json" if form == "delta" else "warehouse/**/*.metadata.json"
    for file in tmp_path.glob(logs):
        file.write_text("{ damaged")
    words = f"Sink 's' cannot write to the {form.capitalize()} table .*: .*Nothing is lost"
    with pytest.raises(PeerError, match=words):
        opened(config, tmp_path / "s", last=0)


FAILED = "Error performing {} http://store/part-0 in 1.9s, after 10 retries"
MERGE = "Generic DeltaTable error: Parquet error: Object Store error: Generic S3 error: "
APPEND = "Failed to parse parquet: External: Generic S3 error: "
LISTED = "Generic DeltaTable error: Error interacting with object store: Generic S3 error: "
FULL = "Generic LocalFileSystem error: Unable to copy data to file: No space left on device (28)"


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        (MERGE + FAILED.format("GET"), True),
        (APPEND + FAILED.format("PUT") + " - HTTP error: error sending request", True),
        (APPEND + FAILED.format("PUT") + ": 403 Forbidden", False),
        (LISTED + "Error getting list response body: HTTP error: request error", True),
        ("Schema error: no column x", False),
    ],
)
def test_a_store_that_goes_away_in_mid_transaction_is_waited_for(
    tmp_path: Path, words: str, waits: bool
) -> None:
    """The client reports it as an error of the table, with the cause in its words."""
    config = sink("delta", tmp_path, KEYED)
    system = DeltaSystem(config, CommitContext("s", tmp_path, True))
    object.__setattr__(config, "path", "s3://lake/table")
    assert bool(system.waiting_for(DeltaError(words))) is waits


def test_a_disk_that_is_full_in_mid_transaction_is_waited_for(tmp_path: Path) -> None:
    system = DeltaSystem(sink("delta", tmp_path, KEYED), CommitContext("s", tmp_path, True))
    assert system.waiting_for(DeltaError(f"Failed to parse parquet: External: {FULL}"))
    assert not system.waiting_for(DeltaError(APPEND + FAILED.format("PUT")))  # not its store


@pytest.mark.parametrize(
    ("words", "waits"),
    [
        (
            "(psycopg.errors.AdminShutdown) terminating connection due to administrator command",
            True,
        ),
        ("connection failed: FATAL:  the database system is starting up", True),
        ("(psycopg.OperationalError) server closed the connection unexpectedly", True),
        ("AWS Error SLOW_DOWN during CreateMultipartUpload operation: Please reduce", True),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response", True),
        ("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response", False),
        ('connection failed: FATAL:  password authentication failed for user "x"', False),
        ('(psycopg.errors.UndefinedTable) relation "iceberg_tables" does not exist', False),
    ],
)
def test_a_catalog_that_goes_away_is_waited_for(tmp_path: Path, words: str, waits: bool) -> None:
    system = IcebergSystem(sink("iceberg", tmp_path, KEYED), CommitContext("s", tmp_path, True))
    assert bool(system.waiting_for(RuntimeError(words))) is waits


def test_an_unknown_catalog_is_refused_when_the_sink_is_opened(tmp_path: Path) -> None:
    config = IcebergSinkConfig(NAME, KEYED, options={"type": "none"})
    words = f"Sink 's' cannot write to the Iceberg table {NAME}: 'none' is not a valid"
    with pytest.raises(PeerError, match=words):
        opened(config, tmp_path / "s")


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (
            {"type": "sql", "uri": "postgresql+psycopg://me:hunter2@127.0.0.1:1/lake"},
            "postgresql+psycopg://127.0.0.1:1/lake",
        ),
        ({"type": "rest", "uri": "http://me:hunter2@127.0.0.1:1"}, "http://127.0.0.1:1"),
        ({"type": "hunter2", "credential-token": "hunter2"}, "default"),
    ],
    ids=["database", "server", "token"],
)
def test_secrets_of_a_catalog_are_not_noted_shown_or_reported(
    tmp_path: Path, options: dict[str, str], address: str
) -> None:
    config = IcebergSinkConfig(NAME, KEYED, options=options)
    assert config.address == address
    assert "hunter2" not in repr(config) + config.label
    system = IcebergSystem(
        sink("iceberg", tmp_path, KEYED), CommitContext("s", tmp_path / "s", True)
    )
    object.__setattr__(system, "_config", config)
    with pytest.raises(Exception) as raised:  # a client raises what it likes
        system.connect(CHECKPOINT)
    error = raised.value.with_traceback(None)
    reported = system.waiting_for(error) or str(system.permanent_error(error, None))
    assert "out.counts" in reported
    assert "hunter2" not in reported


def test_what_delta_reports_has_no_colours(tmp_path: Path) -> None:
    system = DeltaSystem(sink("delta", tmp_path, KEYED), CommitContext("s", tmp_path, True))
    error = DeltaError("Kernel error\n  \x1b[31m↳\x1b[0m no such bucket.")
    assert "table: Kernel error no such bucket. Nothing is" in str(
        system.permanent_error(error, None)
    )
