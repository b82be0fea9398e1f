"""Reading a range of a file: lines, CSV rows, Parquet rows.

Where it runs: workers.

The invariant: a line or a row of CSV belongs to the range in which it begins
(`wallaroo.protocols.lines`), a row of Parquet to the range in which its row group begins.  So any
division of a file into byte ranges yields each record once, in order.  A compressed file is one
range.  A file that ends before the size that it had when it was listed is not at its end: its
unread part must not count as read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wallaroo.connectors.files.forms import CSV, LINES, PARQUET
from wallaroo.connectors.files.storage import FileStore
from wallaroo.protocols.lines import read_lines
from wallaroo.serdes.csv import CsvLine

ROWS_MAX = 1024  # passed on at a time
GZ = ".gz"

Blocks = Iterator[list[Any]]


def is_whole(name: str) -> bool:
    """Return whether a file can only be read from its beginning."""
    return name.endswith(GZ)


class _Complete:
    """A file that does not mistake a truncated response for its end."""

    def __init__(self, file: Any):
        self._file = file
        self._bytes: int = file.size()
        self._at = 0
        self.closed = False  # Arrow asks for it

    def seek(self, at: int) -> None:
        self._file.seek(at)
        self._at = at

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes, none at the end.  Raises OSError if that is not there yet."""
        found: bytes = self._file.read(size)
        self._at += len(found)
        if size and not found and self._at < self._bytes:
            raise OSError(f"only {self._at:,} of {self._bytes:,} bytes were read")
        return found


class _Unzipped:
    """A compressed file that is read from its beginning."""

    def __init__(self, file: _Complete):
        self._stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "gzip")

    def seek(self, at: int) -> None:
        assert at == 0, "a compressed file is read from its beginning"

    def read(self, size: int) -> bytes:
        found: bytes = self._stream.read(size)
        return found


def _lines_of(file: Any, name: str, start: int, end: int) -> Iterator[list[bytes]]:
    complete = _Complete(file)
    if is_whole(name):
        return read_lines(_Unzipped(complete), 0, 1 << 62)
    return read_lines(complete, start, end)


def _rows_of_csv(file: Any, name: str, start: int, end: int) -> Blocks:
    header = None if start == 0 else next(read_lines(_Complete(file), 0, 1))[0]
    for block in _lines_of(file, name, start, end):
        rows = block
        if header is None:
            header = block[0]
            rows = block[1:]
        found = [CsvLine(header, row) for row in rows if row]
        if found:
            yield found


def _rows_of_parquet(file: Any, name: str, start: int, end: int) -> Blocks:
    parquet = pq.ParquetFile(file)
    groups = [
        number
        for number in range(parquet.num_row_groups)
        if start <= _begins_at(parquet.metadata.row_group(number)) < end
    ]
    for number in groups:
        for batch in parquet.iter_batches(ROWS_MAX, row_groups=[number]):
            yield batch.to_pylist()


def _begins_at(group: Any) -> int:
    column = group.column(0)
    places = (column.dictionary_page_offset, column.data_page_offset)
    return min(int(place) for place in places if place)


READERS: dict[str, Callable[[Any, str, int, int], Blocks]] = {
    LINES: _lines_of,
    CSV: _rows_of_csv,
    PARQUET: _rows_of_parquet,
}


def records(storage: FileStore, form: str, name: str, start: int, end: int) -> Blocks:
    """Yield the records of a range of a file.  Raises OSError, ValueError if it is shorter."""
    with storage.open(name) as file:
        size = file.size()
        if not size:  # no such file is listed: the store's answer has no size
            raise OSError("its size is unknown")
        if size < end:
            raise ValueError(f"it has {size:,} bytes and had {end:,} when it was found")
        yield from READERS[form](file, name, start, end)
