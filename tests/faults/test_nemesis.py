"""What the verifier does besides killing: what it draws, how its plain receivers behave, whose
oracle it takes.
"""

from __future__ import annotations

import argparse
import io
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.verification.__main__ import build_parser as build_verification_parser
from tests.verification.__main__ import verification_command
from wallaroo.cli.main import build_parser
from wallaroo.cli.verify.command import Enough, verify_command
from wallaroo.errors import WallarooParameterError
from wallaroo.testing.verify import plain_receiver
from wallaroo.testing.verify.plain_receiver import BEHAVIOURS, PlainReceiver
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Faults
from wallaroo.testing.verify.trial.schedule import HELD_S, Fault, schedule

ORACLE = """
from wallaroo.testing.verify.cases import Case

class Mine(Case):
    module = "unknown"
    sources = ("In",)
    def payloads(self, source, count): return [b"x"] * count
    def judge(self, lines, faults): return 0
    def state(self): return {}
    def facts(self, state): return state
"""


def test_faults_are_drawn_by_seed_and_only_a_driver_is_stopped() -> None:
    """All faults come, and what is drawn for kills alone is what it always was."""
    faults = (Fault.STOP, Fault.KILL, Fault.HOLD)
    drawn = schedule(200, 1, tuple(Kind), faults=faults)
    assert {kill.fault for kill in drawn} == set(faults)
    assert {kill.kind for kill in drawn if kill.fault is Fault.STOP} == {Kind.DRIVER}
    assert all(HELD_S[0] <= kill.held_s <= HELD_S[1] for kill in drawn)
    plain = schedule(200, 1, tuple(Kind))
    assert [kill.kind for kill in plain] == [kill.kind for kill in drawn]
    assert {kill.fault for kill in plain} == {Fault.KILL}


def test_faults_that_come_together_wait_for_nothing_in_between() -> None:
    """Only the first of each group waits for recovery, and then for a moment of its own."""
    drawn = schedule(40, 1, tuple(Kind), together=4)
    others = [kill for number, kill in enumerate(drawn) if number % 4]
    assert all(kill.is_hurried and kill.pause_s == 0 for kill in others)
    assert not drawn[0].is_hurried
    groups = [[kill.kind for kill in drawn[at : at + 4]] for at in range(0, 40, 4)]
    ends = {Kind.DRIVER, Kind.JVM}
    assert all(not ends & set(group[: len(group) - len(ends)]) for group in groups)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_plain_receiver_writes_whole_lines_of_every_connection(
    behaviour: str, eventually: Callable[..., None]
) -> None:
    """Half a line at the end of a connection is dropped: the next one begins with it."""
    out = io.BytesIO()
    with PlainReceiver(out, behaviour) as receiver:
        for content in (b"one\ntwo\nthr", b"three\n"):
            with socket.create_connection(receiver.address) as sender:
                before = receiver.count
                sender.sendall(content)
                sender.shutdown(socket.SHUT_WR)
                eventually(lambda: receiver.count > before, "lines arrive")  # noqa: B023
        assert out.getvalue() == b"one\ntwo\nthree\n"


def test_a_talking_receiver_answers() -> None:
    """That is what breaks a sender that closes too early."""
    with (
        PlainReceiver(io.BytesIO(), "talking") as receiver,
        socket.create_connection(receiver.address) as sender,
    ):
        sender.sendall(b"line\n")
        assert sender.recv(10) == b"ok\n"


def test_a_dying_receiver_resets_its_connection_and_keeps_what_it_was_given(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    """The sender's next word finds nothing there."""
    out = io.BytesIO()
    now = itertools.repeat(0.0)
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(plain_receiver, "time", clock)
    with (
        PlainReceiver(out, "dying", die_every_s=1.0) as receiver,
        socket.create_connection(receiver.address) as sender,
    ):
        sender.sendall(b"line\n")
        eventually(lambda: receiver.count == 5, "the line arrives")
        now = itertools.repeat(1.0)
        with pytest.raises(ConnectionError):
            sender.recv(10)
        assert out.getvalue() == b"line\n"
        assert receiver.deaths == 1


def test_faults_add_up() -> None:
    """Those of the receiver count with those of the files."""
    one, other = Faults(), Faults()
    other.note("lost", "a 1", 2)
    one.add(other)
    assert one.lost == one.total == 2
    assert one.examples == ["lost: a 1"]


def _verify(*arguments: str) -> int:
    return verification_command(build_verification_parser().parse_args(arguments))


def _options(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["verify", *arguments])


def test_an_application_of_ones_own_needs_an_oracle(tmp_path: Path) -> None:
    """What is neither ours nor a file with an oracle is refused with what there is."""
    application = tmp_path / "my_app.py"
    application.write_text("")
    with pytest.raises(WallarooParameterError, match="--oracle"):
        verify_command(_options("--app", str(application)))
    (tmp_path / "their_oracle.py").write_text(ORACLE)
    oracle = tmp_path / "their_oracle.py"
    with pytest.raises(WallarooParameterError, match="no subclass"):
        verify_command(_options("--app", str(application), "--oracle", f"{oracle}:Other"))


def test_the_first_interrupt_ends_the_disturbances_and_the_second_one_the_verification() -> None:
    """What was done so far is to get its verdict."""
    enough = Enough()
    assert not enough.is_set()
    enough.handle(2, None)
    assert enough.is_set()
    with pytest.raises(KeyboardInterrupt):
        enough.handle(2, None)


def test_what_a_run_does_not_have_cannot_be_killed() -> None:
    """Without Spark there are no workers."""
    with pytest.raises(WallarooParameterError, match="driver, ingress, egress"):
        _verify("--host", "in-process", "--only", "worker,jvm")
    with pytest.raises(WallarooParameterError, match="no --latency"):
        _verify("--host", "in-process", "--latency", "20")
    with pytest.raises(WallarooParameterError, match="--host resident"):
        _verify("--latency", "low")
    with pytest.raises(WallarooParameterError, match="no --changes"):
        _verify("--host", "in-process", "--changes", "grow1")
    with pytest.raises(WallarooParameterError, match="leaves none of 2 workers"):
        _verify("--changes", "kill2")


def test_receivers_that_are_not_resuming_go_with_sequence() -> None:
    """The other applications' sinks resume."""
    with pytest.raises(WallarooParameterError, match="--app sequence"):
        _verify("--app", "dice", "--receiver", "slow")
