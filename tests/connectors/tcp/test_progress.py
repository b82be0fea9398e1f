"""The progress file: the last whole record counts, and it names its checkpoint."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from wallaroo.connectors.tcp.progress import (
    NAME,
    OutputProgress,
    ProgressFile,
    begin_progress,
    read_progress,
)
from wallaroo.durable.slots import FILE_BYTES
from wallaroo.errors import CheckpointError


def noted(staging: Path, *acked: int) -> None:
    begin_progress(staging, OutputProgress("c"), True)
    file = ProgressFile(staging, True)
    for offset in acked:
        file.note(acked=offset)
    file.sync()
    file.close()


def test_the_last_record_is_found_again(tmp_path: Path) -> None:
    noted(tmp_path, 1, 2, 30)
    assert read_progress(tmp_path) == OutputProgress("c", acked=30)


@pytest.mark.parametrize("count", [2, 3])
def test_a_record_that_was_cut_short_leaves_the_one_before(tmp_path: Path, count: int) -> None:
    noted(tmp_path, *range(1, count + 1))
    path = tmp_path / NAME
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(b'"acked": %d,' % count)] ^= 0xFF
    path.write_bytes(raw)
    assert read_progress(tmp_path) == OutputProgress("c", acked=count - 1)


def test_a_file_without_a_whole_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"rubbish" * 40)
    with pytest.raises(CheckpointError, match=str(tmp_path / NAME)):
        read_progress(tmp_path)


def test_a_file_that_was_made_and_never_written_is_none(tmp_path: Path) -> None:
    """A start died in between: nothing has left yet."""
    (tmp_path / NAME).write_bytes(bytes(FILE_BYTES))
    assert read_progress(tmp_path) is None


def test_an_egress_does_not_begin_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        ProgressFile(tmp_path, True)
    assert not list(tmp_path.iterdir())


def test_a_place_that_moves_all_the_time_is_recorded_now_and_then_and_at_a_sync(
    tmp_path: Path,
) -> None:
    """A record for every slice that is sent would cost more than sending it."""
    begin_progress(tmp_path, OutputProgress("c"), False)
    file = ProgressFile(tmp_path, False, place_s=math.inf)
    for number in range(1, 100):
        file.note_place(accepted=number + 1, acked=number)
    assert found(tmp_path).acked == 0
    file.note(begun_batch=3)
    assert (found(tmp_path).begun_batch, found(tmp_path).acked) == (3, 0)
    file.sync()
    assert (found(tmp_path).accepted, found(tmp_path).acked) == (100, 99)
    file.note_place(accepted=150, acked=120)
    file.note(acked=130, accepted=150, released_batch=3, released_end=130)
    file.sync()
    assert found(tmp_path).acked == 130
    file.close()


def test_a_place_that_is_to_be_recorded_at_once_is(tmp_path: Path) -> None:
    begin_progress(tmp_path, OutputProgress("c"), False)
    file = ProgressFile(tmp_path, False, place_s=0.0)
    file.note_place(accepted=160, acked=140)
    assert found(tmp_path).acked == 140
    file.close()


def found(folder: Path) -> OutputProgress:
    record = read_progress(folder)
    assert record is not None
    return record
