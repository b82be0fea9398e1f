"""The oracles of tables and folders, against what is right, and against what is wrong."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.endpoints.oracles import TIMED
from tests.endpoints.table_oracles import (
    DELETED_EVERY,
    HOURS_DELAY_MS,
    MARK,
    Appended,
    Copies,
    Hours,
    Kind,
)
from tests.verification.applications.sequence import EVENT
from wallaroo.testing.verify.trial.result import Faults

WHOLE, ROWS, LOG = range(3)
PORTION = 40
PARTITIONS = 3
Table = dict[int, bytes]


def line(key: int, number: int) -> bytes:
    return f"{key} {[max(0, each) for each in range(number - 3, number + 1)]}".encode()


def changed(table: Table, payloads: list[bytes]) -> tuple[Table, list[bytes]]:
    """The table after changes, and a line for each of them."""
    after = dict(table)
    lines = []
    for key, number in map(EVENT.unpack, payloads):
        after.pop(key, None)
        if number % DELETED_EVERY:
            after[key] = line(key, number)
        lines.append(after.get(key, b"%d -" % key))
    return after, lines


class Copied:
    """Tables after each of some transactions, and all changes."""

    def __init__(self, transactions: int = 60, snapshot: int = 0):
        self.oracle = Copies(1, [Kind.WHOLE, Kind.ROWS, Kind.LOG])
        self.tables: list[Table] = [{}]
        self.log: list[bytes] = []
        self.payloads = []
        first: Table = {}
        for _ in range(snapshot):
            first, _ = changed(first, self.oracle.payloads(PORTION))
        self.oracle.begin()
        for _ in range(transactions):
            self.payloads.append(self.oracle.payloads(PORTION))
            table, lines = changed(self.tables[-1], self.payloads[-1])
            self.tables.append(table)
            self.log += lines

    def watched(self, sink: int, *tables: Table) -> int:
        faults = Faults()
        for table in tables:
            self.oracle.watch(sink, table.values(), faults)
        return faults.total

    def judged(self, sink: int, lines: list[bytes]) -> Faults:
        faults = Faults()
        self.oracle.judge(sink, lines, faults)
        return faults


def test_copies_that_are_right_are_accepted_at_any_moment() -> None:
    copied = Copied()
    for sink in (WHOLE, ROWS):
        assert copied.watched(sink, *copied.tables) == 0
        last = list(copied.tables[-1].values())
        assert copied.judged(sink, last).total == 0
        assert copied.oracle.is_out(sink, last)
        assert not copied.oracle.is_out(sink, copied.tables[-2].values())
    assert copied.judged(LOG, copied.log).total == 0
    assert copied.oracle.is_out(LOG, copied.log)


def test_copies_that_begin_with_a_snapshot_know_no_earlier_changes() -> None:
    oracle = Copies(1, [Kind.WHOLE, Kind.ROWS, Kind.LOG])
    present: dict[int, int] = {}
    for key, number in map(EVENT.unpack, oracle.payloads(400)):
        present[key] = number
    snapshot = [(key, number) for key, number in present.items() if number % DELETED_EVERY]
    oracle.begin()
    events = snapshot + [EVENT.unpack(payload) for payload in oracle.payloads(600)]

    def judged(events: list[tuple[int, ...]]) -> list[int]:
        """The faults of each sink of an application that sees these events."""
        last: dict[int, list[int]] = {}
        table: Table = {}
        log = []
        for key, number in events:
            last[key] = [*last.get(key, [0] * 4)[1:], number]
            table.pop(key, None)
            if number % DELETED_EVERY:
                table[key] = f"{key} {last[key]}".encode()
            log.append(table.get(key, b"%d -" % key))
        found = [Faults() for _ in range(3)]
        for sink, lines in enumerate((table.values(), table.values(), log)):
            oracle.judge(sink, lines, found[sink])
        return [faults.total for faults in found]

    assert judged(events) == [0, 0, 0]
    assert judged(events[1:])[LOG] > 0
    assert judged([snapshot[0], *events])[LOG] > 0


def test_a_part_of_a_transaction_is_seen_in_a_table_of_whole_ones() -> None:
    copied = Copied()
    half, _ = changed(copied.tables[20], copied.payloads[20][: PORTION // 2])
    assert copied.watched(WHOLE, half) == 1
    assert copied.watched(ROWS, half) == 0


@pytest.mark.parametrize("sink", [WHOLE, ROWS])
def test_a_table_that_goes_back_is_seen(sink: int) -> None:
    copied = Copied()
    assert copied.watched(sink, copied.tables[30], copied.tables[29]) > 0


@pytest.mark.parametrize("sink", [WHOLE, ROWS])
def test_a_row_that_is_missing_for_a_moment_is_seen(sink: int) -> None:
    """The key was inserted again after its last deletion, and not deleted since."""
    copied = Copied()
    counts = Counter(EVENT.unpack(each)[0] for portion in copied.payloads for each in portion)
    key = next(key for key, count in counts.items() if count % DELETED_EVERY == 3)
    hole = {one: row for one, row in copied.tables[-1].items() if one != key}
    assert copied.watched(sink, copied.tables[-1], hole) == 1
    assert copied.judged(sink, list(hole.values())).lost == 1


def test_two_rows_of_a_key_and_rows_that_were_deleted_are_wrong() -> None:
    copied = Copied()
    rows = list(copied.tables[-1].values())
    assert copied.judged(WHOLE, [*rows, rows[0]]).duplicated == 1
    assert copied.judged(WHOLE, [*rows, line(1000, 1)]).wrong == 1


def test_a_change_that_comes_twice_or_not_at_all_is_seen() -> None:
    copied = Copied()
    deletion = next(place for place, each in enumerate(copied.log) if each.endswith(b"-"))
    for place in (deletion, 0):
        without = copied.log[:place] + copied.log[place + 1 :]
        again = copied.log[: place + 1] + copied.log[place:]
        assert copied.judged(LOG, without).total > 0
        assert copied.judged(LOG, again).total > 0


def test_a_table_that_is_added_to_has_no_holes_at_any_moment() -> None:
    oracle = Appended(1)
    lines = [line(*EVENT.unpack(payload)) for payload in oracle.payloads(500)]
    for part, kind in (
        (lines[:300], ""),
        (lines[:300] + lines[299:300], "duplicated"),
        (lines[1:], "lost"),
    ):
        faults = Faults()
        oracle.watch(0, part, faults)
        assert faults.total == (1 if kind else 0)
        assert not kind or getattr(faults, kind) == 1


class Hourly:
    """The rows of some hours, and the marks that are due."""

    def __init__(self) -> None:
        self.oracle = Hours(1, PARTITIONS)
        newest = dict.fromkeys(range(PARTITIONS), 0)
        self.rows: dict[str, list[bytes]] = {}
        for payload in self.oracle.payloads(9000):
            key, number, at_ms = TIMED.unpack(payload)
            folder = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("dt=%Y-%m-%d/hour=%H")
            row = b"%s %d %d %d" % (folder.encode(), key, number, at_ms)
            self.rows.setdefault(folder, []).append(row)
            place = self.oracle.partition_of(payload, PARTITIONS)
            newest[place] = max(newest[place], at_ms)
        passed = datetime.fromtimestamp((min(newest.values()) - HOURS_DELAY_MS) / 1000, UTC)
        now = passed.strftime("dt=%Y-%m-%d/hour=%H")
        self.marked = [folder for folder in self.rows if folder < now]
        self.later = next(folder for folder in self.rows if folder >= now)

    def lines(self, marked: list[str]) -> list[bytes]:
        rows = [row for rows in self.rows.values() for row in rows]
        return [*(f"{folder} {MARK}".encode() for folder in marked), *rows]

    def judged(self, lines: list[bytes]) -> tuple[Faults, Faults]:
        """What is wrong at a moment, and what is at the end."""
        now, end = Faults(), Faults()
        self.oracle.watch(0, lines, now)
        self.oracle.judge(0, lines, end)
        return now, end


def test_hours_that_are_complete_and_marked_are_accepted() -> None:
    hourly = Hourly()
    lines = hourly.lines(hourly.marked)
    assert len(hourly.marked) >= 3
    assert [faults.total for faults in hourly.judged(lines)] == [0, 0]
    assert hourly.oracle.is_out(0, lines)


def test_a_row_that_is_missing_in_a_marked_hour_is_seen_at_once() -> None:
    hourly = Hourly()
    lines = hourly.lines(hourly.marked[:1])
    lines.remove(hourly.rows[hourly.marked[0]][0])
    now, _ = hourly.judged(lines)
    assert now.lost == 1
    lines.remove(hourly.rows[hourly.later][0])  # of an hour that may lack rows
    now, end = hourly.judged(lines)
    assert (now.lost, end.lost) == (1, 2 + len(hourly.marked) - 1)


def test_a_mark_before_its_time_and_a_row_twice_are_wrong() -> None:
    hourly = Hourly()
    now, _ = hourly.judged(hourly.lines([*hourly.marked, hourly.later]))
    assert now.wrong == 1
    lines = hourly.lines(hourly.marked)
    assert hourly.judged([*lines, lines[-1]])[0].duplicated == 1
