"""The verifier's oracles: silent on what an undisturbed run gives, and loud about every way in
which that can be spoilt.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.verification.applications import (
    dead_letters,
    dice,
    joined,
    market_spread,
    sequence,
    timers,
    windows,
    word_count,
)
from tests.verification.cases import CASES
from tests.verification.ledger import Ledger
from wallaroo.dataflow.plan.model import DEAD_LETTERS
from wallaroo.processes.roles import RunProcess
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.testing.run import LocalApplication, LocalRun
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.trial.processes import (
    Kind,
    find,
    kill,
    kind_of,
)
from wallaroo.testing.verify.trial.result import Faults
from wallaroo.testing.verify.trial.schedule import schedule

MODULES = {
    "sequence": sequence,
    "word_count": word_count,
    "market_spread": market_spread,
    "dead_letters": dead_letters,
    "dice": dice,
    "windows": windows,
    "timers": timers,
    "joined": joined,
}
STEPS = {
    "sequence": "slide window",
    "word_count": "count",
    "market_spread": "check market",
    "dead_letters": dead_letters.STEPS[dead_letters.IN_STATE],
}
LANES = ("count in lane", "count at table")
TIMED = ("windows", "timers", "joined")  # their state is judged by what comes of it
# what a key must hold is known before the run
KEYED = [name for name in CASES if name not in ("dice", *TIMED)]
EVENTS, PORTIONS = 2000, 20  # per source


@functools.cache
def undisturbed(name: str) -> tuple[Case, LocalRun]:
    """Make input, run the application on it in this process."""
    case = CASES[name](seed=7)
    ins = ",".join(f"{source}@127.0.0.1:{port}" for port, source in enumerate(case.sources, 10))
    application = MODULES[name].application_setup(["--in", ins, "--out", "127.0.0.1:2"])
    running = LocalApplication(application)  # type: ignore[arg-type]  # application_setup's type is the users'
    for _ in range(PORTIONS):
        for source in case.sources:
            running.send(source, *case.payloads(source, EVENTS // PORTIONS))
        running.batch()
    return case, running.result()


def lines(run: LocalRun) -> list[bytes]:
    return [output.removesuffix(b"\n") for output in run.outputs]


def judged(case: Case, outputs: list[bytes]) -> Faults:
    faults = Faults()
    assert case.judge(outputs, faults) == len(outputs)
    return faults


@pytest.mark.parametrize("name", CASES)
def test_an_undisturbed_run_has_no_fault(name: str) -> None:
    """Output and state agree with the oracle; there is enough of both to mean something."""
    case, run = undisturbed(name)
    faults = judged(case, lines(run))
    steps = {"dice": LANES, **dict.fromkeys(TIMED, ())}.get(name, (STEPS.get(name, ""),))
    case.judge_state([entry for step in steps for entry in run.state(step).items()], faults)
    assert faults.total == 0, faults.examples
    assert len(run.outputs) > EVENTS / 10


def last(outputs: list[bytes]) -> list[bytes]:
    return outputs[:-1]


def first(outputs: list[bytes]) -> list[bytes]:
    return outputs[1:]


def doubled(outputs: list[bytes]) -> list[bytes]:
    return [*outputs[:50], outputs[49], *outputs[50:]]


def replayed(outputs: list[bytes]) -> list[bytes]:
    return outputs + outputs[-300:]


def swapped(outputs: list[bytes]) -> list[bytes]:
    """Two neighbours of one key change places."""
    keys = [line.split()[0] for line in outputs]
    key = next(key for key in keys if keys.count(key) > 1)
    one, other = [number for number, found in enumerate(keys) if found == key][:2]
    changed = list(outputs)
    changed[one], changed[other] = outputs[other], outputs[one]
    return changed


def invented(outputs: list[bytes]) -> list[bytes]:
    return [*outputs, b"unknown 1 1"]


Spoiler = Callable[[list[bytes]], list[bytes]]
NUMBERED: list[tuple[Spoiler, str]] = [
    (last, "lost"),
    (first, "lost"),
    (doubled, "duplicated"),
    (replayed, "duplicated"),
    (swapped, "out_of_order"),
    (invented, "wrong"),
]
SPOILT: list[tuple[str, Spoiler, str]] = [
    *(("sequence", spoil, kind) for spoil, kind in NUMBERED),
    *(("word_count", spoil, kind) for spoil, kind in NUMBERED),
    *(("dead_letters", spoil, kind) for spoil, kind in NUMBERED),
    *((name, spoil, kind) for name in TIMED for spoil, kind in NUMBERED),
    ("dice", last, "lost"),
    ("dice", doubled, "duplicated"),
    ("dice", replayed, "duplicated"),
    ("dice", invented, "wrong"),
    ("market_spread", doubled, "duplicated"),
    ("market_spread", replayed, "out_of_order"),
    ("market_spread", swapped, "out_of_order"),
    ("market_spread", invented, "wrong"),
]


@pytest.mark.parametrize(("name", "spoil", "kind"), SPOILT)
def test_spoilt_output_is_reported_by_its_kind(name: str, spoil: Spoiler, kind: str) -> None:
    """One line lost, doubled, moved or invented is found."""
    case, run = undisturbed(name)
    assert getattr(judged(case, spoil(lines(run))), kind) > 0


def letters_of(run: LocalRun) -> list[bytes]:
    return [line.removesuffix(b"\n") for line in run.by_sink[DEAD_LETTERS]]


def judged_letters(case: Case, letters: list[bytes]) -> Faults:
    faults = Faults()
    assert case.judge_letters(letters, faults) == len(letters)
    return faults


def test_an_undisturbed_run_has_a_letter_for_every_failed_event() -> None:
    """Each of the three steps fails often enough to mean something."""
    case, run = undisturbed("dead_letters")
    letters = letters_of(run)
    assert judged_letters(case, letters).total == 0
    assert len(letters) + len(run.outputs) == EVENTS
    assert all(run.errors[step] >= 10 for step in dead_letters.STEPS.values())


def with_other_step(letters: list[bytes]) -> list[bytes]:
    return [letters[0].replace(b'"step": "', b'"step": "not '), *letters[1:]]


SPOILT_LETTERS: list[tuple[Spoiler, str]] = [
    (last, "lost"),
    (first, "lost"),
    (doubled, "duplicated"),
    (replayed, "duplicated"),
    (invented, "wrong"),
    (with_other_step, "wrong"),
]


@pytest.mark.parametrize(("spoil", "kind"), SPOILT_LETTERS)
def test_spoilt_letters_are_reported_by_their_kind(spoil: Spoiler, kind: str) -> None:
    """One letter lost, doubled, invented or of another step is found."""
    case, run = undisturbed("dead_letters")
    assert getattr(judged_letters(case, spoil(letters_of(run))), kind) > 0


def test_letters_of_an_application_that_has_none_are_wrong() -> None:
    """Nothing may fail where nothing is to fail."""
    assert judged_letters(CASES["sequence"](seed=7), [b"{}"]).wrong == 1


def test_a_lost_rejection_is_found_where_no_narrow_quote_explains_it() -> None:
    """Orders pass at narrow quotes only; a rejection missing between two at the same quote cannot
    have passed.
    """
    case, run = undisturbed("market_spread")
    outputs = lines(run)
    found = 0
    for gone in range(0, len(outputs), 7):
        found += judged(case, outputs[:gone] + outputs[gone + 1 :]).lost > 0
    assert found > len(outputs) / 7 / 3


@pytest.mark.parametrize("gone", [0, 1])
def test_lanes_that_counted_another_number_of_events_are_found(gone: int) -> None:
    """An event that one shuffle lost, or doubled, is missing in the sum of what was counted behind
    it.
    """
    case, run = undisturbed("dice")
    states = [list(run.state(step).items()) for step in LANES]
    faults = Faults()
    case.judge_state([*states[gone][1:], *states[1 - gone]], faults)
    assert faults.wrong_state == 1


@pytest.mark.parametrize("name", KEYED)
def test_wrong_state_is_found(name: str) -> None:
    """A key's state that is another key's, or is missing, is reported."""
    case, run = undisturbed(name)
    states = list(run.state(STEPS[name]).items())
    faults = Faults()
    case.judge_state(
        [*states[2:], (states[0][0], states[1][1]), (states[1][0], states[0][1])], faults
    )
    missing = Faults()
    case.judge_state(states[1:], missing)
    assert missing.wrong_state == 1
    assert faults.wrong_state in (0, 1, 2)
    assert faults.wrong_state or case.facts(states[0][1]) == case.facts(states[1][1])


def test_a_schedule_is_the_same_for_a_seed_and_has_every_kind() -> None:
    """What a report names by its seed can be run again."""
    kinds = tuple(Kind)
    assert schedule(50, 4, kinds) == schedule(50, 4, kinds)
    assert schedule(50, 4, kinds) != schedule(50, 5, kinds)
    assert {planned.kind for planned in schedule(len(kinds), 4, kinds)} == set(kinds)
    assert {planned.kind for planned in schedule(9, 4, (Kind.EGRESS,))} == {Kind.EGRESS}


def test_processes_are_known_by_their_command_and_place() -> None:
    """A worker is a fork of the daemon; of the daemons of others only the workers count."""
    java = RunProcess(2, 1, ("/usr/bin/java", "-cp", "x"))
    daemon = RunProcess(
        3, 2, ("python", "-m", "wallaroo.spark.session.worker_daemon", "pyspark.worker")
    )
    worker = RunProcess(4, 3, daemon.command)
    assert kind_of(java, None) is Kind.JVM
    assert kind_of(daemon, java) is Kind.DAEMON
    assert kind_of(worker, daemon) is Kind.WORKER
    assert kind_of(RunProcess(3, 2, ("python", "-m", "pyspark.daemon")), java) is None
    assert (
        kind_of(RunProcess(5, 1, ("python", "-m", "wallaroo.ingress", "c.json")), None)
        is Kind.INGRESS
    )
    assert (
        kind_of(RunProcess(5, 1, ("python", "-m", "wallaroo.ingress.feeder", "c.json")), None)
        is None
    )
    assert (
        kind_of(RunProcess(6, 1, ("python", "-m", "wallaroo.connectors.tcp.egress", "{}")), None)
        is Kind.EGRESS
    )


def test_only_descendants_are_found_and_killed(eventually: Callable[..., None]) -> None:
    """A process of the right kind elsewhere in the tree stays out of reach."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "wallaroo.ingress"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        eventually(
            lambda: child.pid in find(os.getpid())[Kind.INGRESS], "the child shows in the table"
        )
        assert find(child.pid)[Kind.INGRESS] == []
        assert find(child.pid)[Kind.DRIVER] == [child.pid]
        assert kill(child.pid)
        assert child.wait(400) < 0
        assert child.pid not in find(os.getpid())[Kind.INGRESS]


def test_free_ports_are_all_different() -> None:
    """Plain and acknowledged ports of all sources are chosen at once."""
    ports = free_ports(6)
    assert len(set(ports)) == 6
    with socket.create_server(("127.0.0.1", 0)) as server:  # what the system gives is another range
        assert max(ports) < server.getsockname()[1]


def test_a_ledger_counts_lost_doubled_and_late_outputs() -> None:
    faults = Faults()
    ledger = Ledger(faults)
    for number in (1, 3, 2, 3):
        ledger.receive("a", number)
    ledger.close({"a": 4})
    assert (faults.lost, faults.duplicated, faults.out_of_order, faults.wrong) == (1, 1, 1, 0)
