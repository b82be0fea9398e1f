"""Rows of Delta tables with features of other writers, as ``wallaroo state load`` reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.connectors.lake.delta_log import Form, added, commit, reads, versions
from wallaroo.checkpoints.tables.files import rows_of_table
from wallaroo.errors import PeerError

MAPPED = {
    name: {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    for number, name in enumerate(("key", "value"), 1)
}
BY_NAME = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}


@pytest.mark.parametrize("protocol", [versions(2, 5), reads("columnMapping")])
def test_columns_that_are_mapped_to_other_names_have_their_values(
    tmp_path: Path, protocol: dict[str, object]
) -> None:
    commit(tmp_path, Form(protocol, BY_NAME, (), MAPPED).actions())
    commit(tmp_path, [added(tmp_path, pa.table({"col-1": ["a", "b"], "col-2": [1, 2]}))])
    rows = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    assert list(rows_of_table(str(tmp_path))) == rows


def test_rows_that_a_deletion_vector_names_are_left_out(tmp_path: Path) -> None:
    commit(tmp_path, Form(reads("deletionVectors")).actions())
    rows = pa.table({"key": ["a", "b", "c"], "value": [1, 2, 3]})
    commit(tmp_path, [added(tmp_path, rows, deleted=[1])])
    assert [row["key"] for row in rows_of_table(str(tmp_path))] == ["a", "c"]


@pytest.mark.parametrize("form", [Form(reads("feature2030")), Form(versions(9, 9))])
def test_a_table_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, form: Form) -> None:
    commit(tmp_path, form.actions())
    with pytest.raises(PeerError, match=f"table {tmp_path} cannot be read: .*(2030|version 9)"):
        list(rows_of_table(str(tmp_path)))
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("{ damaged")
    with pytest.raises(PeerError, match=f"table {tmp_path} cannot be read: "):
        list(rows_of_table(str(tmp_path)))
