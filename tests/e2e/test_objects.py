"""Objects of an S3 store in, and out again: each output once, also where the store goes away."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import wallaroo
from tests.connectors.files.s3.server import S3Server, running_s3
from tests.unit.serdes.orders import Item
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sources import FilesSourceConfig, LogContext

pytestmark = [pytest.mark.s3, pytest.mark.java]

ITEMS = 20_000


LONG_LINES = 60_000  # several blocks, of which one is read at a time


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    with running_s3(tmp_path / "s3") as running:
        yield running


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


def is_waiting(run: Run) -> str:
    """What the run waits for; an outage does not end it."""
    assert run.exception is None
    return run.status().waiting_for


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


def test_a_reader_waits_for_a_store_that_goes_away(server: S3Server, tmp_path: Path) -> None:
    store = fs.S3FileSystem(allow_bucket_creation=True, **server.options)
    store.create_dir("bucket")
    expected = [b"%d %s" % (number, b"x" * 50) for number in range(LONG_LINES)]
    with store.open_output_stream("bucket/long.txt") as out:
        out.write(b"\n".join(expected))
    source = FilesSourceConfig("items", "s3://bucket/long.txt", options=server.options)
    log = source.open_log(LogContext(tmp_path))
    beginning = log.beginning()
    ((part,),) = log.split(beginning, log.advance(beginning, 10 * LONG_LINES), 1)
    reading = log.read(part)
    got = list(next(reading).payloads)
    assert len(got) < LONG_LINES
    server.kill()
    starting = threading.Timer(2.0, server.start)
    starting.start()
    try:
        got += [payload for records in reading for payload in records.payloads]
    finally:
        starting.join()
    assert got == expected


def test_objects_are_read_in_ranges_and_written_once_while_the_store_is_killed(
    tmp_path: Path, server: S3Server, eventually: Callable[..., None]
) -> None:
    lines = "".join(f'{{"name": "n{number}"}}\n' for number in range(ITEMS))
    store = fs.S3FileSystem(allow_bucket_creation=True, **server.options)
    store.create_dir("bucket")
    with store.open_output_stream("bucket/in/a.jsonl") as out:
        out.write(lines.encode())
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    run = Run(application(server, watch=True), options, InProcessHost(2))
    run.begin()
    eventually(lambda: rows_in(store), "the first rows")
    server.kill()
    eventually(lambda: is_waiting(run), "it says what for")
    server.start()
    with store.open_output_stream("bucket/in/b.jsonl") as out:
        out.write(b'{"name": "the last"}\n')
    eventually(lambda: has_rows(store, ITEMS + 1), "all rows")
    run.stop()
    assert run.wait(400)
    assert run.exception is None
    assert sorted(rows_in(store)) == sorted([*(f"n{n}" for n in range(ITEMS)), "the last"])

    again = Run(application(server, watch=False), options, InProcessHost(2))
    again.begin()
    assert again.wait(400)
    assert (again.exception, len(rows_in(store))) == (None, ITEMS + 1)
