"""The progress file: the last whole record counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError
from wallaroo.sinks.tcp import progress as module
from wallaroo.sinks.tcp.progress import SLOT_BYTES, Progress, ProgressFile


def written(path: Path, *records: Progress) -> None:
    file = ProgressFile(path, True)
    for record in records:
        file.write(record)
    file.sync()
    file.close()


def read(path: Path) -> Progress:
    file = ProgressFile(path, False)
    file.close()
    return file.progress


def test_the_last_record_is_found_again(tmp_path: Path) -> None:
    written(tmp_path / "p", Progress(1), Progress(2), Progress(30, 20, 4, 10))
    assert read(tmp_path / "p") == Progress(30, 20, 4, 10)


@pytest.mark.parametrize("count", [2, 3])
def test_a_record_that_was_cut_short_leaves_the_one_before(tmp_path: Path, count: int) -> None:
    path = tmp_path / "p"
    written(path, *(Progress(number) for number in range(1, count + 1)))
    raw = bytearray(path.read_bytes())
    raw[count % 2 * SLOT_BYTES + 20] ^= 0xFF
    path.write_bytes(raw)
    assert read(path) == Progress(count - 1)


def test_after_a_restart_of_the_machine_only_what_was_confirmed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "p", Progress(30, 20, 4, 10))
    monkeypatch.setattr(module, "boot_id", lambda: "another boot")
    assert read(tmp_path / "p") == Progress(20, 20, 4, 10)


def test_a_file_without_a_whole_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"rubbish" * 40)
    with pytest.raises(CheckpointError, match=str(tmp_path / "p")):
        read(tmp_path / "p")
