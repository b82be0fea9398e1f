"""Answers of an object store that are cut off: what was not read of a file is read again."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wallaroo.connectors.files.forms import CSV, LINES, PARQUET
from wallaroo.connectors.files.log import FilesLog
from wallaroo.errors import PeerError
from wallaroo.sources.log import Range

LINE = b"%d xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"
CONTENT = b"".join(LINE % number for number in range(100_000))


class Cut(io.BytesIO):
    """An object as Arrow shows it, of whose answers only the beginnings have come."""

    def __init__(self, content: bytes, size: int, came: int):
        super().__init__(content)
        self._size = size  # what a HEAD says
        self._came = came  # a GET of more yields nothing, without an error

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        left = self._came - self.tell()
        return super().read(left if size is None or size < 0 else min(size, left))


class Store:
    """An object store whose first answers are cut off."""

    is_s3 = True
    relative_to = ""

    def __init__(self, content: bytes, *answers: tuple[int, int]):
        self._content = content
        self._answers = [*answers, (len(content), len(content))]

    def is_transient(self, _: OSError) -> bool:
        return True

    def open(self, _: str) -> Any:
        return Cut(self._content, *self._answers.pop(0))


def rows_in_parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(50))}), out)
    return out.getvalue()


def read(form: str, name: str, store: Any, start: int, end: int) -> list[Any]:
    log = FilesLog("files", store, form, True)
    part = Range("files", (start, name), end, 1)
    return [payload for records in log.read(part) for payload in records.payloads]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize("answers", [[(0, 0)], [(len(CONTENT), 0)], [(len(CONTENT), 2_000_000)]])
@pytest.mark.parametrize("start", [0, 1_500_000])
def test_lines_are_read_once_after_a_cut_answer(answers: Any, start: int) -> None:
    lines = read(LINES, "a.txt", Store(CONTENT, *answers), start, len(CONTENT))
    assert lines == CONTENT[CONTENT.rfind(b"\n", 0, start) + 1 :].splitlines()[bool(start) :]


def test_the_line_that_crosses_the_end_of_a_range_is_read_whole() -> None:
    end = len(LINE % 0) + 5
    answers = (len(CONTENT), end)
    assert read(LINES, "a.txt", Store(CONTENT, answers), 0, end) == CONTENT.splitlines()[:2]


@pytest.mark.parametrize("came", [0, 5, 200_000])
def test_a_compressed_file_is_read_once_after_a_cut_answer(came: int) -> None:
    content = gzip.compress(CONTENT)
    for answer in ((0, 0), (len(content), came)):
        lines = read(LINES, "a.txt.gz", Store(content, answer), 0, len(content))
        assert lines == CONTENT.splitlines()


@pytest.mark.parametrize(
    ("form", "content_of"), [(CSV, lambda: b"a\n1\n2\n3\n"), (PARQUET, rows_in_parquet)]
)
def test_rows_are_read_once_after_a_cut_answer(form: str, content_of: Callable[[], bytes]) -> None:
    content = content_of()
    rows = read(form, "a", Store(content), 0, len(content))
    assert len(rows) in (3, 50)
    assert len(read(form, "a", Store(content, (0, 0)), 0, len(content))) == len(rows)


def test_an_object_that_has_become_shorter_ends_the_run() -> None:
    with pytest.raises(PeerError, match=r"a\.txt cannot be read: it has 7 bytes and had 8"):
        read(LINES, "a.txt", Store(b"1234567"), 0, 8)
