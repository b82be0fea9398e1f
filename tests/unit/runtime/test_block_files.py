"""Blocks that go from task to task through files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wallaroo.engine.blocks import Block, Marker
from wallaroo.engine.report import TaskReport
from wallaroo.runtime import block_files
from wallaroo.runtime.block_files import FILED_BYTES_MIN, Filed, through_files

MARKER = Marker(0, 0, "attempt", ())
REPORT = TaskReport(0, 0, "attempt")


def block(number: int, size: int) -> Block:
    return Block(1, 0, 0, number, 7, 3, bytes([number]) * size)


STARTED_WITH = [1]  # by Spark, at level 0
GIVEN = [
    (0, block(1, FILED_BYTES_MIN)),
    (1, block(2, 10)),
    (1, block(3, 3 * FILED_BYTES_MIN)),
    (0, MARKER),
]


def producer(job: Any, level: int, index: int, records: Iterable[Any]) -> Iterator[Any]:
    assert (job, level, index, list(records)) == ("job", 0, 1, STARTED_WITH)
    yield from GIVEN


def consumer(job: Any, level: int, index: int, records: Iterable[Any]) -> Iterator[Any]:
    yield list(records)
    yield REPORT


def produced(folder: Path) -> list[Any]:
    return list(through_files(str(folder), producer, "job", 0, 1, STARTED_WITH))


def test_blocks_arrive_as_they_were(tmp_path: Path) -> None:
    received = produced(tmp_path)

    (arrived, report) = through_files(str(tmp_path), consumer, "job", 1, 0, received)

    assert arrived == GIVEN
    assert report is REPORT


def test_large_blocks_are_in_one_private_file_and_small_ones_travel(tmp_path: Path) -> None:
    received = produced(tmp_path)

    assert [isinstance(record, Filed) for _, record in received] == [True, False, True, False]
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 4 * FILED_BYTES_MIN
    assert file.stat().st_mode & 0o777 == 0o600


def test_another_attempt_writes_a_file_of_its_own(tmp_path: Path) -> None:
    first, second = produced(tmp_path), produced(tmp_path)

    assert first[0][1].path != second[0][1].path


@pytest.mark.parametrize("failing", ["open", "pwrite"])
def test_what_cannot_be_written_travels(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(block_files.os, failing, full)
    assert produced(tmp_path) == GIVEN


def test_a_block_that_is_not_whole_is_not_read(tmp_path: Path) -> None:
    received = produced(tmp_path)
    os.truncate(received[0][1].path, FILED_BYTES_MIN - 1)

    with pytest.raises(OSError, match="of a block"):
        list(through_files(str(tmp_path), consumer, "job", 1, 0, received))
