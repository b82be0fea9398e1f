"""Numbers of connections: none comes twice, whatever died and whatever the clock says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from wallaroo.ingress.source_store import SourceStore, open_store
from wallaroo.spool.connections import (
    NUMBERS,
    STATEMENTS_MAX,
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


@pytest.mark.parametrize("waiting", [3, 10 * STATEMENTS_MAX])
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
