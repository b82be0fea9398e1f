"""The progress file: the last whole record counts, and it names its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallaroo.durable.two_slots import SLOT_BYTES
from wallaroo.errors import CheckpointError
from wallaroo.sinks.tcp.progress import (
    NAME,
    Progress,
    ProgressFile,
    begin_progress,
    read_progress,
)


def noted(staging: Path, *acked: int) -> None:
    begin_progress(staging, Progress("c"), True)
    file = ProgressFile(staging, True)
    for offset in acked:
        file.note(acked=offset)
    file.sync()
    file.close()


def test_the_last_record_is_found_again(tmp_path: Path) -> None:
    noted(tmp_path, 1, 2, 30)
    assert read_progress(tmp_path) == Progress("c", acked=30)


@pytest.mark.parametrize("count", [2, 3])
def test_a_record_that_was_cut_short_leaves_the_one_before(tmp_path: Path, count: int) -> None:
    noted(tmp_path, *range(1, count + 1))
    path = tmp_path / NAME
    raw = bytearray(path.read_bytes())
    raw[(count + 1) % 2 * SLOT_BYTES + 20] ^= 0xFF
    path.write_bytes(raw)
    assert read_progress(tmp_path) == Progress("c", acked=count - 1)


def test_a_file_without_a_whole_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"rubbish" * 40)
    with pytest.raises(CheckpointError, match=str(tmp_path / NAME)):
        read_progress(tmp_path)


def test_a_file_that_was_made_and_never_written_is_none(tmp_path: Path) -> None:
    """A start died in between: nothing has left yet."""
    (tmp_path / NAME).write_bytes(bytes(2 * SLOT_BYTES))
    assert read_progress(tmp_path) is None


def test_an_egress_does_not_begin_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        ProgressFile(tmp_path, True)
    assert not list(tmp_path.iterdir())
