"""Rows from Spark on disk, until the spool has them.

Where it runs: feeder processes.

The invariant: a batch is written once.  Its file of marks (``STAGED``) is there, and on disk, when
all of its rows are; from then on the rows are those of these files, even if Spark would read
others, and a row's number means the same in every process.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from wallaroo.connectors.spark.rows import packed_batch, packed_row
from wallaroo.durable.whole_file import sync_folder, write_whole
from wallaroo.sources.feed import framed

STAGED = "staged.json"
ROWS_MAX = 1024  # per run of frames
BATCH_ROWS_MAX = 8192  # per record batch that is one event


class StagedBatch:
    """One batch of rows, in a folder of its own."""

    def __init__(self, root: Path, number: int, is_durable: bool):
        self.number = number
        self._folder = root / f"batch-{number:012d}"
        self._is_durable = is_durable

    @property
    def is_whole(self) -> bool:
        """Return whether all of its rows are on disk."""
        return (self._folder / STAGED).exists()

    def write(self, frame: Any) -> None:
        """Write a DataFrame's rows, unless they are on disk already."""
        if self.is_whole:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        frame.write.parquet(self._folder.as_uri())
        files = sorted(path.name for path in self._folder.glob("part-*.parquet"))
        if self._is_durable:
            for name in files:
                sync_file(self._folder / name)
            sync_folder(self._folder)
        write_whole(
            self._folder / STAGED,
            json.dumps(files).encode(),
            is_durable=self._is_durable,
            points="spark.staged",
        )

    def frames(self, form: str, done: int) -> Iterator[list[bytes]]:
        """Yield the frames after the first ``done``, some at a time."""
        each = self._rows() if form == "rows" else self._batches()
        rest = islice(each, done, None)
        while run := list(islice(rest, ROWS_MAX if form == "rows" else 1)):
            yield run

    def remove(self) -> None:
        """Remove the rows: the spool has them."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _rows(self) -> Iterator[bytes]:
        for batch in self._read(ROWS_MAX):
            for row in batch.to_pylist():
                yield framed(packed_row(row))

    def _batches(self) -> Iterator[bytes]:
        for batch in self._read(BATCH_ROWS_MAX):
            yield framed(packed_batch(batch))

    def _read(self, rows_max: int) -> Iterator[Any]:
        for name in json.loads((self._folder / STAGED).read_text(encoding="utf-8")):
            with pq.ParquetFile(self._folder / name) as file:
                yield from file.iter_batches(rows_max)


def sync_file(path: Path) -> None:
    """Make a file that another process wrote survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
