"""What has to be in tables and folders, at every moment and at the end: written from the
documentation.

Where it runs: the verifier.
"""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from tests.endpoints.oracles import BEGIN_MS, KEYS, TIMED, Numbers, Oracle
from tests.verification.applications.sequence import EVENT, WINDOW
from tests.verification.cases import Sequence as Windows
from tests.verification.ledger import Ledger
from wallaroo.testing.verify.trial.result import Faults

DELETED_EVERY = 5  # a key's fifth, tenth, ... change deletes its row
HOUR_MS = 3_600_000
HOURS_STEP_MS = 2000  # event time between two events
HOURS_DELAY_MS = 60_000
MARK = "_SUCCESS"
Present = Mapping[int, int]  # the number of each key that has a row
_LINE = re.compile(rb"(\d+) \[(\d+(?:, \d+)*)\]")


class Kind(Enum):
    """What a sink promises to a reader who reads while it is written."""

    WHOLE = "a table whose versions are whole transactions of the source"
    ROWS = "a table of rows, each of which never goes back"
    LOG = "every change of a key, in order"


class Appended(Numbers):
    """Windows in tables that are only added to: at any moment each key has those up to one."""

    def watch(self, sink: int, lines: Iterable[bytes], faults: Faults) -> None:
        numbers: dict[int, Counter[int]] = defaultdict(Counter)
        for line in lines:
            key, number = _parsed(line, {}) or (-1, 0)
            if number:
                numbers[key][number] += 1
            else:
                faults.note("wrong", repr(line))
        for key, came in numbers.items():
            for number in range(1, max(came) + 1):
                if came[number] != 1:
                    kind = "duplicated" if came[number] else "lost"
                    faults.note(kind, f"{number} of key {key}, which is at {max(came)}")


class Copies(Oracle):
    """Copies of a table: a key's n-th change inserts, updates or deletes its row.

    A portion of events is a transaction of the source, which comes out as a whole.  The row shows
    the last numbers of its key that the application's state has: from the change on that the
    snapshot has, with which the application begins.
    """

    app = "copies"

    def __init__(self, seed: int, kinds: Sequence[Kind]):
        self._case = Windows(seed)
        self._kinds = kinds
        self._transactions = 0
        self._changed: dict[int, list[int]] = defaultdict(list)  # key -> transaction by number
        self._first: dict[int, int] = {}  # key -> its first number that the application sees
        self._seen: list[dict[int, int]] = [{} for _ in kinds]  # key -> number, at the last reading
        self._read_to = [-1] * len(kinds)  # the transaction that was read last

    def payloads(self, count: int) -> list[bytes]:
        payloads = self._case.payloads("Sequence", count)
        for key, _ in map(EVENT.unpack, payloads):
            self._changed[key].append(self._transactions)
        self._transactions += 1
        return payloads

    def begin(self) -> None:
        """Note that the application begins, with a snapshot of what there is."""
        for key, numbers in self._changed.items():
            is_deleted = len(numbers) % DELETED_EVERY == 0
            self._first[key] = len(numbers) + is_deleted

    def partition_of(self, payload: bytes, partitions: int) -> int:
        return 0

    def due(self) -> Sequence[int]:
        changes = sum(self._changes().values())
        rows = len(self._present(self._transactions))
        return [changes if kind is Kind.LOG else rows for kind in self._kinds]

    def is_out(self, sink: int, lines: Iterable[bytes]) -> bool:
        if self._kinds[sink] is Kind.LOG:
            return super().is_out(sink, lines)
        return self._rows(lines, Faults()) == self._present(self._transactions)

    def _changes(self) -> dict[int, int]:
        """Return how many changes of each key the application sees."""
        return {
            key: len(numbers) + 1 - self._first.get(key, 1)
            for key, numbers in self._changed.items()
        }

    def judge(self, sink: int, lines: Iterable[bytes], faults: Faults) -> int:
        if self._kinds[sink] is Kind.LOG:
            return self._judge_log(lines, faults)
        rows = self._rows(lines, faults)
        due = self._present(self._transactions)
        for key in due.keys() - rows.keys():
            faults.note("lost", f"the row of key {key}")
        for key in rows.keys() - due.keys():
            faults.note("wrong", f"the row of key {key} was deleted")
        for key in due.keys() & rows.keys():
            if due[key] != rows[key]:
                faults.note("wrong", f"key {key} is at {rows[key]}, must be at {due[key]}")
        return len(rows)

    def _judge_log(self, lines: Iterable[bytes], faults: Faults) -> int:
        ledger = Ledger(faults)
        last: Counter[int] = Counter()
        total = 0
        for line in lines:
            total += 1
            key, number = self._parsed(line) or (int(line.split(b" ")[0]), 0)
            before = self._first.get(key, 1) - 1
            last.setdefault(key, before)
            if not number:  # a deletion, which has no number
                number = last[key] + DELETED_EVERY - last[key] % DELETED_EVERY
            elif number % DELETED_EVERY == 0:
                faults.note("wrong", f"no deletion: {line!r}")
            last[key] = max(last[key], number)
            ledger.receive(key, number - before)
        ledger.close(self._changes())
        return total

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        due = {
            key: _window(len(self._changed[key]), self._first.get(key, 1))
            for key, changes in self._changes().items()
            if changes
        }
        last = {key: state.last for key, state in states}
        for key in due.keys() | last.keys():
            if due.get(key) != last.get(key):
                faults.note("wrong_state", f"key {key}: {last.get(key)}, must be {due.get(key)}")

    def watch(self, sink: int, lines: Iterable[bytes], faults: Faults) -> None:
        rows = self._rows(lines, faults)
        if self._kinds[sink] is Kind.WHOLE:
            self._watch_whole(sink, rows, faults)
        else:
            self._watch_rows(sink, rows, faults)

    def _watch_whole(self, sink: int, rows: Present, faults: Faults) -> None:
        """Find the transaction, not before the last one, after which the table is so."""
        changed = dict(self._changed)
        places = [changed.get(key, [])[number - 1 : number] for key, number in rows.items()]
        newest = max((place[0] for place in places if place), default=-1)
        for transaction in range(max(newest, self._read_to[sink]), self._transactions):
            if self._present(transaction + 1, changed) == rows:
                self._read_to[sink] = transaction
                return
        words = f"a table of no moment: {len(rows)} rows, the newest of transaction {newest}"
        faults.note("wrong", f"{words}, read before up to {self._read_to[sink]}")

    def _watch_rows(self, sink: int, rows: Present, faults: Faults) -> None:
        seen = self._seen[sink]
        for key, numbers in dict(self._changed).items():
            before = seen.get(key, 0)
            deleted = before + (-before) % DELETED_EVERY  # the first deletion that it can be
            now = rows.get(key, deleted)
            if now < before or (key in rows and now > len(numbers)):
                faults.note("wrong", f"key {key} was at {before}, is at {now}")
            elif now > len(numbers):
                faults.note("lost", f"the row of key {key}, which was at {before}")
            seen[key] = now

    def _parsed(self, line: bytes) -> tuple[int, int] | None:
        return _parsed(line, self._first)

    def _rows(self, lines: Iterable[bytes], faults: Faults) -> Present:
        """Return the number of each key."""
        rows: dict[int, int] = {}
        for line in lines:
            place = self._parsed(line)
            if place is None or place[1] % DELETED_EVERY == 0:
                faults.note("wrong", repr(line))
            elif place[0] in rows:
                faults.note("duplicated", f"key {place[0]} has two rows")
            else:
                rows[place[0]] = place[1]
        return rows

    def _present(self, end: int, changed: Mapping[int, list[int]] | None = None) -> Present:
        """Return the rows after all transactions before ``end``."""
        numbers = {
            key: bisect_right(transactions, end - 1)
            for key, transactions in (self._changed if changed is None else changed).items()
        }
        return {key: number for key, number in numbers.items() if number % DELETED_EVERY}


class Hours(Oracle):
    """Rows in a folder for each hour of event time, marked when the watermark has passed it."""

    app = "hours"

    def __init__(self, seed: int, partitions: int):
        self._chance = random.Random(f"{seed} hours")
        self._counts: Counter[int] = Counter()
        self._newest_ms = dict.fromkeys(range(partitions), 0)
        self._partitions = partitions
        self._rows: dict[str, set[bytes]] = defaultdict(set)  # of a folder

    def payloads(self, count: int) -> list[bytes]:
        return [self._payload() for _ in range(count)]

    def _payload(self) -> bytes:
        key = int(KEYS * self._chance.random() ** 2)
        self._counts[key] += 1
        at_ms = BEGIN_MS + self._counts.total() * HOURS_STEP_MS
        at_ms -= self._chance.randrange(HOURS_DELAY_MS)
        payload = TIMED.pack(key, self._counts[key], at_ms)
        partition = self.partition_of(payload, self._partitions)
        self._rows[_folder(at_ms)].add(b"%d %d %d" % (key, self._counts[key], at_ms))
        self._newest_ms[partition] = max(self._newest_ms[partition], at_ms)
        return payload

    def partition_of(self, payload: bytes, partitions: int) -> int:
        return int(TIMED.unpack(payload)[0]) % partitions

    def due(self) -> Sequence[int]:
        return [self._counts.total() + len(self._marks_due())]

    def _marks_due(self) -> set[str]:
        passed_ms = min(self._newest_ms.values()) - HOURS_DELAY_MS
        first_ms = BEGIN_MS - BEGIN_MS % HOUR_MS - HOUR_MS
        passed = {_folder(ms) for ms in range(first_ms, passed_ms - HOUR_MS, HOUR_MS)}
        return passed & set(self._rows)  # in one step: it grows meanwhile

    def judge(self, sink: int, lines: Iterable[bytes], faults: Faults) -> int:
        rows, marked = _folders(lines, faults)
        for folder in self._marks_due() - marked:
            faults.note("lost", f"the mark of {folder}")
        for folder, due in self._rows.items():
            self._compare(folder, due, rows.get(folder, set()), faults)
        return sum(map(len, rows.values())) + len(marked)

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Accept any state: the application has none."""

    def watch(self, sink: int, lines: Iterable[bytes], faults: Faults) -> None:
        rows, marked = _folders(lines, faults)
        for folder in marked:
            if folder in self._marks_due():
                self._compare(folder, self._rows[folder], rows.get(folder, set()), faults)
            else:
                faults.note("wrong", f"{folder} is marked, and its time has not passed")

    def _compare(self, folder: str, due: set[bytes], rows: set[bytes], faults: Faults) -> None:
        for row in due - rows:
            faults.note("lost", f"{row!r} in {folder}")
        for row in rows - due:
            faults.note("wrong", f"{row!r} in {folder}")


def _folder(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("dt=%Y-%m-%d/hour=%H")


def _folders(lines: Iterable[bytes], faults: Faults) -> tuple[dict[str, set[bytes]], set[str]]:
    """Return the rows of each folder, and the folders that are marked."""
    rows: dict[str, set[bytes]] = defaultdict(set)
    marked = set()
    for line in lines:
        folder, _, row = line.partition(b" ")
        name = folder.decode()
        if row == MARK.encode():
            marked.add(name)
        elif row in rows[name]:
            faults.note("duplicated", repr(line))
        rows[name].add(row)
    for name in marked:
        rows[name].discard(MARK.encode())
    return rows, marked


def _window(last: int, first: int) -> list[int]:
    """Return the last numbers of a key up to one, if its state begins with the first one."""
    return [number if number >= first else 0 for number in range(last - WINDOW + 1, last + 1)]


def _parsed(line: bytes, first: Mapping[int, int]) -> tuple[int, int] | None:
    """Return the key and the last number of a window that can be."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    numbers = [int(number) for number in match[2].split(b", ")]
    key = int(match[1])
    return (key, numbers[-1]) if numbers == _window(numbers[-1], first.get(key, 1)) else None
