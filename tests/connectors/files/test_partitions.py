"""Rolling output in folders: each row once, in the folder of its values, and marks that hold."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import wallaroo
from tests.connectors.file.files import staged
from tests.connectors.files.partitioned_child import BATCHES, COLUMNS, HOUR_NS, config_at, rows_of
from tests.connectors.files.partitioned_child import main as commit_all
from tests.connectors.files.s3.client import S3Client
from tests.connectors.files.s3.server import S3Server, running_s3
from tests.forks import Forks
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.files.rolling_files import NAME_BYTES_MAX, Partitions
from wallaroo.errors import CheckpointError, PipelineError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sources import FilesSourceConfig

DRAIN_S = 400.0
Eventually = Callable[..., None]
HOURS = ("dt(at)", "hour(at)")


def written(config: RollingSinkConfig, folder: Path, *rows: Any) -> list[str]:
    """Write rows in one batch; return the names of the folders of files."""
    committer = opened(config, folder)
    put(committer, config, folder, 0, *rows)
    committer.close(DRAIN_S)
    files = (folder / "out").rglob("part-*")
    return sorted(str(each.parent.relative_to(folder / "out")) for each in files)


def opened(config: RollingSinkConfig, folder: Path, last: int = -1) -> Any:
    committer = config.committer("s", folder / "staging", True)
    committer.recover(history_to(last), [])
    return committer


def put(committer: Any, config: Any, folder: Path, batch: int, *rows: Any) -> None:
    outputs = [config.encoder.function(row) for row in rows]
    committer.commit(commit_of(batch), staged(config, folder / "staging", batch, outputs))


def marks(folder: Path) -> list[str]:
    found = (folder / "out").rglob("_SUCCESS")
    return sorted(str(each.parent.relative_to(folder / "out")) for each in found)


@pytest.mark.parametrize("form", ["parquet", "csv", "lines"])
def test_duckdb_and_arrow_read_all_values_back(tmp_path: Path, form: str) -> None:
    columns = {"at": pa.timestamp("ms", tz="Europe/Berlin"), "city": "string", "n": "int64"}
    config = RollingSinkConfig(
        str(tmp_path / "out"), columns=columns, form=form, partition_by=("dt(at)", "city")
    )
    at = datetime(2026, 1, 2, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    cities = ["a/b", "x=y %41", "Köln", "a:b*?\"'#", None, ""]
    folders = written(config, tmp_path, *[(at, city, n) for n, city in enumerate(cities)])
    assert "dt=2026-01-01/city=a%2Fb" in folders  # in UTC it is the day before
    assert "dt=2026-01-01/city=x%3Dy %2541" in folders
    assert len(folders) == 5
    place = str(tmp_path / "out")
    partitioning = ds.HivePartitioning(pa.schema([("dt", pa.string()), ("city", pa.string())]))
    arrow_form = "json" if form == "lines" else form
    table = ds.dataset(place, format=arrow_form, partitioning=partitioning).to_table()
    read = {row["n"]: row["city"] for row in table.to_pylist()}
    expected = {n: city or None for n, city in enumerate(cities)}
    assert read == expected
    function = {"parquet": "read_parquet", "csv": "read_csv", "lines": "read_json"}[form]
    rows = duckdb.sql(
        f"select n, city from {function}('{place}/**/part-*', hive_partitioning=true)"
    ).fetchall()
    assert dict(rows) == expected


def test_values_become_folders_of_their_column_and_rows_keep_their_order(tmp_path: Path) -> None:
    columns = {"day": "date32", "is_new": "bool", "n": "int32", "word": "string"}
    config = RollingSinkConfig(
        str(tmp_path / "out"),
        columns=columns,
        form="lines",
        compress=True,
        partition_by=("day", "is_new", "n"),
    )
    day = date(2026, 1, 2)
    rows = [(day, True, 7, "a"), (day, False, 7, "b"), (day, True, 7, "c"), (None, None, -1, "d")]
    null = "__HIVE_DEFAULT_PARTITION__"
    assert written(config, tmp_path, *rows) == [
        "day=2026-01-02/is_new=false/n=7",
        "day=2026-01-02/is_new=true/n=7",
        f"day={null}/is_new={null}/n=-1",
    ]
    [part] = (tmp_path / "out/day=2026-01-02/is_new=true/n=7").iterdir()
    assert part.name.endswith(".jsonl.gz")
    lines = gzip.decompress(part.read_bytes()).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"word": "a"}, {"word": "c"}]


POINTS = [
    "rolling.decided.published:1",
    "rolling.write:1",
    "rolling.published:1",
    "rolling.published:3",
    "rolling.put:1",
    "rolling.left:1",
    "rolling.decided.published:2",
    "outbox.pending.remove:2",
    "rolling.marked:1",
    "rolling.marked:2",
]


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_anywhere_writes_each_row_once_and_marks_what_is_complete(
    child_of: Callable[..., Forks], tmp_path: Path, point: str
) -> None:
    child = child_of("tests.connectors.files.partitioned_child")
    code, _ = child.run(tmp_path, WALLAROO_FAULT=point)
    assert code == -signal.SIGKILL, "the point was not passed"
    expected = {row[2]: row for batch in range(BATCHES) for row in rows_of(batch)}
    for folder in marks(tmp_path):
        of_hour = [n for n, row in expected.items() if folder.endswith(f"hour=0{row[0].hour}")]
        there = rows_below(tmp_path / "out" / folder)
        assert sorted(n for n, _, _ in there) == of_hour, "marked before it was complete"
    assert child.run(tmp_path)[0] == 0
    assert marks(tmp_path) == [f"dt=1970-01-01/hour=0{hour}" for hour in range(BATCHES // 2)]
    assert sorted(rows_below(tmp_path / "out")) == [
        (n, at.hour, country) for n, (at, country, _) in sorted(expected.items())
    ]
    assert list((tmp_path / "staging" / "pending").iterdir()) == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        S3Client(server.port).make_bucket("lake")
        yield server


@pytest.mark.java
@pytest.mark.s3
@pytest.mark.parametrize("point", ["", "rolling.put:1", "rolling.marked:1"])
def test_an_object_store_has_each_row_once_and_marks_of_complete_hours(
    child_of: Callable[..., Forks], tmp_path: Path, store: S3Server, point: str
) -> None:
    client = S3Client(store.port)
    child = child_of("tests.connectors.files.partitioned_child")
    if point:
        code, _ = child.run(tmp_path, store.port, WALLAROO_FAULT=point)
        assert code == -signal.SIGKILL, "the point was not passed"
    assert child.run(tmp_path, store.port)[0] == 0
    top = f"{tmp_path.name}/"
    names = [name.removeprefix(top) for name in client.names("lake") if name.startswith(top)]
    assert sorted(name for name in names if name.endswith("/_SUCCESS")) == [
        f"dt=1970-01-01/hour=0{hour}/_SUCCESS" for hour in range(BATCHES // 2)
    ]
    found = []
    for name in names:
        if "/part-" in name:
            _, hour, country, _ = name.split("/")
            header, *lines = client.content("lake", top + name).decode().splitlines()
            place = header.replace('"', "").split(",").index("n")
            found += [(int(line.split(",")[place]), hour, country) for line in lines]
    assert sorted(found) == sorted(
        (n, f"hour=0{at.hour}", f"country={country.replace('/', '%2F')}")
        for batch in range(BATCHES)
        for at, country, n in rows_of(batch)
    )


def rows_below(folder: Path) -> list[tuple[int, int, str]]:
    found = duckdb.sql(
        f"select n, hour, country from read_csv('{folder}/**/part-*', hive_partitioning=true)"
    )
    return [(n, int(hour), country) for n, hour, country in found.fetchall()]


def test_a_run_that_starts_again_marks_nothing_twice_and_a_late_row_leaves_the_mark(
    tmp_path: Path,
) -> None:
    commit_all(str(tmp_path))
    first = tmp_path / "out/dt=1970-01-01/hour=00"
    before = (first / "_SUCCESS").stat().st_mtime_ns
    config = config_at(tmp_path)
    committer = opened(config, tmp_path, BATCHES - 1)
    put(committer, config, tmp_path, BATCHES, rows_of(0)[0])
    committer.passed(BATCHES, 10 * HOUR_NS)
    committer.close(DRAIN_S)
    assert len(rows_below(first)) == 5
    assert (first / "_SUCCESS").stat().st_mtime_ns == before


def test_an_hour_is_marked_while_no_output_comes_and_not_before_its_files(
    tmp_path: Path, eventually: Eventually
) -> None:
    config = RollingSinkConfig(
        str(tmp_path / "out"), columns=COLUMNS, partition_by=HOURS, mark_success=True, roll_s=0.3
    )
    committer = opened(config, tmp_path)
    put(committer, config, tmp_path, 0, *rows_of(0))
    committer.passed(0, HOUR_NS - 1)
    eventually(lambda: committer.status().committed_batch == 0, "the file")
    assert marks(tmp_path) == []
    committer.passed(1, HOUR_NS)
    eventually(lambda: marks(tmp_path) == ["dt=1970-01-01/hour=00"], "the mark")
    committer.close(DRAIN_S)


def test_another_layout_is_refused_while_files_are_half_written(
    child_of: Callable[..., Forks], tmp_path: Path, eventually: Eventually
) -> None:
    child = child_of("tests.connectors.files.partitioned_child")
    child.run(tmp_path, WALLAROO_FAULT="rolling.published:1")
    config = RollingSinkConfig(str(tmp_path / "out"), columns=COLUMNS, partition_by="country")
    log = (tmp_path / "commits.jsonl").read_text().splitlines()
    committer = config.committer("s", tmp_path / "staging", True)
    committer.recover(history_to(len(log) - 1), json.loads(log[-1]))
    raised: list[CheckpointError] = []

    def is_refused() -> bool:
        try:
            committer.backlog()
        except CheckpointError as error:
            raised.append(error)
        return bool(raised)

    eventually(is_refused, "the error")
    assert "Run once with partition_by, form and compress as they were" in str(raised[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition_by": "city"}, "'city' is not a column"),
        ({"partition_by": "dt(city)"}, "'city' is not a column"),
        ({"partition_by": "dt(n)"}, "'dt\\(n\\)' cannot be made of int64"),
        ({"partition_by": "week(at)"}, "'week\\(at\\)' is not a time: year, month"),
        ({"partition_by": "x"}, "'x' cannot be made of double"),
        ({"partition_by": "at"}, "'at' cannot be made of timestamp"),
        ({"partition_by": ("dt(at)", "dt(at)")}, "two columns would have the name 'dt'"),
        ({"partition_by": ("at", "n", "x", "hour")}, "cannot be made of timestamp"),
        ({"partition_by": "hour(at)"}, "two columns would have the name 'hour'"),
        ({"partition_by": "n", "mark_success": True}, "those of one column's time"),
        ({"mark_success": True}, "no folder is one of a time"),
        ({"partition_by": ("year(at)", "day(at)"), "mark_success": True}, "is not known"),
        ({"columns": {"n": "int64"}, "partition_by": "n"}, "no column would be left"),
        ({"columns": None, "partition_by": "n"}, "are for rows"),
        ({"columns": {"n": "binary"}, "form": "lines"}, "which JSON cannot hold"),
        ({"columns": {"n": pa.list_(pa.int64())}, "form": "csv"}, "which CSV cannot hold"),
        ({"form": "orc"}, "form='orc' is none"),
    ],
)
def test_a_wrong_layout_is_refused(options: dict[str, Any], words: str) -> None:
    columns = {"at": "timestamp[us]", "n": "int64", "x": "double", "hour": "int64"}
    with pytest.raises(WallarooParameterError, match=words):
        RollingSinkConfig("out", **{"columns": columns, **options})


def test_a_text_that_is_no_folders_name_is_refused_in_the_step() -> None:
    config = RollingSinkConfig("out", columns=COLUMNS, partition_by="country")
    assert config.encoder is not None
    with pytest.raises(ValueError, match="cannot be longer than 255 bytes"):
        config.encoder.function((None, "/" * (NAME_BYTES_MAX // 3), 1))


@pytest.mark.parametrize(
    ("levels", "folder", "end"),
    [
        ("year(at)", "year=2026", datetime(2027, 1, 1, tzinfo=UTC)),
        ("year(at) month(at)", "year=2026/month=11", datetime(2026, 12, 1, tzinfo=UTC)),
        ("year(at) month(at)", "year=2026/month=12", datetime(2027, 1, 1, tzinfo=UTC)),
        ("dt(at) city", "dt=2026-02-28/city=a", datetime(2026, 3, 1, tzinfo=UTC)),
        ("city dt(at) hour(at)", "city=a/dt=2026-02-28/hour=23", datetime(2026, 3, 1, tzinfo=UTC)),
        ("dt(at)", "dt=__HIVE_DEFAULT_PARTITION__", None),
        ("dt(at)", "", None),
    ],
)
def test_a_folder_has_the_end_of_its_time(levels: str, folder: str, end: datetime | None) -> None:
    columns = {"at": "timestamp[us]", "city": "string"}
    found = Partitions(levels.split(), columns).end_ns(folder)
    assert found == (None if end is None else int(end.timestamp()) * 1_000_000_000)


# -- in an application ----------------------------------------------------------------------------


def time_of(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["at"]).replace(tzinfo=UTC)


def row_of(event: dict[str, Any]) -> dict[str, Any]:
    return {"at": datetime.fromisoformat(event["at"]), "n": event["n"]}


def application(
    folder: Path, *, is_timed: bool = True, watch: bool = False
) -> wallaroo.Application:
    source = FilesSourceConfig("in", str(folder / "in"), Json(dict).decoder, watch=watch)
    events: Any = wallaroo.source("in", source)
    if is_timed:
        events = events.with_event_time(time_of)
    sink = RollingSinkConfig(
        str(folder / "out"),
        wallaroo.encoder(row_of),
        {"at": "timestamp[us]", "n": "int64"},
        roll_s=0.01,
        partition_by=HOURS,
        mark_success=True,
    )
    return wallaroo.build_application("hours", events.to_sink(sink))


def test_an_application_marks_all_hours_at_the_end_of_its_input(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    events = [{"at": f"2026-01-02T{n // 10:02d}:00:00", "n": n} for n in range(40)]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / "in" / "a.jsonl").write_text(lines)
    run = Run(application(tmp_path), RunOptions(status_address=None), InProcessHost())
    run.start()
    assert run.wait(400)
    assert marks(tmp_path) == [f"dt=2026-01-02/hour=0{hour}" for hour in range(4)]
    table = ds.dataset(str(tmp_path / "out"), partitioning="hive").to_table()
    assert sorted(table["n"].to_pylist()) == list(range(40))


def test_an_hour_is_marked_once_the_watermark_has_passed_it_also_by_a_later_run(
    tmp_path: Path, eventually: Eventually
) -> None:
    """Neither the end of a run nor a late row marks an hour, or takes a mark away."""
    (tmp_path / "in").mkdir()
    numbers = count()
    hour = "dt=2026-01-02/hour=0{}"

    def rows(of: int) -> int:
        files = list((tmp_path / "out" / hour.format(of)).glob("part-*"))
        return len(ds.dataset(files).to_table()) if files else 0

    @contextmanager
    def running() -> Iterator[None]:
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(application(tmp_path, watch=True), options, InProcessHost())
        run.begin()
        try:
            yield
        finally:
            run.stop()
            assert run.wait(400)
        assert run.exception is None

    def append(at: str) -> None:
        name = f"{next(numbers)}.jsonl"
        (tmp_path / name).write_text(json.dumps({"at": f"2026-01-02T{at}:00", "n": 0}) + "\n")
        (tmp_path / name).rename(tmp_path / "in" / name)

    with running():
        append("00:10")
        eventually(lambda: rows(0) == 1, "the row of the first hour")
        append("00:59")
        eventually(lambda: rows(0) == 2, "the next one")
    assert marks(tmp_path) == []

    with running():
        append("01:05")
        eventually(lambda: marks(tmp_path) == [hour.format(0)], "the mark of the first hour")
        marked = (tmp_path / "out" / hour.format(0) / "_SUCCESS").stat().st_mtime_ns
        append("00:30")  # late
        eventually(lambda: rows(0) == 3, "the late row")
        assert rows(1) == 1
    assert marks(tmp_path) == [hour.format(0)]

    with running():
        append("00:31")  # late for a run that has seen no other row
        eventually(lambda: rows(0) == 4, "the next late row")
        assert marks(tmp_path) == [hour.format(0)]
        append("02:00")
        eventually(lambda: len(marks(tmp_path)) == 2, "the mark of the second hour")
    assert marks(tmp_path) == [hour.format(0), hour.format(1)]
    assert (tmp_path / "out" / hour.format(0) / "_SUCCESS").stat().st_mtime_ns == marked


def half_hour(result: wallaroo.WindowResult[str, int]) -> dict[str, Any]:
    """A row of the last moment of its window."""
    end = result.window.end_time.replace(tzinfo=None)
    return {"at": end - timedelta(microseconds=1), "n": result.value}


def counted(folder: Path) -> wallaroo.Application:
    """Counts of each half hour, which leave an hour after its end."""
    source = FilesSourceConfig("in", str(folder / "in"), Json(dict).decoder, watch=True)
    windows = wallaroo.range_windows(timedelta(minutes=30)).with_delay(timedelta(hours=1))
    counts: Any = wallaroo.source("in", source).with_event_time(time_of)
    counts = counts.key_by(wallaroo.key_extractor(lambda event: "all"))
    counts = counts.to(windows.over(wallaroo.aggregations.Count(), with_window=True))
    sink = RollingSinkConfig(
        str(folder / "out"),
        wallaroo.encoder(half_hour),
        {"at": "timestamp[us]", "n": "int64"},
        roll_s=0.01,
        partition_by=HOURS,
        mark_success=True,
    )
    return wallaroo.build_application("half hours", counts.to_sink(sink))


def test_an_hour_is_marked_after_the_results_that_windows_delay(
    tmp_path: Path, eventually: Eventually
) -> None:
    """The watermark has passed the hour long before the results of its second half leave."""
    (tmp_path / "in").mkdir()

    def append(name: str, *times: str) -> None:
        lines = "".join(json.dumps({"at": f"2026-01-02T{at}:00", "n": 0}) + "\n" for at in times)
        (tmp_path / name).write_text(lines)
        (tmp_path / name).rename(tmp_path / "in" / name)

    def rows() -> int:
        return len(list((tmp_path / "out").rglob("part-*")))

    append("a.jsonl", "00:10", "00:40", "01:35")
    run = Run(counted(tmp_path), RunOptions(status_address=None), InProcessHost())
    run.start()
    try:
        eventually(lambda: rows() == 1, "the first half hour")
        append("b.jsonl", "01:36")
        eventually(lambda: run.status().events_done == 4, "a commit after it")
        assert marks(tmp_path) == []
        append("c.jsonl", "02:05")
        eventually(lambda: marks(tmp_path) == ["dt=2026-01-02/hour=00"], "the hour's mark")
        assert rows() == 2
    finally:
        run.stop()
        run.wait(400)


def test_marks_without_event_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="marks what the watermark has passed") as error:
        application(tmp_path, is_timed=False)
    assert "with_event_time" in str(error.value)
