"""Outbox and egress over real sockets and processes: nothing lost, nothing twice, in order,
whatever is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import (
    SECONDS,
    Driver,
    Job,
    committing,
    frame,
    free_port,
    kill,
    until,
)
from tests.unit.sinks.identities import commit_of
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.connectors.tcp.pipe import GREETING, OFFSET
from wallaroo.errors import CheckpointError


def test_output_arrives_in_order_over_one_connection_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with Receiver(form="frames") as receiver:
        with committing(receiver.address[1], tmp_path) as committer:
            for batch in range(20):
                committer.commit(commit_of(batch), job.tokens(batch, 1 + 30 * batch))
            assert receiver.wait_for(job.number, SECONDS)
        status = committer.status()
        assert receiver.payloads == job.expected
        assert receiver.totals.connections == 1
    assert (status.committed_batch, status.outputs, status.pending_bytes) == (19, job.number, 0)
    assert sorted(status.sent_at_ns) == list(range(20))
    assert not list(tmp_path.glob("*.out"))
    assert not list((tmp_path / "pending").iterdir())


def test_output_waits_for_an_absent_receiver_and_the_status_says_so(tmp_path: Path) -> None:
    job, port = Job(tmp_path), free_port()
    with committing(port, tmp_path) as committer:
        committer.commit(commit_of(0), job.tokens(0, 10))
        until(lambda: committer.status().waiting_for == f"127.0.0.1:{port} (connection refused)")
        assert committer.backlog() == 2 * 10 * 68
        assert committer.status().committed_batch == -1
        with Receiver(port=port, form="frames") as receiver:
            assert receiver.wait_for(20, SECONDS)
            assert receiver.payloads == job.expected
            until(lambda: committer.backlog() == 0 and not committer.status().waiting_for)


def test_a_batch_committed_again_or_without_output_changes_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with (
        Receiver(form="frames") as receiver,
        committing(receiver.address[1], tmp_path) as committer,
    ):
        tokens = job.tokens(0, 3)
        for _ in range(2):
            committer.commit(commit_of(0), tokens)
        committer.commit(commit_of(1), [None, None])
        committer.commit(commit_of(2), job.tokens(2, 3))
        assert receiver.wait_for(12, SECONDS)
        until(lambda: committer.status().committed_batch == 2)
        assert receiver.payloads == job.expected


def test_killing_the_egress_again_and_again_neither_loses_nor_repeats_a_byte(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with (
        Receiver(form="frames") as receiver,
        committing(receiver.address[1], tmp_path) as committer,
    ):
        for batch in range(8):
            committer.commit(commit_of(batch), job.tokens(batch, 2000, size=1000))
            if batch % 2:
                kill(committer)
        assert receiver.wait_for(job.number, SECONDS)
        assert receiver.payloads == job.expected
        assert receiver.totals.connections <= 2  # the first egress may die before it began to send


POINTS = [
    "egress.send",
    "egress.sent",
    "egress.progress",
    "egress.report",
    "egress.hand_over",
    "egress.release",
    "egress.fsync",
    "egress.half_close",
]


# how often these are passed depends on how fast the receiver is
SELDOM = [("egress.hand_over", 4), ("egress.report", 4), ("egress.release", 4), ("egress.fsync", 4)]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 4])
def test_an_egress_killed_at_any_point_neither_loses_nor_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, nth: int
) -> None:
    job = Job(tmp_path, is_durable=True)
    with Receiver(form="frames") as receiver:
        monkeypatch.setenv("WALLAROO_FAULT", f"{point}:{nth}")
        with committing(receiver.address[1], tmp_path, is_durable=True) as committer:
            monkeypatch.delenv("WALLAROO_FAULT")
            first = committer.egress_pid
            for batch in range(4):
                committer.commit(commit_of(batch), job.tokens(batch, 3000))
            assert receiver.wait_for(job.number, SECONDS)
            until(lambda: committer.status().committed_batch == 3)
            if (point, nth) not in SELDOM and point != "egress.half_close":
                until(lambda: committer.egress_pid != first)
        assert receiver.payloads == job.expected


def test_a_slow_receiver_is_waited_for_while_the_egress_dies(tmp_path: Path) -> None:
    """The kernel's buffers are full and the place is inside an output when the egress is killed."""
    job = Job(tmp_path)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        committing(listener.getsockname()[1], tmp_path) as committer,
    ):
        committer.commit(commit_of(0), job.tokens(0, 300, size=80_000, tasks=1))
        peer, _ = listener.accept()
        left = [0]

        def is_stuck() -> bool:
            before, left[0] = left[0], committer.backlog()
            return 0 < left[0] == before < 24_000_000 - 100_000

        until(is_stuck)
        kill(committer)
        expected = sum(len(one) + 4 for one in job.expected)
        arrived = bytearray()
        with peer:
            peer.settimeout(SECONDS)
            while len(arrived) < expected:
                arrived += peer.recv(1 << 20)
        assert arrived == b"".join(frame(number, 80_000) for number in range(300))


def test_what_a_broken_connection_did_not_deliver_is_sent_again_from_a_whole_output(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        committing(listener.getsockname()[1], tmp_path) as committer,
    ):
        committer.commit(commit_of(0), job.tokens(0, 300, size=80_000, tasks=1))
        first, _ = listener.accept()
        first.settimeout(SECONDS)
        taken = first.recv(1000)
        assert len(taken) == 1000
        first.close()  # with bytes unread: a reset
        second, _ = listener.accept()
        with second:
            second.settimeout(SECONDS)
            arrived, last = bytearray(), frame(299, 80_000)
            while chunk := second.recv(1 << 20):
                arrived += chunk
                if arrived.endswith(last):
                    break
        (begin,) = struct.unpack_from(">Q", arrived, 4)
        is_whole = arrived == b"".join(frame(number, 80_000) for number in range(begin, 300))
        # not compared by pytest: its diff of 24 MB takes hours
        assert is_whole, f"{len(arrived)} bytes from output {begin} on"


def test_output_sent_into_a_connection_whose_receiver_left_goes_to_the_next_one(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with Receiver(form="frames") as first:
        port = first.address[1]
        stack = contextlib.ExitStack()
        committer = stack.enter_context(committing(port, tmp_path))
        committer.commit(commit_of(0), job.tokens(0, 5))
        assert first.wait_for(10, SECONDS)
        until(lambda: not list((tmp_path / "pending").iterdir()))
    job.expected.clear()
    with Receiver(port=port, form="frames") as second:
        committer.commit(commit_of(1), job.tokens(1, 5))
        assert second.wait_for(10, SECONDS)
        assert second.payloads == job.expected
        stack.close()


def test_a_receiver_that_only_stops_writing_still_gets_everything(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        committing(listener.getsockname()[1], tmp_path) as committer,
    ):
        peer, _ = listener.accept()
        with peer:
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(SECONDS)
            committer.commit(commit_of(0), job.tokens(0, 2, tasks=1))
            arrived = b""
            while len(arrived) < 2 * 68:
                arrived += peer.recv(1000)
        assert arrived == frame(0, 64) + frame(1, 64)


def test_the_next_run_sends_what_was_committed_and_had_not_left(tmp_path: Path) -> None:
    job, port = Job(tmp_path, is_durable=True), free_port()
    with committing(port, tmp_path, is_durable=True, drain=0) as committer:
        for batch in range(3):
            committer.commit(commit_of(batch), last := job.tokens(batch, 500))
        orphans = job.tokens(3, 500)
        del job.expected[-1000:]
    with (
        Receiver(port=port, form="frames") as receiver,
        committing(port, tmp_path, is_durable=True, last=2, tokens=last) as committer,
    ):
        job.number -= 1000
        committer.commit(commit_of(3), job.tokens(3, 500))
        assert receiver.wait_for(4000, SECONDS)
        assert receiver.payloads == job.expected
    assert all(token and not (tmp_path / token["file"]).exists() for token in orphans)


def test_an_application_that_stops_right_after_its_egress_was_killed_goes_on_exactly(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with Receiver(form="frames") as receiver:
        port = receiver.address[1]
        with committing(port, tmp_path, drain=0) as committer:
            committer.commit(commit_of(0), last := job.tokens(0, 20_000, size=1000))
            until(lambda: receiver.count > 1000)
            os.kill(committer.egress_pid, signal.SIGKILL)
        with committing(port, tmp_path, last=0, tokens=last):
            assert receiver.wait_for(job.number, SECONDS)
        assert receiver.payloads == job.expected


def test_a_driver_that_died_between_its_commit_and_the_sinks_commits_the_last_batch_again(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    with Receiver(form="frames") as receiver:
        with committing(receiver.address[1], tmp_path):
            pass
        for batch in range(3):
            tokens = job.tokens(batch, 50)
            for _ in range(2):  # recovered once, and once more after it was sent
                with committing(receiver.address[1], tmp_path, last=batch, tokens=tokens):
                    assert receiver.wait_for(job.number, SECONDS)
        assert receiver.payloads == job.expected


FAULTS = [
    "outbox.pending.write:2",
    "outbox.pending.fsync:2",
    "outbox.pending.rename:1",
    "outbox.pending.rename:3",
    "outbox.pending.remove:1",
]


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_killed_driver_leaves_an_outbox_that_the_next_one_finishes(
    tmp_path: Path, fault: str
) -> None:
    job = Job(tmp_path, is_durable=True)
    with Receiver(form="frames") as receiver:
        port = receiver.address[1]
        committed = []
        with Driver(port, tmp_path, fault) as driver:
            for batch in range(3):
                committed.append(job.tokens(batch, 4000))  # from here on it is in the checkpoint
                if not driver.commit(batch, committed[-1]):
                    break
        # a commit is forgotten only after what it named is listed as pending
        with committing(
            port, tmp_path, is_durable=True, retained=committed[-2:], last=batch
        ) as next_:
            next_.commit(commit_of(batch + 1), job.tokens(batch + 1, 10))
            assert receiver.wait_for(job.number, SECONDS)
        assert receiver.payloads == job.expected


def test_damaged_committed_output_stops_the_run_and_names_the_file(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with (
        Receiver(form="frames") as receiver,
        committing(receiver.address[1], tmp_path, drain=0) as committer,
    ):
        tokens = job.tokens(0, 1000)
        assert tokens[0] is not None
        (tmp_path / tokens[0]["file"]).write_bytes(b"WLOB")
        committer.commit(commit_of(0), tokens)
        until(lambda: "cut off" in committer.status().waiting_for)
        with pytest.raises(CheckpointError, match=tokens[0]["file"]):
            committer.commit(commit_of(1), [])


# -- resuming ------------------------------------------------------------------------------------


@contextlib.contextmanager
def resuming(port: int, saved: Path) -> Iterator[Receiver]:
    with saved.open("ab") as out:
        with Receiver(
            port=port, out=out, is_keeping=False, is_resuming=True, resume_at=saved.stat().st_size
        ) as receiver:
            yield receiver


def test_a_resuming_receiver_that_dies_with_bytes_unread_misses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    job, saved, port = Job(tmp_path), tmp_path / "saved", free_port()
    with committing(port, tmp_path / "outbox", resume=True) as committer:
        job.staging = tmp_path / "outbox"
        for batch in range(6):
            committer.commit(commit_of(batch), job.tokens(batch, 2000, size=800))
            with resuming(port, saved) as receiver:
                # and gone, in the middle of what is on its way
                assert receiver.wait_for(200_000, SECONDS)
                if batch % 2:
                    kill(committer)
        expected = b"".join(frame(number, 800) for number in range(job.number))
        size = saved.stat().st_size
        with resuming(port, saved) as receiver:
            assert receiver.wait_for(len(expected) - size, SECONDS)
            until(lambda: committer.backlog() == 0)
    assert saved.read_bytes() == expected


def test_what_a_resuming_receiver_never_confirmed_is_kept_when_the_egress_dies(
    tmp_path: Path,
) -> None:
    """Sockets took it all; then both ends of the connection went."""
    job, port = Job(tmp_path), free_port()
    with committing(port, tmp_path / "outbox", resume=True) as committer:
        job.staging = tmp_path / "outbox"
        with socket.create_server(("127.0.0.1", port)) as listener:
            committer.commit(commit_of(0), job.tokens(0, 20))
            unread, _ = listener.accept()
            unread.sendall(GREETING + OFFSET.pack(0))
            until(lambda: 0 in committer.status().sent_at_ns)
            kill(committer)
            unread.close()
        with resuming(port, tmp_path / "saved") as receiver:
            assert receiver.wait_for(job.number * len(frame(0, 64)), SECONDS)
            until(lambda: committer.backlog() == 0)
    assert (tmp_path / "saved").read_bytes() == b"".join(
        frame(number, 64) for number in range(job.number)
    )


def test_a_receiver_of_another_run_is_refused_and_the_status_says_why(tmp_path: Path) -> None:
    job = Job(tmp_path)
    with (
        Receiver(is_resuming=True, resume_at=1_000_000) as receiver,
        committing(receiver.address[1], tmp_path, resume=True, drain=0) as committer,
    ):
        committer.commit(commit_of(0), job.tokens(0, 5))
        until(lambda: "belongs to another run" in committer.status().waiting_for)
        assert receiver.payloads == []
