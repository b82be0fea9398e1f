"""A standby: its view of the leader's lease, its copy of the state, and whom it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import PIPE
from unittest import mock

import pytest

from tests.unit.runtime import applications
from tests.unit.runtime.applications import new_run, until
from wallaroo.cli.run.text import log_line
from wallaroo.durable.ownership import VARIABLE
from wallaroo.errors import CheckpointError, InUseError, PeerError
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import SinkLine
from wallaroo.monitoring.status_api.discovery import register, run_of
from wallaroo.options import RunOptions
from wallaroo.processes.table import is_suspended, marked
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.runtime.standby import former_run as former_run_module
from wallaroo.runtime.standby.following import Follower, Repeated
from wallaroo.runtime.standby.former_run import TAKE_OVER_S, FormerRun, end_children
from wallaroo.runtime.standby.waiting import LeaderWatch, Seen, Standby, Turn, Verdict, owner_of
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit, CommitLog, DeltaRef
from wallaroo.state.log.delta import Entry, Origin, encode
from wallaroo.state.log.history import History
from wallaroo.state.log.lease import LEASE, Lease, LeaseHolder, process_place, read_lease
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views.environments import close_environments, open_environment
from wallaroo.state.views.view import View

AFTER_S = 3.0
GROUPS = 16
LEASE_OF_7 = Lease(7, "process 1 on a", place="elsewhere", beat=1)


def seen(epoch: int = 7, **changes: object) -> Seen:
    return Seen(epoch, replace(LEASE_OF_7, **changes))  # type: ignore[arg-type]  # its fields


def verdicts(*looks: tuple[Seen, float]) -> list[Verdict]:
    watch = LeaderWatch(AFTER_S)
    return [watch.look(one, now) for one, now in looks]


# -- what a standby makes of what it reads


def test_a_lease_that_moves_is_waited_for_whatever_its_numbers() -> None:
    """They only have to differ: the two hosts' clocks are never compared."""
    beats = (9, 3, 9, 3)
    looks = [(seen(beat=beat), 2.9 * number) for number, beat in enumerate(beats)]
    assert verdicts(*looks) == [Verdict.WAIT] * 4


def test_a_lease_that_has_not_moved_for_that_long_is_taken_over() -> None:
    looks = [(seen(), now) for now in (100.0, 102.9, 103.0)]
    assert verdicts(*looks) == [Verdict.WAIT, Verdict.WAIT, Verdict.TAKE_OVER]


def test_a_leader_of_this_machine_whose_process_is_gone_is_taken_over_at_once() -> None:
    assert verdicts((replace(seen(), is_gone=True), 0.0)) == [Verdict.TAKE_OVER]


@pytest.mark.parametrize("is_here", [True, False])
def test_a_process_is_looked_up_where_its_number_means_it(tmp_path: Path, is_here: bool) -> None:
    """One that waits to be reaped, too, has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    place = process_place() if is_here else "elsewhere"
    lease = Lease(checkpoint.claim.epoch, place=place, pid=process.pid)
    (checkpoint.root / LEASE).write_text(json.dumps(asdict(lease)))
    if is_here:
        until(lambda: owner_of(checkpoint.root).is_gone)
    process.wait()
    assert owner_of(checkpoint.root).is_gone == is_here


def test_an_application_that_was_stopped_while_a_standby_waited_is_left_alone() -> None:
    looks = [(seen(), 0.0), (seen(has_ended=True), 1.0), (seen(has_ended=True), 99.0)]
    assert verdicts(*looks) == [Verdict.WAIT, Verdict.END, Verdict.END]


def test_an_application_that_was_stopped_before_is_begun() -> None:
    assert verdicts((seen(has_ended=True), 0.0)) == [Verdict.BEGIN]
    assert verdicts((Seen(1), 0.0)) == [Verdict.BEGIN]  # only commands, or an earlier version


def test_a_folder_without_a_checkpoint_is_not_begun() -> None:
    """It may be a share that is not mounted yet: a second application would begin in it."""
    assert verdicts((Seen(), 0.0), (Seen(), 1e6)) == [Verdict.WAIT] * 2


def test_a_command_after_a_dead_leader_is_not_taken_over() -> None:
    """A claim without a lease: only the lock shows it, which `BEGIN` respects."""
    looks = [(seen(epoch=8), 0.0), (seen(epoch=8), AFTER_S)]
    assert verdicts(*looks) == [Verdict.WAIT, Verdict.BEGIN]


def test_a_standby_that_was_refused_tries_again_later() -> None:
    watch = LeaderWatch(AFTER_S)
    assert watch.look(seen(), 0.0) is Verdict.WAIT
    assert watch.look(seen(), 3.0) is Verdict.TAKE_OVER
    watch.refused(3.0)
    assert watch.look(seen(), 5.9) is Verdict.WAIT
    assert watch.look(seen(), 6.0) is Verdict.TAKE_OVER


# -- the lease


def test_a_run_that_was_taken_over_no_longer_writes_the_lease(tmp_path: Path) -> None:
    first = open_checkpoint(tmp_path / "state", is_durable=False)
    former = LeaseHolder(first.root, first.claim)
    former.start()
    second = open_checkpoint(first.root, is_durable=False, is_taking_over=True)
    leader = LeaseHolder(second.root, second.claim)
    leader.start()
    leader.close()
    before = read_lease(first.root)
    former.close()
    former.give_back()
    assert read_lease(first.root) == before
    assert before is not None
    assert before.epoch == second.claim.epoch


def test_a_lease_is_renewed_until_it_is_given_back(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    holder = LeaseHolder(checkpoint.root, checkpoint.claim, renew_s=0.01)
    holder.start()
    first = read_lease(checkpoint.root)
    assert first is not None
    until(lambda: (read_lease(checkpoint.root) or first).beat > first.beat)
    holder.close()
    assert not (read_lease(checkpoint.root) or first).has_ended
    holder.give_back()
    ended = read_lease(checkpoint.root)
    assert ended is not None
    assert (ended.has_ended, ended.pid) == (True, os.getpid())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"epoch": 1, "what": 2}'])
def test_a_torn_lease_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LEASE).write_bytes(content)
    assert read_lease(tmp_path) is None


# -- the claim


def test_of_two_standbys_one_takes_over_and_the_other_changes_nothing(tmp_path: Path) -> None:
    leader = open_checkpoint(tmp_path / "state", is_durable=False)
    epoch, root = leader.claim.epoch, leader.root
    winner = open_checkpoint(root, is_durable=False, is_taking_over=True, after=epoch)
    lock = (root / "lock").stat().st_ino
    with pytest.raises(InUseError, match=r"claimed by another run \(epoch 2\) a moment ago"):
        open_checkpoint(root, is_durable=False, is_taking_over=True, after=epoch)
    assert (root / "lock").stat().st_ino == lock
    assert winner.owner.is_held
    with pytest.raises(CheckpointError, match="is in use by"):  # a run that does not take over
        open_checkpoint(root, is_durable=False)
    assert not leader.owner.is_held


# -- the state


def follower_of(root: Path, view: Path | None, key_groups: int = 128) -> Follower:
    return Follower(root, view, key_groups, Repeated(lambda: None, 1.0))


class Log:
    """The commits of a run, with one key group's entries."""

    def __init__(self, root: Path):
        self.root = root
        for folder in ("commits", "deltas", "owners"):
            (root / folder).mkdir(parents=True)
        self.storage = LocalStorage(str(root), is_durable=False)
        self.commits = CommitLog(self.storage)

    def write(self, batch: int, *entries: Entry) -> None:
        file = f"deltas/{batch}.delta"
        content, digest = encode(Origin("c", batch, file), {3: list(entries)})
        self.storage.publish(file, content)
        delta = DeltaRef(file, 0, GROUPS, len(content), len(entries), digest)
        self.commits.publish(Commit(batch, {}, (delta,), id=f"id {batch}"))


def test_a_copy_is_brought_from_commit_to_commit_and_is_the_view_of_tasks(tmp_path: Path) -> None:
    """Only what a commit has changed is applied."""
    log = Log(tmp_path / "state")
    follower = follower_of(log.root, tmp_path / "view", GROUPS)
    assert follower.last_batch is None
    follower.turn()
    assert (follower.last_batch, follower.ready_batch) == (-1, -1)
    log.write(0, Entry(1, b"a", b"1"), Entry(1, b"b", b"1"))
    follower.turn()
    (log.root / "deltas" / "0.delta").unlink()  # no longer needed: it was applied
    log.write(1, Entry(1, b"b", b"2"))
    follower.turn()
    assert (follower.last_batch, follower.ready_batch) == (1, 1)
    assert follower.close() == tmp_path / "view"
    view = View(tmp_path / "view", GROUPS, 0, GROUPS)
    done = view.catch_up(History(log.storage, (), 1, log.commits.read))
    assert (done.entries, view.entries(3)) == (0, [Entry(1, b"a", b"1"), Entry(1, b"b", b"2")])
    view.close()
    close_environments()


def test_a_copy_that_never_came_about_is_not_used(tmp_path: Path) -> None:
    assert follower_of(tmp_path, tmp_path / "view", GROUPS).close() is None


def test_an_end_does_not_wait_for_what_a_cancelled_task_has_left_open(tmp_path: Path) -> None:
    """The task wrote to the view after this standby began to lead; LMDB waits for its thread."""
    follower = follower_of(tmp_path, tmp_path / "view", GROUPS)
    follower.close()
    has_begun = threading.Event()
    is_over = threading.Event()

    def write() -> None:
        with open_environment(tmp_path / "view" / "00").environment.begin(write=True):
            has_begun.set()
            is_over.wait()

    task = threading.Thread(target=write, daemon=True)
    task.start()
    has_begun.wait()
    end = threading.Thread(target=follower.close, daemon=True)
    end.start()
    until(lambda: not end.is_alive())
    is_over.set()
    task.join()
    close_environments()


def test_a_follower_whose_files_were_deleted_stays_where_it_is(tmp_path: Path) -> None:
    follower = follower_of(tmp_path, tmp_path / "view")
    error = CheckpointError("the checkpoint lacks deltas/1")
    error.__cause__ = FileNotFoundError()
    with mock.patch.object(follower, "turn", side_effect=error):
        follower._try_turn()
    assert (follower.ready_batch, follower._trouble) == (-1, "")
    with mock.patch.object(follower, "turn", side_effect=PeerError("the disk is full")):
        follower._try_turn()
    assert follower._trouble == "the disk is full"


def test_a_standby_ends_with_what_ended_its_engine(tmp_path: Path) -> None:
    def warm() -> None:
        raise PeerError("Spark's JVM has gone")

    follower = Follower(tmp_path, None, 128, Repeated(warm, 1.0))
    follower.start()
    until(lambda: follower.error is not None)
    standby = Standby(tmp_path, AFTER_S, RunMeter("app", 0.0), follower)
    with pytest.raises(PeerError, match="JVM has gone"):
        standby.wait(threading.Event())


# -- whole runs


class Opened(InProcessHost):
    """A host that counts how often it was opened."""

    times = 0

    def open(self, site: object, enter: object) -> None:
        self.times += 1
        super().open(site, enter)  # type: ignore[arg-type]  # as given


@pytest.fixture
def leader(tmp_path: Path) -> Run:
    """A run that waits in its first event."""
    applications.GATE.clear()
    run = new_run(tmp_path, checkpoint=tmp_path / "state")
    run.begin()
    until(lambda: run.status().state == "running")
    return run


def standby_of(folder: Path, host: InProcessHost | None = None) -> Run:
    options = {"checkpoint": folder / "state", "standby_after_s": 60.0}
    run = new_run(folder, host, **options)
    run.begin()
    return run


def test_a_standby_of_an_application_that_is_stopped_ends_without_an_error(
    tmp_path: Path, leader: Run
) -> None:
    host = Opened()
    standby = standby_of(tmp_path, host)
    until(lambda: standby.status().standby is not None)
    status = standby.status()
    assert status.state == "standby"
    assert status.standby is not None
    assert status.standby.leader == f"process {os.getpid()} on {os.uname().nodename}"
    assert status.standby.epoch == 1
    assert "standby: process" in log_line(status)
    assert (tmp_path / "out.txt").exists() is False
    leader.stop()
    applications.GATE.set()
    assert leader.wait(400)
    assert standby.wait(400)
    assert (standby.exception, standby.status().state, host.times) == (None, "stopped", 1)


def test_a_standby_of_a_leader_that_failed_continues_in_its_place(
    tmp_path: Path, leader: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease no longer moves: it was not given back."""
    standby = standby_of(tmp_path, host := Opened())
    until(lambda: standby.status().standby is not None)
    monkeypatch.setattr(leader._spec.host, "poll", mock.Mock(side_effect=PeerError("no disk")))
    monkeypatch.setattr(
        "wallaroo.runtime.standby.waiting.identify", lambda pid: leader._thread.is_alive() or None
    )
    applications.GATE.set()
    assert leader.wait(400)
    assert standby.wait(400)
    assert (standby.exception, standby.status().state, host.times) == (None, "finished", 1)
    assert standby.status().epoch == 2
    assert (tmp_path / "out.txt").read_text() == (tmp_path / "in.txt").read_text()


def test_a_standby_that_is_stopped_ends_and_the_leader_does_not(
    tmp_path: Path, leader: Run
) -> None:
    standby = standby_of(tmp_path)
    until(lambda: standby.status().state == "standby")
    standby.stop()
    assert standby.wait(400)
    assert (standby.exception, standby.status().state) == (None, "stopped")
    assert leader.status().state == "running"
    applications.GATE.set()
    assert leader.wait(400)
    assert leader.exception is None


def test_a_standby_of_another_application_is_refused_before_it_waits(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    checkpoint.release()
    run = new_run(tmp_path, checkpoint=tmp_path / "state", standby_after_s=60.0)
    refusal = CheckpointError("checkpoint does not fit this application")
    with mock.patch("wallaroo.runtime.lifecycle.run.require_compatible", side_effect=refusal):
        run.begin()
        assert run.wait(400)
    assert run.exception is refusal


def test_a_standby_is_found_on_its_machine_and_not_in_the_checkpoint(tmp_path: Path) -> None:
    record = mock.Mock(pid=1, address=("127.0.0.1", 9))
    with (
        mock.patch("wallaroo.monitoring.status_api.discovery.asdict", return_value={}),
        mock.patch(
            "wallaroo.monitoring.status_api.discovery.folders", return_value=[tmp_path / "run"]
        ),
    ):
        registration = register(None, record)
    assert [file.parent for file in registration.files] == [tmp_path / "run"]
    assert run_of(tmp_path) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "Give it that checkpoint"),
        ({"checkpoint": "s3://bucket/c"}, "which must be a folder"),
        ({"checkpoint": Path("c"), "is_fresh": True}, "neither fresh"),
        ({"checkpoint": Path("c"), "is_taking_over": True}, "nor take-over"),
        ({"checkpoint": Path("c"), "standby_after_s": 0.4}, "at least 1 second"),
    ],
)
def test_options_that_no_standby_has_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RunOptions(**{"standby_after_s": 3.0, **options})  # type: ignore[arg-type]  # refused


def test_stopped_children_of_a_run_that_was_taken_over_are_killed_and_no_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They cannot leave by themselves, and hold the locks of spools."""
    claims = ("17:/state/owners/000000000001", "18:/state/owners/000000000002")
    former, other = (
        subprocess.Popen(
            [sys.executable, "-S", "-c", "input()"],
            stdin=subprocess.PIPE,
            env={**os.environ, VARIABLE: claim},
        )
        for claim in claims
    )
    until(lambda: {each.pid for each in marked(f"{VARIABLE}={claims[0]}")} == {former.pid})
    former.send_signal(signal.SIGSTOP)

    end_children(claims[0], leave_s=0.0)

    assert former.wait(10) == -signal.SIGKILL
    assert f"hang, and are killed: {former.pid}" in caplog.text
    assert other.poll() is None
    other.communicate(b"")


HOLDER = """
import socket, sys
held = socket.create_server(("127.0.0.1", 0))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def driver() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process in the place of a run's driver, and the port that it holds."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDER], stdin=PIPE, stdout=PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        yield process, int(process.stdout.readline())
    process.kill()
    process.wait()


def former_run(root: Path, pid: int, written_at: float) -> FormerRun:
    """Write the lease of a run on this machine; return the run."""
    (root / LEASE).write_text(json.dumps(asdict(Lease(7, place=process_place(), pid=pid))))
    os.utime(root / LEASE, (written_at, written_at))
    former = FormerRun.of(root)
    assert former is not None
    return former


def listening_at(port: int) -> Callable[[], None]:
    def begin() -> None:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            raise PeerError(str(error)) from error

    return begin


def test_a_suspended_driver_that_was_taken_over_is_killed_for_the_port_that_it_holds(
    tmp_path: Path, driver: tuple[subprocess.Popen[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    process, port = driver
    former = former_run(tmp_path, process.pid, time.time())
    process.send_signal(signal.SIGSTOP)
    former.once_free(lambda: None)
    assert process.poll() is None  # nothing needs its port

    former.once_free(listening_at(port), seconds=400)

    assert process.wait(400) == -signal.SIGKILL
    assert f"process {process.pid} is killed" in caplog.text


def test_what_a_run_that_was_taken_over_still_holds_is_named_with_that_run_and_its_host() -> None:
    former = FormerRun(Lease(7, owner="process 12 on host-a"), None)
    assert str(former.held(PeerError("the spool s is being written by another process."))) == (
        "the spool s is being written by another process. If processes of the run that was taken "
        "over, process 12 on host-a, hang and hold it, kill them on that host. Nothing is lost: "
        "run again."
    )


def test_a_suspended_driver_that_was_taken_over_is_killed_for_a_sink_that_keeps_waiting(
    tmp_path: Path, driver: tuple[subprocess.Popen[str], int], caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been suspended in a transaction, whose locks it holds: those of SQLite, say."""
    process, _ = driver
    former = former_run(tmp_path, process.pid, time.time())
    free = SinkLine("lines", "file lines", 0, "", 0)
    waiting = SinkLine("rows", "sqlite t", 0, "SQLite database (locked)", 9, waiting_since=100.0)
    former.free_sinks([free, waiting], 100.0 + TAKE_OVER_S)  # it runs
    process.send_signal(signal.SIGSTOP)
    until(lambda: former.driver is not None and is_suspended(former.driver))
    former.free_sinks([free, waiting], 100.0 + TAKE_OVER_S - 0.1)
    assert process.poll() is None

    former.free_sinks([free, waiting], 100.0 + TAKE_OVER_S)

    assert process.wait(400) == -signal.SIGKILL
    assert caplog.messages == [
        "the run that was taken over is suspended and may hold locks of what sink 'rows' waits "
        f"for: process {process.pid} is killed"
    ]


def test_a_driver_that_runs_is_waited_for(
    tmp_path: Path, driver: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = driver
    former = former_run(tmp_path, process.pid, time.time())
    assert process.stdin is not None
    with pytest.raises(PeerError):
        former.once_free(listening_at(port), seconds=0)
    process.stdin.close()

    former.once_free(listening_at(port), seconds=400)

    assert process.wait(400) == 0


def test_a_lease_that_can_no_longer_be_looked_at_names_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a share that stops answering once it was read."""
    lease = Lease(7, place=process_place(), pid=os.getpid())
    monkeypatch.setattr(former_run_module, "read_lease", lambda root: lease)
    assert FormerRun.of(tmp_path) == FormerRun(lease, None)


def test_a_later_process_with_the_drivers_number_is_left_alone(
    tmp_path: Path, driver: tuple[subprocess.Popen[str], int]
) -> None:
    """It began after the lease was written."""
    process, port = driver
    former = former_run(tmp_path, process.pid, time.time() - 3600)
    process.send_signal(signal.SIGSTOP)

    with pytest.raises(PeerError):
        former.once_free(listening_at(port), seconds=400)

    assert process.poll() is None


def test_a_turn_names_whom_it_replaces(tmp_path: Path) -> None:
    """The claim is the next one after that epoch, or none."""
    checkpoint = open_checkpoint(tmp_path / "state", is_durable=False)
    holder = LeaseHolder(checkpoint.root, checkpoint.claim)
    holder.start()
    holder.close()
    standby = Standby(checkpoint.root, 1.0, RunMeter("app", 0.0), follower_of(tmp_path, None))
    assert standby.wait(threading.Event()) == Turn(1, is_taking_over=True)
