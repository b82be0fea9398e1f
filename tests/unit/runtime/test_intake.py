"""How far the next batch goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from wallaroo.runtime.batch.admission import plan_ends
from wallaroo.sources.log import Position
from wallaroo.sources.spooled import SpoolLog
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


@pytest.mark.parametrize(("most", "taken"), [(0, 100), (400, 400), (9_000, 1_000)])
def test_a_backlog_that_nothing_follows_is_taken_as_far_as_batches_may_grow(
    tmp_path: Path, most: int, taken: int
) -> None:
    spool(tmp_path / "a", 100)
    logs = {"a": SpoolLog("a", tmp_path / "a", "", is_ended=True)}
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


class Corrected(SpoolLog):
    """A log whose system is another one than the position says: it continues at its beginning."""

    def reconcile(self, position: Position) -> Position:
        return BEGINNING if position.place else position


def test_a_corrected_position_is_committed_before_anything_after_it_is_read(tmp_path: Path) -> None:
    spool(tmp_path / "a", 3)
    logs = {"a": Corrected("a", tmp_path / "a", ""), "b": spool(tmp_path / "b", 1)}

    corrected = plan_ends({"a": Position(7, 40), "b": BEGINNING}, logs, 1_000)
    after = plan_ends(corrected, logs, 1_000)

    assert corrected["a"] == BEGINNING
    assert (after["a"].events, corrected["b"].events) == (30, 10)
