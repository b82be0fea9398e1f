"""Delta tables that deltalake does not write, and Delta Kernel does: each row once, whole groups,
also if the driver or the JVM is killed, or two drivers write; what Kernel cannot do is refused.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.connectors.lake.child import TASKS, rows_of
from tests.connectors.lake.delta_log import Form, column, commit, reads, writes
from tests.connectors.lake.tables import JARS, sink
from tests.connectors.lake.test_lake_sinks import (
    KEYED,
    opened,
    put,
    session_of,
    system_of,
    tokens_of,
    written,
)
from tests.connectors.lake.test_table_features import (
    BY_ID,
    BY_NAME,
    MAPPED,
    content,
    made,
    named,
)
from tests.forks import Forks
from tests.sampling import sampled
from tests.unit.sinks.broken import error_of
from tests.unit.sinks.identities import CHECKPOINT, commit_of
from wallaroo.errors import PeerError
from wallaroo.sinks import Delete

Eventually = Callable[..., None]
NAMED = Form(reads("columnMapping"), BY_NAME, (), MAPPED)
BATCH = {
    "delta.columnMapping.id": 3,
    "delta.columnMapping.physicalName": "col-3",
}
THREE = {**BY_NAME, "delta.columnMapping.maxColumnId": "3"}
TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}
APPENDED = {
    "columns mapped by name": NAMED,
    "columns mapped by id": Form(reads("columnMapping"), BY_ID, (), MAPPED),
    "defaults": Form(writes("allowColumnDefaults")),
    "row tracking": Form(writes("rowTracking", "domainMetadata"), TRACKED),
    "clustering": Form(writes("clustering", "domainMetadata")),
    "times in commits": Form(
        writes("inCommitTimestamp"), {"delta.enableInCommitTimestamps": "true"}
    ),
}
CLUSTERED = {
    "domain": "delta.clustering",
    "configuration": '{"clusteringColumns": [["key"]]}',
    "removed": False,
}
DEFAULT = column("more", "long", CURRENT_DEFAULT="7")
NEEDED = column("more", "long", nullable=False)
WIDER = {**KEYED, "more": "int64"}
BEYOND: dict[str, tuple[Form, dict[str, Any], str]] = {
    "replaced rows": (NAMED, {"key": "key"}, r"replaces no rows: leave out key=; or set the mode"),
    "new columns": (NAMED, {"columns": WIDER, "evolve": True}, "adds no columns: add them as"),
    "a default": (
        Form(writes("allowColumnDefaults"), {}, (DEFAULT,)),
        {},
        r"computes no defaults: add more to columns=; or remove what .*; or let the sink create",
    ),
    "other jars": (NAMED, {"kernel_jars": "/none"}, "'/none' has no delta-kernel-api-4.4.0.jar, "),
}


def by_kernel(test: Any) -> Any:
    """Mark a test that starts Kernel."""
    are_missing = pytest.mark.skipif(not JARS.is_dir(), reason="run scripts/setup-test-servers")
    return pytest.mark.java(are_missing(test))


@named(BEYOND)
def test_what_kernel_cannot_do_is_refused_when_the_sink_is_opened(
    tmp_path: Path, case: tuple[Form, dict[str, Any], str]
) -> None:
    form, options, words = case
    made(tmp_path, form)
    config = sink("kernel", tmp_path, **{"columns": KEYED, **options})
    with pytest.raises(PeerError, match=f"^Sink 's': the Delta table {tmp_path}/table .*{words}"):
        opened(config, tmp_path / "s")


def test_kernel_is_a_way_out_for_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    made(tmp_path, NAMED)
    with pytest.raises(PeerError, match=r"append to it with Delta Kernel \(kernel_jars=\); or let"):
        opened(sink("delta", tmp_path, KEYED), tmp_path / "s")


def test_deltalake_writes_a_table_that_does_not_need_kernel(tmp_path: Path) -> None:
    config = replace(sink("delta", tmp_path, KEYED, key="key"), kernel_jars=str(tmp_path))
    put(config, tmp_path / "s", [("a", 1), ("b", 2)], [Delete("a")])
    assert content(tmp_path / "table") == [("b", 2)]


@by_kernel
@named(APPENDED)
def test_rows_are_appended_to_a_table_that_deltalake_does_not_write(
    tmp_path: Path, case: Form
) -> None:
    table = made(tmp_path, case)
    if "clustering" in case.protocol["writerFeatures"]:
        commit(table, [{"domainMetadata": CLUSTERED}])
    before = DeltaTable(table).version()
    config = sink("kernel", tmp_path, KEYED)
    put(config, tmp_path / "s", [("a", 1), ("b", None), (None, 3)], [("c", 4)], [("d", 5)])
    assert set(content(table)) == {("a", 1), ("b", None), (None, 3), ("c", 4), ("d", 5)}
    assert DeltaTable(table).version() == before + 1


@by_kernel
@pytest.mark.parametrize("point", sampled(["lake.committed"], ["lake.begin", "delta.left"]))
def test_a_killed_driver_appends_each_row_once(
    tmp_path: Path, child_of: Callable[..., Forks], point: str
) -> None:
    more = column("batch", "long", **BATCH)
    table = made(tmp_path, Form(reads("columnMapping"), THREE, (more,), MAPPED))
    driver = child_of("tests.connectors.lake.child")
    arguments = ("kernel", tmp_path, tmp_path / "driver", 2)
    assert driver.run(*arguments, WALLAROO_FAULT=f"{point}:1")[0] == -signal.SIGKILL
    assert driver.run(*arguments)[0] == 0
    wanted = [row for batch in range(2) for task in range(TASKS) for row in rows_of(batch, task)]
    assert sorted((key, batch, value) for key, value, batch in content(table)) == sorted(wanted)


@by_kernel
def test_of_two_drivers_one_appends_a_commit(tmp_path: Path) -> None:
    """The older one was paused between its look at the table and its transaction."""
    table = made(tmp_path, NAMED)
    config = sink("kernel", tmp_path, KEYED)
    paused, newer = (session_of(config, tmp_path / "s") for _ in range(2))
    assert written(newer, config, tmp_path / "s", 0, ("a", 1))
    system = system_of(config, tmp_path / "s")
    with pytest.raises(system.errors) as raised:
        written(paused, config, tmp_path / "s", 0, ("a", 1))
    assert system.waiting_for(raised.value)  # it looks again
    assert paused.last() == commit_of(0)
    for session in (paused, newer):
        session.close()
    assert content(table) == [("a", 1)]


@by_kernel
def test_the_log_gets_checkpoints_which_keep_the_identity(tmp_path: Path) -> None:
    table = made(tmp_path, NAMED)
    config = sink("kernel", tmp_path, KEYED)
    session = session_of(config, tmp_path / "s")
    for batch in range(11):
        assert written(session, config, tmp_path / "s", batch, ("a", batch))
    session.close()
    log = table / "_delta_log"
    assert list(log.glob("*10.checkpoint*.parquet"))
    for version in range(11):  # as an owner's cleaning does
        (log / f"{version:020}.json").unlink()
    assert DeltaTable(table).transaction_version(f"wallaroo/{CHECKPOINT}/s") == 10
    assert len(content(table)) == 11


@by_kernel
def test_a_jvm_that_is_killed_is_started_again(tmp_path: Path, eventually: Eventually) -> None:
    table = made(tmp_path, NAMED)
    config = sink("kernel", tmp_path, KEYED, group_s=0.0)
    committer: Any = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 1)))
    eventually(lambda: committer.status().committed_batch == 0, "the first row left")
    committer._attempt.session.cancel()
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    eventually(lambda: committer.status().committed_batch == 1, "the second row left")
    committer.close(0.0)
    assert content(table) == [("a", 1), ("b", 2)]


@by_kernel
@pytest.mark.parametrize(
    ("form", "columns", "words"),
    [
        (Form(writes("feature2030")), KEYED, "UnsupportedTableFeatureException: .*feature2030"),
        (
            Form(writes("allowColumnDefaults"), {}, (NEEDED,)),
            WIDER,
            "column 'more' must not be null, and a row has no value",
        ),
    ],
    ids=["a feature to come", "a null"],
)
def test_what_a_table_does_not_allow_ends_the_run_and_waits(
    tmp_path: Path, eventually: Eventually, form: Form, columns: dict[str, str], words: str
) -> None:
    table = made(tmp_path, form)
    config = sink("kernel", tmp_path, columns, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    row = ("a", 1, None)[: len(columns)]
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, row))
    found = error_of(committer, eventually)
    assert f"cannot write to the Delta table {tmp_path}/table: " in found
    assert re.search(words, found)
    assert committer.status().pending_bytes
    assert DeltaTable(table).version() == 0


@by_kernel
def test_a_column_that_is_removed_while_kernel_appends_ends_the_run(
    tmp_path: Path, eventually: Eventually
) -> None:
    table = made(tmp_path, NAMED)
    config = sink("kernel", tmp_path, KEYED, group_s=0.0)
    committer = opened(config, tmp_path / "s")
    committer.commit(commit_of(0), tokens_of(config, tmp_path / "s", 0, ("a", 1)))
    eventually(lambda: committer.status().committed_batch == 0, "the first row left")
    protocol, metadata = NAMED.actions()
    text = metadata["metaData"]["schemaString"].replace('"value"', '"other"')
    metadata["metaData"]["schemaString"] = text
    commit(table, [protocol, metadata])
    committer.commit(commit_of(1), tokens_of(config, tmp_path / "s", 1, ("b", 2)))
    assert "has no column value; it has key, other" in error_of(committer, eventually)
