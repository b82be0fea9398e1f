"""Objects of an S3 store in, and out again: each output once, also where the store goes away."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import wallaroo
from tests.s3.server import S3Server, running_s3
from tests.unit.serdes.orders import Item
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sources import FilesSourceConfig

pytestmark = [pytest.mark.s3, pytest.mark.java]

ITEMS = 20_000


@wallaroo.encoder
def as_row(item: Item) -> object:
    return item


def application(server: S3Server, *, watch: bool) -> wallaroo.Application:
    items = FilesSourceConfig(
        "items",
        "s3://bucket/in/*.jsonl",
        Json(Item).decoder,
        watch=watch,
        options=server.options,
    )
    rows = RollingSinkConfig(
        "s3://bucket/out",
        as_row,
        columns={"name": "string", "count": "int64"},
        roll_s=0.5,
        options=server.options,
    )
    return wallaroo.build_application("items", wallaroo.source("items", items).to_sink(rows))


def has_rows(store: fs.S, count: int) -> bool:
    """Whether so many are there; asked once a second, as reading all of them keeps the server
    busy.
    """
    time.sleep(1)
    return len(rows_in(store)) == count


def rows_in(store: fs.S3FileSystem) -> list[str]:
    """What an independent reader sees."""
    found = store.get_file_info(fs.FileSelector("bucket/out", allow_not_found=True))
    names = sorted(info.path for info in found if "part-" in info.base_name and info.size)
    tables = [pq.read_table(io.BytesIO(store.open_input_stream(name).read())) for name in names]
    return [name for table in tables for name in table["name"].to_pylist()]


def test_objects_are_read_in_ranges_and_written_once_while_the_store_is_killed(
    tmp_path: Path, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    lines = "".join(f'{{"name": "n{number}"}}\n' for number in range(ITEMS))
    with running_s3(tmp_path / "s3") as server:
        store = fs.S3FileSystem(allow_bucket_creation=True, **server.options)
        store.create_dir("bucket")
        with store.open_output_stream("bucket/in/a.jsonl") as out:
            out.write(lines.encode())
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(application(server, watch=True), options, InProcessHost(2))
        run.begin()
        eventually(lambda: rows_in(store), "the first rows", 60)
        server.kill()
        eventually(lambda: run.status().waiting_for, "it says what for", 60)
        server.start()
        with store.open_output_stream("bucket/in/b.jsonl") as out:
            out.write(b'{"name": "the last"}\n')
        eventually(lambda: has_rows(store, ITEMS + 1), "all rows", 90)
        run.stop()
        assert run.wait(60)
        assert run.exception is None
        assert sorted(rows_in(store)) == sorted([*(f"n{n}" for n in range(ITEMS)), "the last"])

        again = Run(application(server, watch=False), options, InProcessHost(2))
        again.begin()
        assert again.wait(60)
        assert (again.exception, len(rows_in(store))) == (None, ITEMS + 1)
