"""Blocks that go from task to task through files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.unit.runtime.applications import line, text
from wallaroo.engine.blocks.blocks import Block, Marker
from wallaroo.engine.report import TaskReport
from wallaroo.options import RunOptions
from wallaroo.runtime import in_process
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.tasks import block_files
from wallaroo.runtime.tasks.block_files import FILED_BYTES_MIN, Filed, through_files
from wallaroo.runtime.tasks.task import run_level

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


class Total:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.key_extractor
def last_digit(event: str) -> str:
    return event[-1]


@wallaroo.state_computation("count", state=Total)
def count(event: str, total: Total) -> str:
    total.count += 1
    return f"{event[-1]} {total.count}"


def test_a_run_whose_blocks_go_through_files_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    filed = []

    def run(job: Any, level: int, index: int, records: list[Any], **_: float) -> Iterator[Any]:
        filed.extend(record for record in records if isinstance(record[1], Filed))
        given: list[Any] = records if level else STARTED_WITH
        yield from through_files(
            str(blocks), run_level, job, level, index, given, filed_bytes_min=0
        )

    monkeypatch.setattr(in_process, "run_level", run)
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), text))
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=line)
    pipeline = source.key_by(last_digit).to(count).to_sink(sink)
    application = wallaroo.build_application("digits", pipeline)
    started = Run(application, RunOptions(status_address=None), in_process.InProcessHost(3))

    started.start()

    assert started.wait(400)
    assert started.exception is None
    expected = [f"{digit} {number}" for digit in range(10) for number in range(1, 101)]
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == sorted(expected)
    assert filed
