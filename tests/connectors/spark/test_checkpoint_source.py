"""``spark.read.format("wallaroo")``: a checkpoint's tables as DataFrames."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from wallaroo.api.serialization import serialize
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.monitoring.status_api.discovery import RUN_FILE
from wallaroo.spark.tables.checkpoint import CheckpointSource, register
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode

KEYS = 3000


def write(root: Path, values: dict[str, Any]) -> None:
    """Publish one commit with the state of a step 'totals'."""
    checkpoint = open_checkpoint(root, is_durable=False)
    by_group: dict[int, list[Entry]] = {}
    for key, value in values.items():
        encoded = encode_key(key)
        entry = Entry(0, encoded, serialize(value))
        by_group.setdefault(group_of(encoded, 16), []).append(entry)
    file = "deltas/0.x.delta"
    content, digest = encode(Origin(checkpoint.id, 0, file), by_group)
    checkpoint.storage.publish(file, content)
    deltas = (DeltaRef(file, 0, 16, len(content), len(values), digest),)
    checkpoint.commits.publish(
        Commit(0, {}, deltas, steps=("totals",), checkpoint=checkpoint.id, id=uuid.uuid4().hex)
    )
    checkpoint.release()


@pytest.fixture
def read(spark_session: Any) -> Any:
    register(spark_session)
    return lambda root: spark_session.read.format("wallaroo").option("checkpoint", str(root))


def test_state_is_read_by_key_groups_or_travels_if_a_run_has_the_checkpoint(
    tmp_path: Path, read: Any
) -> None:
    write(tmp_path / "cp", {f"key {n}": {"count": n, "half": n / 2} for n in range(KEYS)})
    frame = read(tmp_path / "cp").option("partitions", "4").load()
    assert frame.schema.simpleString() == (
        "struct<key:string,part:string,count:bigint,half:double>"
    )
    assert frame.rdd.getNumPartitions() == 4
    found = {row["key"]: (row["count"], row["half"]) for row in frame.collect()}
    assert found == {f"key {n}": (n, n / 2) for n in range(KEYS)}

    (tmp_path / "cp" / RUN_FILE).write_text("{}")
    frame = read(f"file://{tmp_path}/cp").option("step", "totals").load()
    assert frame.where("count >= 10").count() == KEYS - 10
    (commit,) = read(tmp_path / "cp").option("table", "commits").load().collect()
    assert (commit["commit"], commit["entries"]) == (0, KEYS)


def test_state_of_a_running_application_needs_no_file_after_the_query_is_planned(
    tmp_path: Path,
) -> None:
    write(tmp_path / "cp", {"a": {"count": 1}, "b": {"count": 2}})  # most key groups are empty
    (tmp_path / "cp" / RUN_FILE).write_text("{}")
    source = CheckpointSource({"checkpoint": str(tmp_path / "cp")})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    shutil.rmtree(tmp_path / "cp")
    found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
    assert sorted((row["key"], row["count"]) for row in found) == [("a", 1), ("b", 2)]


def test_rows_that_do_not_fit_the_sampled_columns_are_refused_with_the_way_out(
    tmp_path: Path, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {f"key {n}": {"count": n} for n in range(11_000)}
    odd = next(key for key in (f"odd {n}" for n in range(99)) if _is_last(key))
    write(tmp_path / "cp", values | {odd: {"count": "many"}})
    with pytest.raises(Exception, match="column 'count' is int64, and some rows have string"):
        read(tmp_path / "cp").load().collect()
    frame = read(tmp_path / "cp").schema("key STRING, count STRING").load()
    assert frame.where("count = 'many'").collect()[0]["key"] == odd


def _is_last(key: str) -> bool:
    return group_of(encode_key(key), 16) == 15


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"step": "total"}, "Did you mean 'totals'?"),
        ({"table": "letters"}, "table 'letters' is unknown. Choose one of state, commits"),
        ({"stepp": "totals"}, "option 'stepp' is unknown. Did you mean 'step'?"),
        ({"checkpoint": "/nowhere"}, "/nowhere is not a checkpoint."),
    ],
)
def test_wrong_options_are_a_sentence(
    tmp_path: Path, read: Any, options: dict[str, str], what: str
) -> None:
    write(tmp_path / "cp", {"a": {"count": 1}})
    with pytest.raises(Exception, match=what.replace("?", r"\?")):
        read(tmp_path / "cp").options(**options).load()
