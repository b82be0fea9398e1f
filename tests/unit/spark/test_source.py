"""How far the next batch goes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from wallaroo.runtime.intake import plan_ends
from wallaroo.sources.log import Position
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spark import source
from wallaroo.spark.control import Control, read_control, write_control
from wallaroo.spark.planner_logs import LOGS, read_logs, write_logs
from wallaroo.spark.source import STARTED, UNSTARTED, LogStreamReader
from wallaroo.spool.writer import SpoolWriter

BEGINNING = Position(0, 0)


def spool(folder: Path, chunks: int, events: int = 10) -> SpoolLog:
    writer = SpoolWriter(folder, is_durable=False)
    for number in range(chunks):
        writer.append(b"x" * (5 * events), events, number)
    writer.publish()
    writer.close()
    return SpoolLog(folder.name, folder, "")


def test_a_small_backlog_is_taken_whole(tmp_path: Path) -> None:
    logs = {"a": spool(tmp_path / "a", 3), "b": spool(tmp_path / "b", 1)}
    ends = plan_ends({"a": BEGINNING, "b": BEGINNING}, logs, 1_000)
    assert {name: end.events for name, end in ends.items()} == {"a": 30, "b": 10}


def test_a_large_backlog_is_shared_in_proportion(tmp_path: Path) -> None:
    logs = {"a": spool(tmp_path / "a", 90), "b": spool(tmp_path / "b", 10)}
    ends = plan_ends({"a": BEGINNING, "b": BEGINNING}, logs, 500)
    assert {name: end.events for name, end in ends.items()} == {"a": 450, "b": 50}


@pytest.mark.parametrize(("most", "taken"), [(0, 100), (200, 200), (900, 250)])
def test_of_a_backlog_of_many_batches_more_is_taken_but_never_all(
    tmp_path: Path, most: int, taken: int
) -> None:
    logs = {"a": spool(tmp_path / "a", 100)}
    ends = plan_ends({"a": BEGINNING}, logs, 100, most)
    assert ends["a"].events == taken


def test_the_smallest_bound_still_moves_every_source_that_has_something(tmp_path: Path) -> None:
    logs = {
        "a": spool(tmp_path / "a", 90),
        "b": spool(tmp_path / "b", 1),
        "c": spool(tmp_path / "c", 0),
    }
    ends = plan_ends({"a": BEGINNING, "b": BEGINNING, "c": BEGINNING}, logs, 1)
    assert [end.events for end in ends.values()] == [10, 10, 0]


def test_nothing_new_gives_the_very_same_offsets(tmp_path: Path) -> None:
    logs = {"a": spool(tmp_path / "a", 3)}
    first = plan_ends({"a": BEGINNING}, logs, 1_000)
    assert plan_ends(first, logs, 1_000) == first


def test_a_query_begins_with_a_batch_without_events_and_a_held_one_takes_none(
    tmp_path: Path,
) -> None:
    write_logs(tmp_path / LOGS, {"a": spool(tmp_path / "a", 3)}, ())
    write_control(tmp_path / "control", Control(1_000, is_held=True))
    options = {
        "initial": '{"a": [0, 0], "": [0, 0]}',
        "control": str(tmp_path / "control"),
    }
    reader = LogStreamReader(options)
    start = reader.initialOffset()
    begun = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert begun["a"] == [0, 0]
    assert begun[STARTED] != UNSTARTED[STARTED]
    assert reader.latestOffset(begun, reader.getDefaultReadLimit()) == begun
    write_control(tmp_path / "control", Control(1_000))
    assert reader.latestOffset(begun, reader.getDefaultReadLimit())["a"][1] == 30


def test_the_longer_there_is_nothing_the_longer_a_look_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = spool(tmp_path / "a", 3)
    write_logs(tmp_path / LOGS, {"a": log}, ())
    write_control(tmp_path / "control", Control(1_000))
    times = iter((0.0, 100.0, 100.0, 101.0, 200.0, 200.0))
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=pauses.append)
    monkeypatch.setattr(source, "time", clock)
    initial = '{"a": [0, 0], "": [0, 1]}'
    reader = LogStreamReader({"initial": initial, "control": str(tmp_path / "control")})
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)

    for _ in range(3):
        assert reader.latestOffset(end, limit) == end
    write_control(tmp_path / "control", Control(1_000, is_held=True))
    reader.latestOffset(end, limit)  # what ends a run waits for this answer

    assert end["a"][1] == 30
    assert pauses == [0.0, pytest.approx(0.02), 0.1]


def test_of_many_batches_that_wait_the_planner_takes_more_at_once(tmp_path: Path) -> None:
    write_logs(tmp_path / LOGS, {"a": spool(tmp_path / "a", 100)}, ())
    write_control(tmp_path / "control", Control(100, events_most=200))
    initial = '{"a": [0, 0], "": [0, 1]}'
    reader = LogStreamReader({"initial": initial, "control": str(tmp_path / "control")})

    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())

    assert end["a"][1] == 200


def test_control_is_the_default_where_nothing_was_written(tmp_path: Path) -> None:
    assert read_control(tmp_path / "none") == Control()


def test_the_logs_are_for_the_planner_only(tmp_path: Path) -> None:
    """They may hold passwords."""
    log = spool(tmp_path / "a", 1)
    write_logs(tmp_path / LOGS, {"a": log}, ("/somewhere",))
    assert (tmp_path / LOGS).stat().st_mode & 0o777 == 0o600
    assert read_logs(tmp_path / LOGS) == {"a": log}
