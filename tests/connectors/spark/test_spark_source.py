"""Spark as a source, with a real Spark: each row once, whatever is killed and repeated."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wallaroo
from tests.connectors.lake.tables import NAME, catalog_of
from tests.connectors.spark.readers import iceberg_files_of, lines_of, table_of
from tests.feeders import kill_feeders
from tests.unit.ingress.conftest import Running
from tests.unit.serdes.orders import Item
from tests.unit.sources.own import Numbers, copying
from wallaroo.connectors.spark.staging import StagedBatch
from wallaroo.errors import PeerError, UserCodeError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.protocols.framing import frame_splitter
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import row_decoder
from wallaroo.sources import SparkSourceConfig
from wallaroo.sources.chain import ChainSourceConfig
from wallaroo.sources.feed import EVENT_FRAMING
from wallaroo.spark.tables.feed import SparkFeed, SparkPosition, open_feed
from wallaroo.testing import run_local

Eventually = Callable[..., None]
PER_FILE = 1500  # more than a run of frames has


def add_file(folder: Path, number: int) -> None:
    """Write a file of JSON lines that appears whole."""
    folder.mkdir(exist_ok=True)
    rows = ({"id": number * PER_FILE + each, "item": f"i{each % 7}"} for each in range(PER_FILE))
    partial = folder / f".{number:06d}"
    partial.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    partial.rename(folder / f"{number:06d}.json")


def add_table(folder: Path, rows: int) -> None:
    folder.mkdir()
    pq.write_table(pa.table({"id": range(rows), "name": ["x"] * rows}), folder / "a.parquet")


def numbers(spark: Any) -> Any:
    """A stream without an end."""
    rate = spark.readStream.format("rate").options(rowsPerSecond=200, numPartitions=1)
    return rate.load().selectExpr("value AS id")


@wallaroo.decoder
def as_name(row: dict[str, Any]) -> str:
    return f"row{row['id']}"


def payloads_of(frames: bytes) -> list[bytes]:
    return frame_splitter(EVENT_FRAMING)(frames)


def ids_of(frames: bytes) -> list[int]:
    return [pickle.loads(payload)["id"] for payload in payloads_of(frames)]


class Fed:
    """A feed in this process, which uses the Spark of the tests, and what is stored of it."""

    def __init__(self, config: SparkSourceConfig[Any], folder: Path):
        self.config = config
        self.folder = folder
        self.resume = b""
        self.ids: list[int] = []
        self.feed = self._opened()

    def _opened(self) -> SparkFeed:
        feed = open_feed(self.config, self.resume)
        feed.stage_in(self.folder, True)
        return feed

    def die(self) -> None:
        """End the reader, as the death of its process would."""
        self.feed._fail(PeerError("died"))
        assert self.feed._thread is not None
        self.feed._thread.join()

    def again(self) -> None:
        """Begin again with what was stored."""
        self.die()
        self.feed = self._opened()

    def run(self, stored_max: int = 1 << 30) -> bool:
        """Store runs of frames; return whether the feed ended.

        After ``stored_max`` of them the process dies, before the feed learns that they are stored.
        """
        while (run := self.feed.next_run()) is not None:
            if not run.events:
                continue
            self.ids += ids_of(run.frames)
            self.resume = run.resume
            stored_max -= 1
            if not stored_max:
                return False
            if run.stored is not None:
                run.stored()
        return True


@pytest.fixture
def stream(tmp_path: Path, spark_session: Any) -> Callable[..., Fed]:
    def begin(files: int, **options: Any) -> Fed:
        for number in range(files):
            add_file(tmp_path / "in", number)
        reader = lines_of(str(tmp_path / "in"))
        return Fed(SparkSourceConfig("s", reader, until_now=True, **options), tmp_path / "feed")

    return begin


def test_each_row_of_a_stream_comes_once_in_order(stream: Callable[..., Fed]) -> None:
    fed = stream(3)
    assert fed.run()
    assert fed.ids == list(range(3 * PER_FILE))


@pytest.mark.parametrize("stored", [1, 2, 3, 4])
def test_a_batch_that_spark_repeats_continues_after_what_is_stored(
    stream: Callable[..., Fed], stored: int
) -> None:
    """Two runs of frames make a batch: the crash comes within one, and between two."""
    fed = stream(3)
    assert not fed.run(stored)
    fed.again()
    assert fed.run()
    assert fed.ids == list(range(3 * PER_FILE))


def test_a_stream_that_never_ends_continues_after_what_is_stored(
    tmp_path: Path, spark_session: Any
) -> None:
    fed = Fed(SparkSourceConfig("s", numbers), tmp_path / "feed")
    assert not fed.run(2)
    fed.again()
    assert not fed.run(2)
    fed.die()
    assert fed.ids == list(range(len(fed.ids)))
    assert len(fed.ids) >= 4


def test_a_stream_whose_query_is_stopped_has_not_ended(tmp_path: Path, spark_session: Any) -> None:
    """Such as by a reader that stops the session's queries."""

    fed = Fed(SparkSourceConfig("s", numbers), tmp_path / "feed")
    assert not fed.run(2)
    (query,) = spark_session.streams.active
    stopping = threading.Thread(target=query.stop)  # which waits for the batch
    stopping.start()
    assert not fed.run(3)
    stopping.join()
    fed.die()
    assert fed.ids == list(range(len(fed.ids)))


def test_rows_that_were_staged_are_not_read_again(
    stream: Callable[..., Fed], tmp_path: Path
) -> None:
    """Spark would find other rows in the file: those that are on disk are the batch's."""
    fed = stream(1)
    assert not fed.run(1)
    fed.die()
    (tmp_path / "in" / "000000.json").write_text('{"id": -1, "item": "other"}\n')
    fed.again()
    assert fed.run()
    assert fed.ids == list(range(PER_FILE))


def test_a_stream_continues_with_what_is_new(stream: Callable[..., Fed], tmp_path: Path) -> None:
    fed = stream(1)
    assert fed.run()
    add_file(tmp_path / "in", 1)
    fed.again()
    assert fed.run()
    assert fed.ids == list(range(2 * PER_FILE))


def test_a_table_is_read_once_and_the_source_ends(tmp_path: Path, spark_session: Any) -> None:
    add_table(tmp_path / "t", 2500)
    config = SparkSourceConfig("s", table_of(str(tmp_path / "t")))
    fed = Fed(config, tmp_path / "feed")
    assert not fed.run(1)
    fed.again()
    assert fed.run()
    assert fed.ids == list(range(2500))
    fed.again()
    assert fed.run()
    assert fed.ids == list(range(2500))


def test_an_iceberg_table_is_read_by_its_files(tmp_path: Path, spark_session: Any) -> None:
    rows = pa.table({"id": range(10), "name": ["x"] * 10})
    catalog = catalog_of(tmp_path)
    catalog.create_namespace_if_not_exists("out")
    table = catalog.create_table(NAME, schema=rows.schema)
    table.append(rows)
    table.append(rows)
    table.overwrite(rows.slice(5))  # earlier files stay in the folder
    fed = Fed(SparkSourceConfig("s", iceberg_files_of(str(tmp_path))), tmp_path / "feed")
    assert fed.run()
    assert fed.ids == [5, 6, 7, 8, 9]


def test_a_table_is_not_taken_as_read_while_spark_stages_its_rows(
    tmp_path: Path, spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run with --until-now ends after a second, with a part of the table or nothing."""
    is_over = threading.Event()
    write = StagedBatch.write

    def slowly(batch: StagedBatch, frame: Any) -> None:
        assert is_over.wait(400)
        write(batch, frame)

    monkeypatch.setattr(StagedBatch, "write", slowly)
    add_table(tmp_path / "t", 10)
    fed = Fed(SparkSourceConfig("s", table_of(str(tmp_path / "t"))), tmp_path / "feed")
    while (run := fed.feed.next_run()) is not None and run.is_away:
        pass
    is_over.set()
    assert run is not None
    assert run.is_caught_up is False
    assert fed.run()
    assert fed.ids == list(range(10))


def test_a_table_is_followed_by_another_source(tmp_path: Path) -> None:
    add_table(tmp_path / "t", 2_500)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "a").write_text("30")
    table = SparkSourceConfig("in", table_of(str(tmp_path / "t")), decoder=as_name)
    config = ChainSourceConfig(table, Numbers("in", tmp_path / "live"))
    application = copying(config, tmp_path / "out.txt")
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None, until_now=True)
    made = Run(application, options, InProcessHost(2))
    made.begin()
    assert made.wait(400)
    assert made.exception is None
    copied = (tmp_path / "out.txt").read_text().split()
    assert copied == [f"row{number}" for number in range(2_500)] + [f"a{n}" for n in range(30)]


def test_batches_are_arrow_record_batches(tmp_path: Path, spark_session: Any) -> None:
    add_table(tmp_path / "t", 20_000)
    config = SparkSourceConfig("s", table_of(str(tmp_path / "t")), form="batches")
    feed = open_feed(config, b"")
    feed.stage_in(tmp_path / "feed", False)
    payloads = []
    while (run := feed.next_run()) is not None:
        payloads += payloads_of(run.frames)
        if run.stored is not None:
            run.stored()
    rows = config.decoder.function(payloads)
    assert len(payloads) == 3
    assert isinstance(rows, pa.RecordBatch)
    assert rows.column("id").to_pylist() == list(range(20_000))


def test_notes_of_another_query_are_refused(stream: Callable[..., Fed], tmp_path: Path) -> None:
    fed = stream(1)
    assert fed.run()
    fed.resume = SparkPosition("another query", 0).to_bytes()
    add_file(tmp_path / "in", 1)
    fed.again()
    with pytest.raises(PeerError, match="are not those of the query that was read until now"):
        fed.run()


def test_a_reader_that_raises_is_named_with_its_line(tmp_path: Path, spark_session: Any) -> None:
    fed = Fed(SparkSourceConfig("s", lambda spark: spark.nothing), tmp_path / "feed")
    with pytest.raises(UserCodeError) as raised:
        fed.run()
    assert "test_spark_source.py" in str(raised.value)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (lambda spark: 5, "Source 's': its reader returned int, not a DataFrame"),
        (lambda spark: spark.read.json("/nowhere"), "nowhere"),
        (lambda spark: spark.readStream.format("no such").load(), "no such"),
    ],
)
def test_what_cannot_be_read_ends_the_source_with_a_sentence(
    tmp_path: Path, spark_session: Any, reader: Any, words: str
) -> None:
    fed = Fed(SparkSourceConfig("s", reader), tmp_path / "feed")
    with pytest.raises((PeerError, UserCodeError), match=words) as raised:
        fed.run()
    assert "java" not in str(raised.value)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (lambda spark: spark.read.json("/nowhere?user=me&password=hunter2"), "password=[*]"),
        (lambda spark: spark.read.parquet("wasb://me:hunter2@place/path"), "."),
        (
            lambda spark: (
                spark.readStream.format("no such").option("fs.s3a.secret.key", "hunter2").load()
            ),
            "no such",
        ),
        (lambda spark: spark.sql("select * from hunter2"), r"`[*]{3}`"),
    ],
    ids=["parameter", "user", "option", "setting"],
)
def test_secrets_are_in_no_error(
    tmp_path: Path, spark_session: Any, reader: Any, words: str
) -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hunter2"} if words == r"`[*]{3}`" else {}
    fed = Fed(SparkSourceConfig("s", reader, conf=conf), tmp_path / "feed")
    with pytest.raises(PeerError, match=words) as raised:
        fed.run()
    assert "hunter2" not in str(raised.value)


def test_a_column_that_changes_is_named_and_waited_for(tmp_path: Path, spark_session: Any) -> None:
    """A file of another type stops the stream, not the rows before it; corrected, it is read."""
    rows = tmp_path / "t"
    add_table(rows, 3)

    def read(spark: Any) -> Any:
        return spark.readStream.schema("id long, name string").parquet(str(rows))

    fed = Fed(SparkSourceConfig("s", read), tmp_path / "feed")
    seen: list[int] = []
    problem = ""

    def store_until(condition: Callable[[], bool]) -> None:
        nonlocal problem
        while not condition():
            run = fed.feed.next_run()
            assert run is not None
            problem = run.problem
            seen.extend(ids_of(run.frames))
            if run.stored is not None:
                run.stored()

    store_until(lambda: len(seen) == 3)
    pq.write_table(pa.table({"id": ["three"], "name": ["x"]}), rows / "b.parquet")
    store_until(lambda: bool(problem))
    assert re.search(r"Spark cannot read: .*b\.parquet.*; retrying", problem)
    pq.write_table(pa.table({"id": [3], "name": ["x"]}), rows / "b.parquet")
    store_until(lambda: len(seen) > 3)
    assert seen == [0, 1, 2, 3]
    fed.die()


def test_each_row_is_stored_once_while_processes_are_killed(
    tmp_path: Path, running: Running, eventually: Eventually
) -> None:
    """The feeder and Spark's JVM, which ends it, in turn, while files appear."""
    config = SparkSourceConfig("s", lines_of(str(tmp_path / "in")))
    add_file(tmp_path / "in", 0)
    running.start(config, is_durable=True)
    source = running.source("s", EVENT_FRAMING)

    def wait_for(files: int) -> None:
        def has_come() -> bool:
            running.feeders.poll()  # starts again what was killed
            return source.reader.head().position.events >= files * PER_FILE

        eventually(has_come, f"the rows of {files} files")

    for number in range(1, 3):
        wait_for(number)
        add_file(tmp_path / "in", number)
        if number % 2:
            kill_feeders()
        else:
            _kill_jvm()
    wait_for(3)
    ids = [pickle.loads(payload)["id"] for payload in source.payloads()]
    assert ids == list(range(3 * PER_FILE))
    assert any("has gone" in line or "killed" in line for line in running.log), running.log


def test_a_jvm_that_dies_under_the_reader_is_started_again(
    tmp_path: Path, running: Running, eventually: Eventually
) -> None:
    """The user's reader meets refused connections then, which are no fault of its own."""
    add_file(tmp_path / "in", 0)
    has_died = tmp_path / "has died"
    read = lines_of(str(tmp_path / "in"))

    def reader(spark: Any) -> Any:
        if not has_died.exists():
            has_died.touch()
            spark.sparkContext._gateway.proc.kill()
        return read(spark)

    running.start(SparkSourceConfig("s", reader), is_durable=True)
    source = running.source("s", EVENT_FRAMING)

    def has_come() -> bool:
        running.feeders.poll()
        return source.reader.head().position.events >= PER_FILE

    eventually(has_come, "the rows of the file")
    assert [pickle.loads(payload)["id"] for payload in source.payloads()] == list(range(PER_FILE))


@pytest.mark.long
def test_a_jvm_that_is_killed_while_it_starts_is_started_again(
    tmp_path: Path, running: Running, eventually: Eventually
) -> None:
    add_file(tmp_path / "in", 0)
    running.start(SparkSourceConfig("s", lines_of(str(tmp_path / "in"))), is_durable=True)
    eventually(lambda: bool(_jvms()), "the first JVM")
    _kill_jvm()
    source = running.source("s", EVENT_FRAMING)

    def has_come() -> bool:
        running.feeders.poll()
        return source.reader.head().position.events >= PER_FILE

    eventually(has_come, "the rows of the file")


def _jvms() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(os.getpid()).children(recursive=True)
        if _is_of_feeder(child) and _is_sparks(child)
    ]


def _is_of_feeder(process: psutil.Process) -> bool:
    try:
        return any("wallaroo.ingress.feeder" in parent.cmdline() for parent in process.parents())
    except psutil.Error:  # one of them has ended
        return False


def _is_sparks(process: psutil.Process) -> bool:
    """Whether it is Spark itself, not the program that composes its command line."""
    try:
        command = process.cmdline()
        return "java" in process.name() and "org.apache.spark.launcher.Main" not in command
    except psutil.Error:
        return False


def _kill_jvm() -> None:
    (jvm,) = _jvms()
    jvm.send_signal(signal.SIGKILL)


def _text(item: Item) -> str:
    return f"{item.name} {item.count}"


def test_rows_are_events_of_a_type_in_tests(tmp_path: Path) -> None:
    config = SparkSourceConfig("items", table_of("t"), row_decoder(Item))
    sink = wallaroo.FileSinkConfig(str(tmp_path / "out"), None)
    application = wallaroo.build_application(
        "items",
        wallaroo.source("items", config)
        .map(lambda item: f"{item.name} {item.count}")
        .to_sink(sink),
    )
    run = run_local(application, {"items": [Item("tea", 2)]})
    assert run.outputs == [b"tea 2"]


def test_a_configuration_travels_with_its_lambda() -> None:
    config = SparkSourceConfig("s", lambda spark: spark + 1, row_decoder(Item))
    travelled = pickle.loads(pickle.dumps(config))
    assert travelled.reader.function(1) == 2
    packed = pickle.dumps({"name": "tea", "count": 2})
    assert travelled.decoder.function(packed) == Item("tea", 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reader": 5}, "reader=5 is not a function"),
        ({"form": "arrow"}, "form='arrow' is unknown. Choose one of 'rows', 'batches'"),
        ({"every_s": -1}, "every_s=-1 is not a time"),
        ({"form": "batches", "decoder": row_decoder(Item)}, "has a decoder of its own"),
    ],
)
def test_a_wrong_configuration_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        SparkSourceConfig(**{"name": "s", "reader": table_of("t"), **options})
