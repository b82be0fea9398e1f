"""Sources that users write, on the host without Spark: exactly once, and clear where they fail."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.own import (
    Broken,
    Identified,
    Numbers,
    Polled,
    Sparse,
    Unreadable,
    Worded,
    copying,
)
from wallaroo.errors import PeerError, UserCodeError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import LogContext, Position
from wallaroo.testing import run_local

Eventually = Callable[..., None]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "a").write_text("100")
    (folder / "b").write_text("30")
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Any], Run]]:
    """Begin runs of one application, with one checkpoint."""
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


def lines(tmp_path: Path) -> list[str]:
    file = tmp_path / "out.txt"
    return file.read_text().split() if file.exists() else []


def test_gaps_in_the_offsets_of_a_source_take_a_few_batches(
    tables: Path, tmp_path: Path, start: Callable[[Any], Run]
) -> None:
    (tables / "a").write_text("40000001")
    run = start(Sparse("numbers", tables))
    assert run.wait(400)
    assert sorted(lines(tmp_path)) == sorted(
        f"{name}{number}"
        for name, end in (("a", 40_000_001), ("b", 30))
        for number in range(0, end, 10_000_000)
    )
    last = run.status().last_batch
    assert last is not None
    assert last < 60


def test_a_replayable_source_is_read_once_over_two_runs(
    tables: Path, tmp_path: Path, start: Callable[[Any], Run]
) -> None:
    first = start(Numbers("numbers", tables))
    assert first.wait(400)
    assert (first.exception, first.status().state) == (None, "finished")

    (tables / "a").write_text("150")
    (tables / "new").write_text("5")
    second = start(Numbers("numbers", tables))
    assert second.wait(400)

    assert second.exception is None
    got = lines(tmp_path)
    assert [name for name in got if name.startswith("a")] == [f"a{n}" for n in range(150)]
    assert sorted(got[130:]) == sorted([f"a{n}" for n in range(100, 150)] + [
        f"new{n}" for n in range(5)])  # fmt: skip
    assert len(got) == 185


def test_what_arrives_while_a_run_goes_on_is_read(
    tables: Path, tmp_path: Path, start: Callable[[Any], Run], eventually: Eventually
) -> None:
    run = start(Numbers("numbers", tables, is_bounded=False))
    eventually(lambda: len(lines(tmp_path)) == 130, "the first events are written")
    (tables / "b").write_text("31")
    eventually(lambda: lines(tmp_path)[130:] == ["b30"], "the new event is written")
    assert run.exception is None


def test_a_read_that_raises_ends_the_run_with_its_line(
    tables: Path, start: Callable[[Any], Run]
) -> None:
    run = start(Unreadable("numbers", tables))
    assert run.wait(400)
    assert isinstance(run.exception, UserCodeError)
    assert "no such table" in str(run.exception)
    assert "own.py" in str(run.exception)


def test_an_end_that_is_not_a_number_is_reported_with_its_source(tables: Path) -> None:
    log = Worded("numbers", tables).open_log(LogContext(tables))
    with pytest.raises(UserCodeError, match=r"end\('a'\) returned '100', not an int") as caught:
        log.beginning()
    assert "numbers" in caught.value.step


def test_ends_that_cannot_be_asked_for_are_reported_and_asked_for_again(tables: Path) -> None:
    log = Numbers("numbers", tables).open_log(LogContext(tables))
    (tables / "a").write_text("many")
    with pytest.raises(UserCodeError, match="invalid literal"):
        log.beginning()
    assert "invalid literal" in log.head().error
    (tables / "a").write_text("7")
    copied = pickle.loads(pickle.dumps(log))
    assert copied.head().position == Position({"a": 7, "b": 30}, 37)


def test_a_partition_that_is_gone_does_not_hide_what_waits_in_another(tables: Path) -> None:
    log = Numbers("numbers", tables).open_log(LogContext(tables))
    done = log.advance(log.beginning(), 1000)
    (tables / "a").unlink()
    (tables / "b").write_text("35")

    copied = pickle.loads(pickle.dumps(log))

    assert copied.backlog(done) == 5
    assert copied.advance(done, 1000).events == done.events + 5


@pytest.mark.parametrize("source", [Numbers, Identified])
def test_partitions_that_are_not_read_to_their_end_are_known(
    source: type[Numbers], tables: Path
) -> None:
    log = source("numbers", tables).open_log(LogContext(tables))
    done = log.advance(log.beginning(), 1000)
    (tables / "b").write_text("35")

    head = pickle.loads(pickle.dumps(log)).head().position

    assert log.lags(done, head) == {"a": 0, "b": 5}


@pytest.mark.parametrize("pieces", [1, 2, 3, 50])
def test_any_cut_reads_the_same_events(tables: Path, pieces: int) -> None:
    log = Numbers("numbers", tables).open_log(LogContext(tables))
    positions = [log.beginning()]
    while positions[-1] != log.head().position:
        positions.append(log.advance(positions[-1], 40))
    got = [
        event
        for low, high in pairwise(positions)
        for piece in log.split(low, high, pieces)
        for part in piece
        for records in log.read(part)
        for event in records.payloads
    ]
    assert sorted(got) == sorted([f"a{n}" for n in range(100)] + [f"b{n}" for n in range(30)])


def test_a_polling_source_goes_on_after_what_was_stored(
    tmp_path: Path, start: Callable[[Any], Run], eventually: Eventually
) -> None:
    limit = tmp_path / "limit"
    limit.write_text("50")
    first = start(Polled("polled", limit))
    eventually(lambda: len(lines(tmp_path)) == 50, "the first events are written")
    first.stop()
    assert first.wait(400)

    limit.write_text("-80")
    second = start(Polled("polled", limit))
    assert second.wait(400)

    assert (second.exception, second.status().state) == (None, "finished")
    assert lines(tmp_path) == [str(number) for number in range(80)]


def test_a_poll_that_cannot_reach_its_server_says_so(
    tmp_path: Path, start: Callable[[Any], Run]
) -> None:
    run = start(Broken("polled", tmp_path / "limit"))
    assert run.wait(400)
    assert isinstance(run.exception, PeerError)
    assert "the server of tickets does not answer; start it" in str(run.exception)


def test_an_application_with_them_is_tested_on_given_values(tables: Path, tmp_path: Path) -> None:
    for source in (Numbers("in", tables), Polled("in", tables / "a")):
        result = run_local(copying(source, tmp_path / "out.txt"), {"in": ["x", "y"]})
        assert result.outputs == [b"x\n", b"y\n"]
