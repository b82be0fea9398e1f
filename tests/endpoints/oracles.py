"""Events that go in, and what has to come out of each sink: written from the documentation.

Where it runs: the verifier.
"""

from __future__ import annotations

import ast
import random
import re
import struct
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.verification.cases import Sequence as Windows
from wallaroo.testing.verify.trial.result import Faults

KEYS = 300
BEGIN_MS = 1_000_000_000_000
STEP_MS = 10  # event time between two events, which come 100 times a second
DELAY_MS = 500
GAP_MS = 2000.5  # times are whole milliseconds: none is as far from another
LATE_SHARE = 0.03
LATE_MS_MAX = 5000
IDLE_S = 10  # of the application: less than systems are away, more than clients take to reconnect
TIMED = struct.Struct(">IQQ")  # key, its next number, milliseconds


def key_of(payload: bytes) -> int:
    """Return the key, with which every event begins."""
    return int.from_bytes(payload[:4], "big")


class Oracle(ABC):
    """Endless input, and judgement on the output."""

    app: str
    away_s = 0.0  # a system is away for up to so long at least, or it would show nothing

    @abstractmethod
    def payloads(self, count: int) -> list[bytes]:
        """Return the next events."""

    @abstractmethod
    def partition_of(self, payload: bytes, partitions: int) -> int:
        """Return where an event goes."""

    @abstractmethod
    def due(self) -> Sequence[int]:
        """Return how many lines must come out of each sink by themselves."""

    def is_out(self, sink: int, lines: Iterable[bytes]) -> bool:
        """Return whether everything has come out of a sink that must by itself."""
        return sum(1 for _ in lines) >= self.due()[sink]

    def watch(self, sink: int, lines: Iterable[bytes], faults: Faults) -> None:
        """Judge what a reader sees at a moment, if the sink is a table that is watched."""
        raise NotImplementedError

    @abstractmethod
    def judge(self, sink: int, lines: Iterable[bytes], faults: Faults) -> int:
        """Compare what came out of a sink with all input so far; return the number of lines."""

    @abstractmethod
    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Compare the state at the end."""


class Numbers(Oracle):
    """Windows of each key's consecutive numbers, the same out of every sink."""

    app = "windows"

    def __init__(self, seed: int, sinks: int = 1):
        self._case = Windows(seed)
        self._sinks = sinks
        self._sent = 0

    def payloads(self, count: int) -> list[bytes]:
        self._sent += count
        return self._case.payloads("Sequence", count)

    def partition_of(self, payload: bytes, partitions: int) -> int:
        return key_of(payload) % partitions

    def due(self) -> Sequence[int]:
        return [self._sent] * self._sinks

    def judge(self, sink: int, lines: Iterable[bytes], faults: Faults) -> int:
        return self._case.judge(lines, faults)

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        self._case.judge_state(states, faults)


class Sessions(Oracle):
    """Sessions of each key, and the events that came too late for them out of the second sink.

    An event is late if its partition's newest event before it, less the delay, is newer.  The
    others of a key are one session as long as none is ``GAP_MS`` after the one before.  A session
    must come out once every partition's newest event, less the delay, is ``GAP_MS`` after its last
    one; it may come later, as no event does and the clock continues.  How long a broker was away in
    between changes none of this.
    """

    app = "sessions"
    away_s = 2.0 * IDLE_S
    _SESSION = re.compile(rb"(\d+) (\[[\d, ]+\])")
    _LATE = re.compile(rb"(\d+) (\d+) (\d+)")

    def __init__(self, seed: int, partitions: int):
        self._chance = random.Random(f"{seed} sessions")
        self._partitions = partitions
        self._counts: Counter[int] = Counter()
        self._made = 0
        self._newest_ms: dict[int, int] = {}  # of a partition
        self._in_time: dict[int, dict[int, int]] = defaultdict(dict)  # key -> number -> time
        self._late: dict[tuple[int, int], int] = {}  # (key, number) -> time

    def payloads(self, count: int) -> list[bytes]:
        return [self._payload() for _ in range(count)]

    def _payload(self) -> bytes:
        key = int(KEYS * self._chance.random() ** 2)
        self._counts[key] += 1
        self._made += 1
        back_ms = self._chance.randrange(DELAY_MS)
        if self._chance.random() < LATE_SHARE:
            back_ms += self._chance.randrange(LATE_MS_MAX)
        at_ms = BEGIN_MS + self._made * STEP_MS - back_ms
        payload = TIMED.pack(key, self._counts[key], at_ms)
        self._note(key, self._counts[key], at_ms, self.partition_of(payload, self._partitions))
        return payload

    def _note(self, key: int, number: int, at_ms: int, partition: int) -> None:
        newest_ms = self._newest_ms.get(partition, at_ms)
        if newest_ms - DELAY_MS > at_ms:
            self._late[key, number] = at_ms
        else:
            self._in_time[key][number] = at_ms
        self._newest_ms[partition] = max(newest_ms, at_ms)

    def partition_of(self, payload: bytes, partitions: int) -> int:
        return int(TIMED.unpack(payload)[1]) % partitions  # a key's events are spread

    def due(self) -> Sequence[int]:
        is_due = sum(self._is_due(key, numbers) for key, numbers in self._sessions())
        return is_due, len(self._late)

    def judge_state(self, states: Iterable[tuple[Any, Any]], faults: Faults) -> None:
        """Accept any state: it is judged by what comes out of it."""

    def _sessions(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each key with the numbers of each of its sessions, in the order of time."""
        for key, times in self._in_time.items():
            session: list[int] = []
            for number in sorted(times, key=lambda number: (times[number], number)):
                if session and times[number] - times[session[-1]] > GAP_MS:
                    yield key, tuple(session)
                    session = []
                session.append(number)
            yield key, tuple(session)

    def _is_due(self, key: int, session: tuple[int, ...]) -> bool:
        if len(self._newest_ms) < self._partitions:
            return False
        passed_ms = min(self._newest_ms.values()) - DELAY_MS
        return self._in_time[key][session[-1]] + GAP_MS < passed_ms

    def judge(self, sink: int, lines: Iterable[bytes], faults: Faults) -> int:
        return (self._judge_sessions, self._judge_late)[sink](lines, faults)

    def _judge_sessions(self, lines: Iterable[bytes], faults: Faults) -> int:
        order: Counter[int] = Counter()
        places = {}  # a session, and which one of its key it is
        for place in self._sessions():
            places[place] = order[place[0]]
            order[place[0]] += 1
        came: set[tuple[int, tuple[int, ...]]] = set()
        last: dict[int, int] = {}
        count = 0
        for line in lines:
            count += 1
            match = self._SESSION.fullmatch(line)
            session = (int(match[1]), tuple(ast.literal_eval(match[2].decode()))) if match else None
            if session is None or session not in places:
                faults.note("wrong", f"no session: {line!r}")
                continue
            if session in came:
                faults.note("duplicated", repr(line))
            elif last.get(session[0], -1) > places[session]:
                faults.note("out_of_order", repr(line))
            came.add(session)
            last[session[0]] = max(last.get(session[0], -1), places[session])
        for key, numbers in places:
            if (key, numbers) not in came and self._is_due(key, numbers):
                faults.note("lost", f"key {key}: session {list(numbers)}")
        return count

    def _judge_late(self, lines: Iterable[bytes], faults: Faults) -> int:
        came: set[tuple[int, int]] = set()
        last: dict[tuple[int, int], int] = {}  # (key, partition) -> number
        count = 0
        for line in lines:
            count += 1
            match = self._LATE.fullmatch(line)
            key, number, at_ms = (int(part) for part in match.groups()) if match else (-1, 0, 0)
            where = key, number % self._partitions
            if self._late.get((key, number)) != at_ms:
                faults.note("wrong", f"not late: {line!r}")
            elif (key, number) in came:
                faults.note("duplicated", f"late {line!r}")
            elif last.get(where, 0) > number:
                faults.note("out_of_order", f"late {line!r}")
            came.add((key, number))
            last[where] = max(last.get(where, 0), number)
        for key, number in self._late.keys() - came:
            faults.note("lost", f"late event {number} of key {key}")
        return count
