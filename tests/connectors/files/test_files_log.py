"""Many files as one log: each record once, however they are cut, and clear words where files
change.
"""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wallaroo
from tests.connectors.files.s3.client import S3Client
from tests.connectors.files.s3.server import running_s3
from tests.privileges import without_privileges
from tests.timed_events import decode, encode, key_of, time_of
from tests.unit.serdes.orders import Item
from tests.unit.sources.own import copying
from wallaroo import aggregations
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.connectors.files.forms import LINES as LINES_FORM
from wallaroo.connectors.files.log import PIECE_BYTES_MIN, FilesLog
from wallaroo.connectors.files.removed import ENTRY_CHARS
from wallaroo.connectors.files.storage import FileStore
from wallaroo.errors import CheckpointError, PeerError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Csv, Json, row_decoder
from wallaroo.sources import FilesSourceConfig, LogContext, Position
from wallaroo.sources.log import Range, SourceLog

Eventually = Callable[..., None]
LINES = 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    (made / "deep").mkdir(parents=True)
    (made / "a.txt").write_text("".join(f"a {n} {'x' * 40}\n" for n in range(LINES)))
    (made / "b.txt").write_text("b 0\nb 1")
    (made / "c.txt.gz").write_bytes(gzip.compress(b"".join(b"c %d\n" % n for n in range(LINES))))
    (made / ".hidden.txt").write_text("no\n")
    (made / "deep" / "d.txt").write_text("d 0\r\n")
    return made


def opened(path: object, **options: Any) -> SourceLog:
    return FilesSourceConfig("files", str(path), **options).open_log(LogContext(Path("/nowhere")))


def everything(log: SourceLog, pieces: int, events_max: int = 1000) -> list[Any]:
    positions = [log.beginning()]
    log = pickle.loads(pickle.dumps(log))
    while (next_one := log.advance(positions[-1], events_max)) != positions[-1]:
        positions.append(next_one)
    assert positions[-1].events == log.head().position.events
    return [
        payload
        for low, high in pairwise(positions)
        for piece in log.split(low, high, pieces)
        for part in piece
        for records in log.read(part)
        for payload in records.payloads
    ]


def test_files_that_are_gone_do_not_hide_what_waits_in_another(folder: Path) -> None:
    pattern = folder / "**" / "*.txt*"
    log = opened(pattern)
    done = log.advance(log.beginning(), 1_000_000)
    assert log.backlog(done) == 0
    for path in [*folder.glob("*.txt*")]:
        path.unlink()
    (folder / "new.txt").write_text("new\n")

    later = opened(pattern)

    assert later.head().position.events < done.events
    assert later.backlog(done) > 0


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_pattern_reads_files_in_parts_and_compressed_ones_whole(
    folder: Path, pieces: int
) -> None:
    got = everything(opened(folder / "**" / "*.txt*"), pieces)
    letters = [line[:1] for line in got]
    assert {letter: letters.count(letter) for letter in letters} == {
        b"a": LINES,
        b"b": 2,
        b"c": LINES,
        b"d": 1,
    }
    assert [line.split()[1] for line in got if line[:1] == b"a"] == [
        b"%d" % n for n in range(LINES)
    ]
    assert b"d 0" in got


def test_a_folder_is_read_without_what_is_below_it(folder: Path) -> None:
    assert len(everything(opened(folder), 2)) == 2 * LINES + 2
    assert len(everything(opened(folder / "b.txt"), 2)) == 2


def test_a_large_file_is_read_by_several_tasks(tmp_path: Path) -> None:
    file = tmp_path / "large.txt"
    file.write_bytes(b"0123456789\n" * (4 * PIECE_BYTES_MIN // 11))
    log = opened(file)
    start = log.beginning()
    parts = log.split(start, log.advance(start, 10**6), 3)
    assert len(parts) == 3
    assert sum(len(r.payloads) for own in parts for p in own for r in log.read(p)) == (
        4 * PIECE_BYTES_MIN // 11
    )


def test_rows_of_csv_and_parquet(tmp_path: Path) -> None:
    rows = "".join(f"tea {n},{n}\n" for n in range(9000))
    (tmp_path / "a.csv").write_text(f"name,count\n{rows}")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"count,name\n7,milk\n"))
    decode = Csv(Item).decoder.decode
    got = [decode(line) for line in everything(opened(tmp_path / "*.csv*", form="csv"), 3)]
    assert got == [*(Item(f"tea {n}", n) for n in range(9000)), Item("milk", 7)]

    table = pa.table({"name": [f"n{n}" for n in range(30_000)], "count": list(range(30_000))})
    pq.write_table(table, tmp_path / "c.parquet", row_group_size=4000)
    config = FilesSourceConfig("rows", str(tmp_path / "c.parquet"))
    assert (config.form, config.has_plain_payloads) == ("parquet", False)
    typed = row_decoder(Item).decode
    got = [typed(row) for row in everything(opened(tmp_path / "*.parquet"), 3)]
    assert got == [Item(f"n{n}", n) for n in range(30_000)]


def test_a_file_that_grows_or_goes_too_early_ends_the_run(folder: Path) -> None:
    log = opened(folder / "*.txt", watch=True)
    start = log.beginning()
    half = log.advance(start, 1)
    assert half.place["files"] == {str(folder / "a.txt"): [PIECE_BYTES_MIN, half_of(half)[1]]}
    with (folder / "a.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(PeerError, match=r"A file has to be complete when it appears: .* \.a\.txt"):
        opened(folder / "*.txt").require(half)
    (part,) = [part for piece in log.split(start, half, 1) for part in piece]
    (folder / "a.txt").unlink()
    with pytest.raises(PeerError, match="is gone after 65,536 of"):
        opened(folder / "*.txt").require(half)
    with pytest.raises(CheckpointError, match="is gone and was not processed to its end"):
        list(log.read(part))


def half_of(position: Position) -> list[int]:
    (state,) = position.place["files"].values()
    return list(state)


def test_a_file_that_was_read_may_go(folder: Path) -> None:
    log = opened(folder / "b.*", watch=True)
    done = log.advance(log.beginning(), 1000)
    (folder / "b.txt").unlink()
    (folder / "b.new").write_text("b 2\n")
    later = opened(folder / "b.*", watch=True)
    later.require(done)
    end = later.advance(done, 1000)
    assert (end.place["files"], end.place["gone"]) == ({str(folder / "b.new"): [4, 4]}, 2)
    assert len(end.place["removed"]) == ENTRY_CHARS
    assert end.events > done.events


def test_a_file_that_was_out_of_sight_is_not_read_again(folder: Path) -> None:
    """Given a folder that goes while another file is read, and returns."""
    pattern = folder / "**" / "[bdn]*.txt"
    log = opened(pattern, watch=True)
    done = log.advance(log.beginning(), 1_000_000)
    (folder / "deep").rename(folder / "deep.away")
    (folder / "deep.away" / "d.txt").rename(folder / "deep.away" / ".d")
    (folder / "new.txt").write_text("new\n")
    later = opened(pattern, watch=True)
    later.require(done)
    without = Position.from_json(json.loads(json.dumps(later.advance(done, 1000).to_json())))
    assert str(folder / "deep" / "d.txt") not in without.place["files"]

    (folder / "deep.away" / ".d").rename(folder / "deep.away" / "d.txt")
    (folder / "deep.away").rename(folder / "deep")
    again = opened(pattern, watch=True)
    again.require(without)
    head = again.head()
    assert (again.backlog(without), again.backlog_bytes(without, head)) == (0, 0)
    assert again.partitions(without) == frozenset()
    with_it = again.advance(without, 1000)
    assert again.split(without, with_it, 1) == []
    assert with_it.place["files"][str(folder / "deep" / "d.txt")] == [5, 5]
    assert "removed" not in with_it.place
    assert with_it.events == without.events


def test_another_file_under_the_name_of_one_that_was_read_and_removed_is_refused(
    folder: Path,
) -> None:
    log = opened(folder / "b.*")
    done = log.advance(log.beginning(), 1000)
    (folder / "b.txt").unlink()
    (folder / "b.new").write_text("b 2\n")
    done = opened(folder / "b.*").advance(done, 1000)
    (folder / "b.txt").write_text("another\n")
    with pytest.raises(PeerError, match="A name is read once: a new file needs a name of its own"):
        opened(folder / "b.*").require(done)


def test_files_that_are_gone_before_they_were_begun_are_refused(folder: Path) -> None:
    """The input would end without them; a source that watches reads them when they are back."""
    log = opened(folder / "?.txt")
    half = log.advance(log.beginning(), 1)
    assert half.place["unread"] == 1
    (folder / "b.txt").rename(folder / ".b.txt")
    with pytest.raises(PeerError, match=r"1 files of .* waited to be read, and 0 are there"):
        opened(folder / "?.txt").require(half)
    opened(folder / "?.txt", watch=True).require(half)
    (folder / ".b.txt").rename(folder / "b.txt")
    opened(folder / "?.txt").require(half)


def test_a_position_of_an_earlier_version_continues(folder: Path) -> None:
    log = opened(folder / "b.*")
    done = log.advance(log.beginning(), 1000)
    assert done.place == {"files": {str(folder / "b.txt"): [7, 7]}, "gone": 0}
    log = opened(folder / "b.*")
    log.require(done)
    assert log.advance(done, 1000) == done


def test_files_stay_read_when_the_folder_of_a_relative_path_is_moved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was removed before the move stays read, too, and one in progress goes on."""
    monkeypatch.chdir(folder.parent)
    log = opened("in/*.txt", watch=True)
    half = log.advance(log.beginning(), 1)
    earlier = Position({**half.place}, half.events)
    del earlier.place["home"]  # of an earlier version, which continued where it was
    log = opened("in/*.txt", watch=True)
    log.require(earlier)
    assert log.advance(earlier, 1) == log.advance(half, 1)
    done = log.advance(half, 1_000_000)
    (folder / "b.txt").rename(folder / ".b.txt")
    (folder / "new.txt").write_text("new\n")
    log = opened("in/*.txt", watch=True)
    log.require(done)
    done = log.advance(done, 1000)
    (folder.parent / "moved").mkdir()
    folder.rename(folder.parent / "moved" / "in")
    monkeypatch.chdir(folder.parent / "moved")
    Path("in/.b.txt").rename("in/b.txt")

    moved = opened("in/*.txt", watch=True)
    moved.require(done)
    assert moved.backlog(done) == 0
    assert moved.partitions(done) == frozenset()

    moved = opened("in/*.txt", watch=True)
    moved.require(half)
    (part,) = moved.split(half, moved.advance(half, 1_000_000), 1)
    lines = [line for one in part for records in moved.read(one) for line in records.payloads]
    assert lines[-1] == b"new"
    assert lines.count(b"b 0") == 1
    assert 0 < sum(line[:1] == b"a" for line in lines) < LINES


@pytest.mark.parametrize("name", [".tmp", "_temporary"])
def test_files_in_hidden_folders_are_skipped(folder: Path, name: str) -> None:
    (folder / name / "0").mkdir(parents=True)
    (folder / name / "0" / "part.txt").write_text("unfinished\n")
    assert len(everything(opened(folder / "**" / "*.txt"), 1)) == LINES + 3
    assert len(everything(opened(folder / name / "**" / "*.txt"), 1)) == 1


def test_a_pattern_does_not_enter_linked_folders_for_two_asterisks(folder: Path) -> None:
    """A link that points upwards would show each file many times; one that is named is entered."""
    (folder / "loop").symlink_to(".")
    (folder / "linked").symlink_to("deep")
    (folder / "dangling.txt").symlink_to("nowhere")
    assert everything(opened(folder / "**" / "d.txt"), 1) == [b"d 0"]
    assert everything(opened(folder / "lin*" / "d.txt"), 1) == [b"d 0"]


def test_a_subfolder_that_may_not_be_read_is_refused() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "in").mkdir()
        (Path(name) / "in" / "closed").mkdir(mode=0)
        with without_privileges(), pytest.raises(PeerError, match=r"cannot be listed.*/in/closed"):
            opened(Path(name) / "**" / "*.txt").beginning()


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("in", {"form": "xml"}, "form='xml' is unknown"),
        ("in", {"options": {"region": "a"}}, "options are for s3:// only"),
        ("in/*.parquet.gz", {}, "not gzipped as a whole"),
    ],
)
def test_a_wrong_configuration_is_refused(path: str, options: Any, words: str) -> None:
    with pytest.raises(WallarooParameterError, match=words):
        FilesSourceConfig("files", path, **options)


@pytest.mark.java
@pytest.mark.s3
def test_a_prefix_without_objects_is_watched_but_not_a_missing_bucket(tmp_path: Path) -> None:
    with running_s3(tmp_path) as server:
        S3Client(server.port).make_bucket("clicks")
        log = opened("s3://clicks/new/*.jsonl", watch=True, options=server.options)
        assert everything(log, 2) == []
        missing = FileStore("s3://none/new/*", tuple(sorted(server.options.items())))
        with pytest.raises(OSError, match="NO_SUCH_BUCKET") as raised:
            missing.sizes()
        assert not isinstance(raised.value, FileNotFoundError)


def test_a_task_that_waits_for_an_object_names_the_cause(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The list may be there while objects are not, so the driver knows of nothing."""
    refusals = [OSError("AWS Error SLOW_DOWN")] * 2

    class Slow(FileStore):
        is_s3 = True

        def open(self, name: str) -> Any:
            if refusals:
                raise refusals.pop()
            return FileStore(self.path).open(name)

    name = str(folder / "b.txt")
    log = FilesLog("files", Slow(name), LINES_FORM, True)
    payloads = [each for run in log.read(Range("files", (0, name), 7, 2)) for each in run.payloads]
    assert payloads == [b"b 0", b"b 1"]
    words = f"source 'files': {name} cannot be read at the moment (AWS Error SLOW_DOWN); trying on"
    assert caplog.messages == [words]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"nowhere cannot be listed: .* Is the path right"):
        opened(tmp_path / "nowhere").beginning()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Any], Run]]:
    runs: list[Run] = []

    def begin(source: Any) -> Run:
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(copying(source, tmp_path / "out.txt"), options, InProcessHost(2))
        runs.append(run)
        run.begin()
        return run

    yield begin
    for run in runs:
        run.stop()
        run.wait(400)


def test_a_run_takes_files_that_appear_and_the_next_one_goes_on(
    tmp_path: Path, start: Callable[[Any], Run], eventually: Eventually
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.jsonl").write_text('"a"\n"b"\n')
    out = tmp_path / "out.txt"
    source = FilesSourceConfig("files", str(folder), Json(str).decoder, watch=True)
    first = start(source)
    eventually(lambda: out.exists() and out.read_text() == "a\nb\n", "the first file")
    (folder / ".2.jsonl").write_text('"c"\n')
    (folder / ".2.jsonl").rename(folder / "2.jsonl")
    eventually(lambda: out.read_text() == "a\nb\nc\n", "the second file")
    first.stop()
    assert first.wait(400)
    assert first.exception is None

    (folder / "3.jsonl").write_text('"d"\n')
    second = start(FilesSourceConfig("files", str(folder), Json(str).decoder))
    assert second.wait(400)
    assert (second.exception, second.status().state) == (None, "finished")
    assert out.read_text() == "a\nb\nc\nd\n"


@pytest.mark.parametrize("text", ["x", "x" * 300], ids=["short", "long"])
def test_the_events_of_a_run_are_counted_not_estimated(
    text: str, tmp_path: Path, start: Callable[[Any], Run]
) -> None:
    """Given lines shorter or longer than assumed, also in files that are gone since."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, lines in enumerate((700, 23), 1):
        name = f"{number}.jsonl"
        (folder / name).write_text(f'"{text}"\n' * lines)
        run = start(FilesSourceConfig("files", str(folder), Json(str).decoder))
        assert run.wait(400)
        assert (run.exception, run.status().state) == (None, "finished")
        [source] = run.status().sources
        assert (source.events_in, source.events_done, source.backlog_events) == (lines, lines, 0)
        (folder / name).unlink()


def per_device(folder: Path, out: Path, **options: Any) -> Any:
    """Windows of 10 s over files of ``key number second``, each with the same 200 seconds."""
    folder.mkdir()
    for device in range(8):
        rows = (f"k{device} {n} {n // 5 * 10**9}\n" for n in range(1000))
        (folder / f"{device}.txt").write_text("".join(rows))
    lines = wallaroo.source("in", FilesSourceConfig("in", str(folder), decode, **options))
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(aggregations.Count(), name="counts")
    counts = lines.with_event_time(time_of, allow_before_1980=True).key_by(key_of).to(windows)
    return wallaroo.build_application(
        "devices", counts.to_sink(FileSinkConfig(str(out), encode, form="lines"))
    )


def test_files_of_one_period_are_not_late_for_each_other(tmp_path: Path) -> None:
    """They are read one after the other; each holds time back until it is read to its end."""
    out = tmp_path / "out.txt"
    options = RunOptions(status_address=None)
    run = Run(per_device(tmp_path / "in", out), options, InProcessHost(2))
    run.start()
    assert run.wait(400)

    assert run.status().losses == ()
    assert [int(line) for line in out.read_text().splitlines()] == [50] * 8 * 20


def test_a_file_is_a_partition_until_it_is_read(folder: Path) -> None:
    log = opened(folder / "?.txt")
    start = log.beginning()
    names = log.partitions(start)
    assert names is not None
    assert {name.rpartition("/")[2] for name in names} == {"a.txt", "b.txt"}
    assert log.partitions(log.advance(start, 10**9)) == frozenset()
    assert set(log.ended(names, log.head().position)) == names


def counting(source: Any, out: Path, **options: Any) -> Any:
    @wallaroo.state_computation("count", state=Total, **options)
    def count(event: Any, total: Total) -> str:
        total.count += 1
        return f"{event[2]} {total.count}"

    lines = wallaroo.source("in", source).with_event_time(
        time_of, allow_before_1980=True, delay=wallaroo.seconds(5)
    )
    counts = lines.key_by(key_of).to(count)
    return wallaroo.build_application(
        "counting", counts.to_sink(FileSinkConfig(str(out), encode, form="lines"))
    )


class Total:
    def __init__(self) -> None:
        self.count = 0


def test_events_that_wait_in_order_of_time_are_processed_after_the_ttl_is_gone(
    tmp_path: Path, eventually: Eventually
) -> None:
    """A file is a partition, so events of several wait for their turn before such a step."""
    folder = tmp_path / "in"
    folder.mkdir()
    out = tmp_path / "out.txt"
    second = 10**9
    (folder / "1.txt").write_text("".join(f"k 0 {n * second}\n" for n in range(10)))
    ttl: Any = {"ttl": wallaroo.hours(1), "ttl_time": "event"}
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
    source = FilesSourceConfig("in", str(folder), decode, watch=True)
    first = Run(counting(source, out, **ttl), options, InProcessHost(2))
    first.start()
    eventually(lambda: out.exists() and len(out.read_text().splitlines()) == 5, "the first half")
    first.stop()
    assert first.wait(400)

    (folder / "2.txt").write_text("".join(f"k 0 {n * second}\n" for n in range(10, 20)))
    rest = FilesSourceConfig("in", str(folder), decode)
    run = Run(counting(rest, out), options, InProcessHost(2))
    run.start()
    assert run.wait(400)

    assert run.exception is None
    expected = [repr(f"{n * second} {n + 1}") for n in range(20)]
    assert out.read_text().splitlines() == expected
