"""A chain of two sources: each event once and in time, whatever dies around the border."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest

import wallaroo
from tests.timed_events import Event, decode, encode, key_of, time_of
from wallaroo import aggregations
from wallaroo.errors import CheckpointError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.batch import commit_protocol
from wallaroo.runtime.batch.pacing import RateLimit
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import (
    FilesSourceConfig,
    IteratorSource,
    LogContext,
    Position,
    ReplayableSource,
    SourceConfig,
    SourceLog,
    SparkSourceConfig,
)
from wallaroo.sources.chain import ChainSourceConfig, chain
from wallaroo.sources.log import Boundary, Head
from wallaroo.sources.replayable import OwnLog
from wallaroo.testing import run_local

SECOND = 10**9
BORDER_S = 1_000  # the boundary's time
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
CONTEXT = LogContext(Path("/nowhere"), mark_bytes=64)


def line(number: int, time_s: float) -> str:
    return f"k{number % 3} {number} {int(time_s * SECOND)}\n"


HISTORY = [line(n, n / 2) for n in range(2 * BORDER_S)]
LIVE = [line(n, n / 2) for n in range(2 * BORDER_S, 2 * BORDER_S + 400)]


@wallaroo.decoder
def decode_row(row: str) -> Event:
    """The same events as `decode`'s, from what `Live` holds."""
    return decode.function(row.encode())  # type: ignore[no-any-return]


class Live(ReplayableSource[Event]):
    """Lines in two partitions, the second's behind, after which the source ends."""

    def __init__(self, name: str, rows: dict[str, list[str]]):
        super().__init__(name, decode_row)
        self.rows = rows

    def partitions(self) -> list[str]:
        return sorted(self.rows)

    def end(self, partition: str) -> int:
        return len(self.rows[partition])

    def read(self, partition: str, start: int, end: int) -> Iterable[str]:
        return self.rows[partition][start:end]

    def is_ended(self) -> bool:
        return True

    def open_log(self, context: LogContext) -> SourceLog:
        return LiveLog(self)


class Endless(Live):
    """It has no end."""

    def is_ended(self) -> bool:
        return False


class Watching(Live):
    """It notes how many events were in results when it is read."""

    folder: Path

    def read(self, partition: str, start: int, end: int) -> Iterable[str]:
        with (self.folder / "seen.txt").open("a") as notes:
            notes.write(f"{counted(self.folder)}\n")
        return super().read(partition, start, end)


class LiveLog(OwnLog):
    """The log of `Live`, which knows the boundary's time, as Kafka's does."""

    def __reduce__(self) -> tuple[type[LiveLog], tuple[Any]]:
        return LiveLog, (self._source,)

    def boundary(self) -> Boundary:
        return Boundary(self.beginning(), BORDER_S * SECOND)


def live(rows: list[str]) -> Live:
    return Live("in", {"a": rows[::2], "b": rows[1::2]})


def files(folder: Path, *contents: list[str]) -> FilesSourceConfig[Event]:
    (folder / "history").mkdir(exist_ok=True)
    for number, rows in enumerate(contents):
        (folder / "history" / f"{number}.txt").write_text("".join(rows))
    return FilesSourceConfig("in", str(folder / "history"), decode)


def file(folder: Path, rows: list[str]) -> wallaroo.FileSourceConfig[Event]:
    (folder / "history.txt").write_text("".join(rows))
    return wallaroo.FileSourceConfig("in", str(folder / "history.txt"), decode)


def history_of(after: Any) -> Iterator[bytes]:
    for row in HISTORY[after or 0 :]:
        yield row.encode()


FIRSTS = {
    "file": lambda folder: file(folder, HISTORY),
    "files": lambda folder: files(folder, HISTORY[::2], HISTORY[1::2]),
    "spool": lambda folder: IteratorSource("in", history_of, decode),
}


def counting(
    config: SourceConfig[Event], out: Path, idle_after: int | None = None
) -> wallaroo.Application:
    counts = wallaroo.range_windows(wallaroo.seconds(10)).over(aggregations.Count(), name="counts")
    return wallaroo.build_application(
        "chained",
        wallaroo.source("in", config)
        .with_event_time(
            time_of, delay=wallaroo.seconds(1), idle_after=idle_after, allow_before_1980=True
        )
        .key_by(key_of)
        .to(counts)
        .to_sink(wallaroo.FileSinkConfig(str(out), encode, form="lines")),
    )


def run(config: SourceConfig[Event], folder: Path, **options: Any) -> Run:
    application = counting(config, folder / "out.txt")
    chosen = RunOptions(status_address=None, checkpoint=folder / "state", **options)
    made = Run(application, chosen, InProcessHost(2))
    made.start()
    assert made.wait(400)
    return made


def counted(folder: Path) -> int:
    out = folder / "out.txt"
    return sum(map(int, out.read_text().split())) if out.exists() else 0


def result_of(rows: list[str], folder: Path) -> list[str]:
    """Return what one source of all rows counts."""
    folder.mkdir()
    single = run(file(folder, rows), folder)
    assert single.exception is None
    return sorted((folder / "out.txt").read_text().split())


# -- events


@pytest.mark.parametrize("point", ["commit.before", "commit.after", "commit.sinks"])
@pytest.mark.parametrize("first", FIRSTS)
def test_each_event_counts_once_though_every_second_batch_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, point: str
) -> None:
    calls = 0

    def die(name: str) -> None:
        nonlocal calls
        calls += name == point
        if name == point and calls % 2 and calls < 12:
            raise RuntimeError("died")

    expected = result_of(HISTORY + LIVE, tmp_path / "single")
    monkeypatch.setattr(commit_protocol, "fault_point", die)
    config = ChainSourceConfig(FIRSTS[first](tmp_path), live(LIVE))
    while (made := run(config, tmp_path)).exception is not None:
        assert "died" in str(made.exception)

    assert calls > 2
    assert made.status().losses == ()
    assert sorted((tmp_path / "out.txt").read_text().split()) == expected


@pytest.mark.parametrize("events", [1, 300, 10_000])
@pytest.mark.parametrize("first", ["file", "files"])
def test_a_log_continues_from_every_position(tmp_path: Path, first: str, events: int) -> None:
    """The border is a step of its own, wherever batches end."""
    rows = HISTORY[:150], LIVE[:100]
    parts = {"file": file(tmp_path, rows[0]), "files": files(tmp_path, rows[0])}
    config = ChainSourceConfig(parts[first], live(rows[1]))
    at = config.open_log(CONTEXT).beginning()
    payloads: list[Any] = []
    borders = 0
    while True:
        log = config.open_log(CONTEXT)
        log.require(at)
        after = log.reconcile(at)
        borders += after is not at
        if after is at and not log.backlog(at):
            break
        after = log.advance(at, events) if after is at else after
        reader = pickle.loads(pickle.dumps(log))
        for part in [part for piece in log.split(at, after, 2) for part in piece]:
            payloads += [each for records in reader.read(part) for each in records.payloads]
        assert after.events >= at.events
        at = after
    decoded = [config.decoder.function(payload) for payload in payloads]
    assert borders == 1
    assert [number for _, number, _ in decoded[:150]] == list(range(150))
    assert sorted(number for _, number, _ in decoded[150:]) == list(range(2_000, 2_100))
    assert log.head().is_ended
    assert log.backlog_events(at, log.head()) == 0


def test_what_comes_to_the_second_part_before_the_border_is_read_after_it(tmp_path: Path) -> None:
    """The boundary is a place, found once; a later run finds it in its commits."""
    second = live(LIVE[:10])
    config = ChainSourceConfig(file(tmp_path, HISTORY), second)
    at = config.open_log(CONTEXT).beginning()
    for partition in second.rows.values():
        partition += LIVE[10:20]
    log = config.open_log(CONTEXT)
    log.require(at)
    assert log.backlog_events(at, log.head()) == len(HISTORY) + 30
    assert at.place["second"] == [{"a": 0, "b": 0}, 0]


def test_a_head_has_both_parts_though_a_commit_passes_the_border_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ChainSourceConfig(file(tmp_path, HISTORY), live(LIVE)).open_log(CONTEXT)
    at = log.beginning()
    first = log._logs[0]
    head_of_first = first.head

    def slow() -> Head:
        log.committed(Position({**at.place, "part": 1}, at.events), None)  # by another thread
        return head_of_first()

    monkeypatch.setattr(first, "head", slow)
    assert len(log.head().position.place) == 2
    assert log.head().position.place[0] is None


def test_the_first_part_is_not_needed_after_the_border(tmp_path: Path) -> None:
    first = file(tmp_path, HISTORY)
    config = ChainSourceConfig(first, live(LIVE))
    assert run(config, tmp_path).exception is None
    Path(first.path).unlink()
    again = run(ChainSourceConfig(first, live(LIVE + LIVE[:50])), tmp_path)
    assert again.exception is None
    assert again.status().events_done == 50


def test_a_feed_is_not_started_after_the_border(tmp_path: Path) -> None:
    def refused(after: Any) -> Iterator[bytes]:
        raise AssertionError("the first part is read again")

    config = ChainSourceConfig(IteratorSource("in", history_of, decode), live(LIVE))
    assert run(config, tmp_path).exception is None
    again = ChainSourceConfig(IteratorSource("in", refused, decode), live(LIVE))
    assert run(again, tmp_path).exception is None


def test_a_position_of_another_source_is_refused(tmp_path: Path) -> None:
    log = ChainSourceConfig(file(tmp_path, HISTORY), live(LIVE)).open_log(CONTEXT)
    with pytest.raises(
        CheckpointError, match=r"is not one of a chain\. Give the chain another name"
    ):
        log.require(Position({"files": {}, "gone": 0}, 0))


# -- time


def test_no_event_is_late_though_the_first_part_reaches_beyond_the_boundary(tmp_path: Path) -> None:
    """The second part holds the watermark at the boundary's time until its events come."""
    beyond = [line(n, BORDER_S + 300) for n in range(3)]
    config = ChainSourceConfig(files(tmp_path, HISTORY[::2], HISTORY[1::2] + beyond), live(LIVE))
    made = run(config, tmp_path, batch_time_s=0.05)
    assert made.exception is None
    assert made.status().losses == ()
    assert counted(tmp_path) == len(HISTORY + beyond + LIVE)


def test_windows_of_the_first_part_fire_before_the_border(tmp_path: Path) -> None:
    """The second part holds back what is after the boundary, and nothing before it."""
    second = Watching("in", live(LIVE).rows)
    second.folder = tmp_path
    config = ChainSourceConfig(files(tmp_path, HISTORY[::2], HISTORY[1::2]), second)
    made = run(config, tmp_path, batch_time_s=0.05)
    assert made.exception is None
    # windows of 10 s before the boundary, less the delay
    seen = (tmp_path / "seen.txt").read_text().split()
    assert int(seen[0]) == 2 * (BORDER_S - 10)


@pytest.mark.parametrize("idle_after", [SECOND, None], ids=["idle", "waited-for"])
def test_partitions_without_events_after_the_border_hold_time_back_until_they_are_idle(
    tmp_path: Path, eventually: Callable[..., None], idle_after: int | None
) -> None:
    second = Endless("in", {"a": LIVE, "b": [], "c": []})
    config = ChainSourceConfig(files(tmp_path, HISTORY[::2], HISTORY[1::2]), second)
    application = counting(config, tmp_path / "out.txt", idle_after)
    chosen = RunOptions(status_address=None, checkpoint=tmp_path / "state", batch_time_s=0.05)
    made = Run(application, chosen, InProcessHost(2))
    made.start()
    if idle_after:
        eventually(lambda: counted(tmp_path) == len(HISTORY + LIVE), "all windows")
    else:
        before = len(HISTORY) - 20  # without the window that ends at the border: of the delay
        eventually(lambda: counted(tmp_path) == before, "windows of the first part")
        eventually(lambda: made.status().sources[0].backlog_events == 0, "all is read")
        sleep(1.5)  # longer than the other case's idle_after
        assert counted(tmp_path) == before
    made.stop()
    assert made.wait(400)


# -- the rate of the first part


def test_the_first_part_is_read_at_its_rate_and_the_second_without_one(tmp_path: Path) -> None:
    rows = HISTORY[:600]
    config = ChainSourceConfig(file(tmp_path, rows), live(LIVE))
    made = run(config, tmp_path, rate_limit=300.0)
    status = made.status()
    assert made.exception is None
    assert counted(tmp_path) == len(rows + LIVE)
    assert status.elapsed_s >= 600 / 300 * 0.9


@pytest.mark.parametrize("batch_s", [0.05, 3.0])
@pytest.mark.parametrize("rows_per_counted", [0.2, 1.0, 5.0])
def test_a_rate_is_kept_whatever_the_log_counts(
    tmp_path: Path, rows_per_counted: float, batch_s: float
) -> None:
    """Parquet's size says little about its rows: the events that batches had correct it."""
    log = ChainSourceConfig(file(tmp_path, HISTORY), live(LIVE)).open_log(CONTEXT)
    place = log.beginning().place
    now_s = 0.0
    limit = RateLimit(100.0, {"in": log}, {"in": Position(place, 0)}, lambda: now_s)
    counted = 0
    rows = 0
    while now_s < 60:
        allowed = (limit.limits() or {})["in"]
        counted += allowed
        events = round(allowed * rows_per_counted)
        rows += events
        now_s += batch_s
        commit = SimpleNamespace(offsets={"in": [place, counted]})
        limit.batch_done(commit, {"in": events})  # type: ignore[arg-type]  # all that it reads
    assert rows == pytest.approx(6_000, rel=0.1)


def test_a_rate_bounds_nothing_after_the_border(tmp_path: Path) -> None:
    log = ChainSourceConfig(file(tmp_path, HISTORY), live(LIVE)).open_log(CONTEXT)
    at = log.beginning()
    beyond = Position({**at.place, "part": 1}, at.events)
    assert RateLimit(100.0, {"in": log}, {"in": at}).limits() is not None
    assert RateLimit(100.0, {"in": log}, {"in": beyond}).limits() is None


# -- refusals


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (None, "at= is missing"),
        (NOON.replace(tzinfo=None), "at=datetime.*is not a boundary"),
        ({}, "at={} is not a boundary"),
        ("earliest", "at='earliest' is not a boundary"),
    ],
)
def test_a_boundary_is_an_aware_time_or_offsets(tmp_path: Path, at: Any, message: str) -> None:
    kafka = wallaroo.KafkaSourceConfig("in", "events", "localhost:9092", decode)
    with pytest.raises(WallarooParameterError, match=message):
        chain(file(tmp_path, HISTORY), kafka, at=at)


def kafka(name: str = "in", decoder: Any = decode) -> wallaroo.KafkaSourceConfig[Event]:
    return wallaroo.KafkaSourceConfig(name, "events", "localhost:9092", decoder)


skipping = wallaroo.decoder(on_error="skip")(decode.function)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (FilesSourceConfig("in", "x", decode, watch=True), kafka(), "files x never ends"),
        (kafka(), kafka(), "kafka events never ends"),
        (wallaroo.TCPSourceConfig("in", "h", 1, decode), kafka(), "tcp h:1 never ends"),
        (Live("in", {}), kafka("other"), "Its second part is named 'other'"),
        (Live("in", {}), Live("in", {}), "replayable Live cannot begin at a time or offsets"),
        (FilesSourceConfig("in", "x", decode), kafka(decoder=skipping), "on_error= is 'stop'"),
    ],
)
def test_parts_that_are_no_chain_are_refused(
    first: SourceConfig[Event], second: SourceConfig[Event], message: str
) -> None:
    with pytest.raises(WallarooParameterError, match=message):
        chain(first, second, at=NOON)


def test_a_chain_that_was_read_before_the_border_is_refused_as_a_first_part(tmp_path: Path) -> None:
    inner = ChainSourceConfig(file(tmp_path, HISTORY), live(LIVE))
    with pytest.raises(WallarooParameterError, match="never ends"):
        chain(inner, kafka(), at=NOON)


def test_a_trial_publishes_no_offsets_of_either_part() -> None:
    first = wallaroo.KafkaSourceConfig("in", "old", "localhost:9092", decode, until_now=True)
    trial = chain(first, kafka(), at=NOON).for_trial()
    parts: list[Any] = [trial.first, trial.second]
    assert [part.publishes for part in parts] == [False, False]


def test_a_stream_of_spark_is_read_up_to_now() -> None:
    stream = SparkSourceConfig("in", lambda spark: None)
    first: Any = chain(stream, kafka(), at=NOON).first
    assert first.until_now


def test_a_rate_limit_needs_a_chain_and_no_speed(tmp_path: Path) -> None:
    from wallaroo.spark.jvm.preflight import check_before_spark

    plan = counting(file(tmp_path, HISTORY), tmp_path / "out").plan
    chained = counting(chain(file(tmp_path, HISTORY), kafka(), at=NOON), tmp_path / "out").plan
    for checked, options, message in (
        (plan, RunOptions(rate_limit=5.0), "no source is one"),
        (chained, RunOptions(rate_limit=0.0), "rate_limit=0.0 is not a rate"),
        (chained, RunOptions(rate_limit=5.0, speed=1.0), "both bound how fast input is read"),
    ):
        with pytest.raises(wallaroo.PipelineError, match=message):
            check_before_spark(checked, options, has_session=True)


def test_a_chain_is_tested_with_payloads_of_its_second_part(tmp_path: Path) -> None:
    rows = Live("in", {})
    application = counting(ChainSourceConfig(file(tmp_path, HISTORY), rows), tmp_path / "out")
    result = run_local(application, {"in": [(f"k{n}", n, n * SECOND) for n in range(5)]})
    assert sum(map(int, result.outputs)) == 5
