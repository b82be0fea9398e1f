"""Numbers of connections: none comes twice, whatever died and whatever the clock says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from wallaroo.ingress.source_store import SourceStore, open_store
from wallaroo.spool import Boundary, SpoolReader
from wallaroo.spool.connections import (
    NUMBERS,
    STATEMENTS_MAX,
    ClosedConnections,
    OpenConnections,
    Statements,
    following,
    read_open,
)


def opened(folder: Path) -> SourceStore:
    return open_store(
        folder,
        is_durable=True,
        checkpoint="c",
        backlog_bytes_max=1 << 20,
        is_stopping=lambda seconds: True,
        log=lambda line: None,
    )


def give(store: SourceStore, connection: int) -> None:
    store.append(b"\0\0\0\1x", 1, connection, b"")


@pytest.mark.parametrize("is_published", [True, False])
def test_a_new_process_uses_no_number_again_also_where_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    """Else the connections of the one before would count as open forever, and hold time back."""
    store = opened(tmp_path)
    numbers = [store.opened() for _ in range(40)]
    for number in numbers:
        give(store, number)
    if is_published:
        store.publish()
    store.close()

    monkeypatch.setattr(time, "time", lambda: 1e9)
    again = opened(tmp_path)
    newest = again.opened()
    assert newest > max(numbers)
    give(again, newest)
    again.publish()
    found = read_open(tmp_path)
    assert found is not None
    assert found.are_closed([*numbers, newest], found.events) == numbers
    again.close()


def test_numbers_begin_again_at_their_end() -> None:
    assert following(NUMBERS - 1, NUMBERS - 1) == 0
    assert following(0, NUMBERS - 1) == 0


@pytest.mark.parametrize("waiting", [3, 3 * STATEMENTS_MAX])
def test_a_connection_has_closed_once_its_events_are_read_whatever_closed_since(
    waiting: int,
) -> None:
    """Connection n sends event n and closes; reading lags so many behind."""
    statements = Statements()
    closed: set[int] = set()
    for number in range(4 * waiting):
        statements.add(OpenConnections(number + 1, number + 1, frozenset()))
        position = max(0, number - waiting)
        found = statements.closed(range(position + 2), position)
        assert all(each < position for each in found)
        closed.update(found)
    assert len(closed) > 2 * waiting


def statements(folder: Path) -> list[tuple[int, list[str]]]:
    """What the log states: after how many events, and which of the connections 0 to 9 closed."""
    reader = SpoolReader(folder)
    events = 0
    stated = []
    for chunk in reader.chunks(Boundary(), reader.head().position):
        events += chunk.events
        if not chunk.events:
            closed = ClosedConnections.of(chunk.frames)
            stated.append((events, [each for each in map(str, range(10)) if closed([each])]))
    return stated


def test_the_log_states_closed_connections_in_front_of_the_event_that_follows(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    first, silent, second, third = (store.opened() for _ in range(4))
    give(store, first)
    give(store, second)
    store.closed(silent)  # it sent nothing, so it has no watermark
    give(store, second)
    store.closed(second)
    store.closed(first)
    give(store, third)
    store.closed(third)
    store.publish()
    assert statements(tmp_path) == [(3, [str(first), str(second)])]
    store.close()


def test_the_first_event_of_a_process_comes_after_the_close_of_all_earlier_connections(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path)
    numbers = [store.opened() for _ in range(3)]
    for number in numbers:
        give(store, number)
    store.publish()
    store.close()

    again = opened(tmp_path)
    again.publish()
    assert statements(tmp_path) == []  # a start alone leaves the log as it was
    for _ in range(2):
        give(again, again.opened())
    again.publish()
    assert statements(tmp_path) == [(3, [str(number) for number in numbers])]
    again.close()


def test_a_statement_and_the_event_behind_it_are_found_by_their_number(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for _ in range(3):
        number = store.opened()
        give(store, number)
        store.closed(number)
    store.publish()
    reader = SpoolReader(tmp_path)
    head = reader.head().position
    below, above = reader.around(1, Boundary(), head)
    assert (below.events, above.events) == (1, 2)
    assert [chunk.events for chunk in reader.chunks(Boundary(), below)] == [1, 0]
    store.close()
