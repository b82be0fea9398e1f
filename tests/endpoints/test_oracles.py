"""The oracle of sessions, against a program that is right, and against wrong ones."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.endpoints.oracles import DELAY_MS, GAP_MS, TIMED, Sessions
from wallaroo.testing.verify.trial.result import Faults

PARTITIONS = 3
EVENTS = 5000


class Model:
    """Sessions event by event: each begins alone and joins those that are near."""

    def __init__(self, oracle: Sessions):
        newest: dict[int, int] = {}
        self.late: list[bytes] = []
        sessions: dict[int, list[list[tuple[int, int]]]] = defaultdict(list)
        for payload in oracle.payloads(EVENTS):
            key, number, at_ms = TIMED.unpack(payload)
            partition = oracle.partition_of(payload, PARTITIONS)
            before_ms = newest.get(partition, 0)
            newest[partition] = max(before_ms, at_ms)
            if before_ms - DELAY_MS > at_ms:
                self.late.append(b"%d %d %d" % (key, number, at_ms))
                continue
            near = [each for each in sessions[key] if _is_near(each, at_ms)]
            joined = sorted([(at_ms, number), *(event for each in near for event in each)])
            sessions[key] = [each for each in sessions[key] if each not in near] + [joined]
        passed_ms = min(newest.values()) - DELAY_MS
        self.sessions = [
            f"{key} {[number for _, number in session]}".encode()
            for key, own in sessions.items()
            for session in sorted(own)
            if session[-1][0] + GAP_MS < passed_ms
        ]


def _is_near(session: list[tuple[int, int]], at_ms: int) -> bool:
    return session[0][0] - GAP_MS <= at_ms <= session[-1][0] + GAP_MS


def judged(oracle: Sessions, sessions: list[bytes], late: list[bytes]) -> tuple[int, ...]:
    faults = Faults()
    oracle.judge(0, sessions, faults)
    oracle.judge(1, late, faults)
    return faults.lost, faults.duplicated, faults.out_of_order, faults.wrong


@pytest.fixture(name="oracle")
def _oracle() -> Sessions:
    return Sessions(1, PARTITIONS)


def test_what_is_right_is_accepted_and_everything_due_is_waited_for(oracle: Sessions) -> None:
    model = Model(oracle)
    assert judged(oracle, model.sessions, model.late) == (0, 0, 0, 0)
    assert list(oracle.due()) == [len(model.sessions), len(model.late)]
    assert len(model.late) > EVENTS / 100
    assert len(model.sessions) > 100


def test_what_is_missing_and_what_comes_again_is_counted(oracle: Sessions) -> None:
    model = Model(oracle)
    assert judged(oracle, model.sessions[1:], model.late[1:])[0] == 2
    again = model.sessions + model.sessions[:1], model.late + model.late[:1]
    assert judged(oracle, *again)[1] == 2


def test_the_order_of_a_key_counts(oracle: Sessions) -> None:
    model = Model(oracle)
    assert judged(oracle, model.sessions[::-1], model.late)[2] > 0
    assert judged(oracle, model.sessions, model.late[::-1])[2] > 0


def test_an_event_that_is_taken_for_late_is_wrong_in_both_sinks(oracle: Sessions) -> None:
    """As if a partition had been taken for idle while its broker was away."""
    model = Model(oracle)
    place, line = next((place, line) for place, line in enumerate(model.sessions) if b"," in line)
    key, numbers = line.decode().split(" ", 1)
    first, rest = numbers[1:-1].split(", ", 1)
    cut = [*model.sessions[:place], f"{key} [{rest}]".encode(), *model.sessions[place + 1 :]]
    late = [*model.late, f"{key} {first} 1".encode()]
    assert judged(oracle, cut, late) == (1, 0, 0, 2)


def test_sessions_do_not_span_a_gap(oracle: Sessions) -> None:
    model = Model(oracle)
    key = model.sessions[0].split(b" ")[0]
    own = [line for line in model.sessions if line.startswith(key + b" ")]
    joined = own[0][:-1] + b", " + own[1].split(b"[")[1]
    others = [line for line in model.sessions if line not in own[:2]]
    assert judged(oracle, [joined, *others], model.late) == (2, 0, 0, 1)
