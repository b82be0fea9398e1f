"""Runs with a copy on a second host: killed at every point on both sides, and continued there."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl

import pytest

from tests.replication.hosts import HOST, WAIT_S, Hosts
from tests.replication.replicated_driver import expected
from tests.sampling import sampled
from tests.unit.ingress.test_tls import make_certificate
from tests.unit.spool.remote.conftest import Proxy
from wallaroo.network.tls_sockets import server_context

EVENTS = 300
TAKEN_OVER = 4


def test_a_lost_host_loses_nothing(hosts: Hosts) -> None:
    """Whatever was acknowledged, and every commit, is in the copy; a run on it continues."""
    replica = hosts.start_replica()
    run = hosts.start_run()
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.acknowledged > EVENTS // 2)
        hosts.lose_first_host(run)
        assert hosts.stop(replica) == 0
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


@pytest.mark.parametrize(
    "fault",
    sampled(
        ["replicator.compare:1", "replicator.whole:1", "replicator.append:6", "commit.after:6"],
        ["replicator.line:1", "replicator.sweep:2", "replicator.appended:6", "commit.before:6"],
    ),
)
def test_a_driver_that_is_killed_at_any_point_continues(hosts: Hosts, fault: str) -> None:
    """First on its own host, where the copy catches up, then, that host lost, on the copy."""
    replica = hosts.start_replica()
    killed = hosts.start_run(fault=fault)
    with hosts.sending(EVENTS):
        assert killed.wait(400) == -signal.SIGKILL
        run = hosts.start_run()
        hosts.until(lambda: hosts.acknowledged > EVENTS // 2)
        hosts.lose_first_host(run)
        hosts.stop(replica)
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


@pytest.mark.parametrize(
    "fault",
    sampled(
        ["replicator.appended:6"], ["commit.before:6", "replicator.append:6", "commit.after:6"]
    ),
)
def test_the_copy_continues_from_any_point_of_a_commit(hosts: Hosts, fault: str) -> None:
    """The folder of the killed driver may hold a commit that the copy lacks: nothing of it left."""
    replica = hosts.start_replica()
    killed = hosts.start_run(fault=fault)
    with hosts.sending(EVENTS):
        killed.wait(400)
        hosts.lose_first_host(killed)
        hosts.stop(replica)
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


@pytest.mark.parametrize("fault", ["spool.copy_sent:4", "spool.copied:4"])
def test_an_ingress_that_is_killed_acknowledges_what_the_copy_has(hosts: Hosts, fault: str) -> None:
    """Each ingress that is started again dies at the same point: the sender gets through."""
    replica = hosts.start_replica()
    run = hosts.start_run(fault=fault)
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.log("run").count("starting it again") > 1)
        hosts.lose_first_host(run)
        hosts.stop(replica)
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


@pytest.mark.parametrize(
    "fault",
    sampled(
        ["owner.adopt:1", "replica.answer:40", "replica.append:12", "replica.delete:3"],
        ["replica.written:20", "replica.rename:8", "replica.answer:3", "replica.rename:2"],
    ),
)
def test_a_replica_that_is_killed_at_any_point_catches_up(hosts: Hosts, fault: str) -> None:
    """Nothing is acknowledged meanwhile; afterwards the copy has all, and a run on it continues."""
    killed = hosts.start_replica(fault)
    run = hosts.start_run()
    with hosts.sending(EVENTS):
        assert killed.wait(400) == -signal.SIGKILL
        replica = hosts.start_replica()
        hosts.until(lambda: hosts.acknowledged > 2 * EVENTS // 3)
        hosts.lose_first_host(run)
        hosts.stop(replica)
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


def test_a_run_waits_for_its_copy_and_reports_that(hosts: Hosts) -> None:
    """Nothing is acknowledged or sent while the replica hangs; then everything continues."""
    replica = hosts.start_replica()
    hosts.start_run()
    hosts.send(EVENTS // 4)
    hosts.await_output(EVENTS // 4)
    replica.send_signal(signal.SIGSTOP)
    with hosts.sending(EVENTS):
        hosts.until(lambda: "acknowledgements, commits and output wait for" in hosts.log("run"))
        assert hosts.acknowledged == EVENTS // 4
        assert hosts.output() == expected(EVENTS // 4)
        replica.send_signal(signal.SIGCONT)
    hosts.await_output(EVENTS)
    hosts.until(lambda: "confirms again after" in hosts.log("run"))


def test_a_copy_that_is_new_gets_everything(hosts: Hosts) -> None:
    """The replica's disk is lost under a run; with its key, an empty folder takes its place."""
    replica = hosts.start_replica()
    run = hosts.start_run()
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.acknowledged > EVENTS // 3)
        hosts.kill(replica)
        key = (hosts.copy / "replica.key").read_bytes()
        shutil.rmtree(hosts.copy)
        hosts.copy.mkdir(mode=0o700)
        (hosts.copy / "replica.key").write_bytes(key)
        replica = hosts.start_replica()
        hosts.until(lambda: hosts.acknowledged > 2 * EVENTS // 3)
        hosts.lose_first_host(run)
        hosts.stop(replica)
        hosts.start_run(checkpoint=hosts.copy)
    hosts.await_output(EVENTS)


def test_a_folder_that_is_removed_under_its_replica_is_a_lost_disk(hosts: Hosts) -> None:
    """The replica ends with the way out; the run waits, and no run has taken over."""
    replica = hosts.start_replica()
    hosts.start_run()
    hosts.send(EVENTS // 4)
    hosts.await_output(EVENTS // 4)
    key = (hosts.copy / "replica.key").read_bytes()
    hosts.copy.rename(hosts.copy.with_name("elsewhere"))
    with hosts.sending(EVENTS):
        hosts.until(lambda: replica.poll() is not None)
        assert "holds the former replica.key" in hosts.log("replica")
        hosts.until(lambda: "acknowledgements, commits and output wait for" in hosts.log("run"))
        shutil.rmtree(hosts.copy, ignore_errors=True)  # what it wrote meanwhile
        hosts.copy.mkdir(mode=0o700)
        (hosts.copy / "replica.key").write_bytes(key)
        hosts.start_replica()
    hosts.await_output(EVENTS)


def test_a_leader_that_was_paused_learns_that_the_copy_was_continued(hosts: Hosts) -> None:
    """It is paused, the copy is taken over while its replica runs, and it wakes up: it is refused,
    whatever it had under way.
    """
    hosts.start_replica()
    run = hosts.start_run()
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.acknowledged > EVENTS // 3)
        run.send_signal(signal.SIGSTOP)
        hosts.port = hosts.ports[1]
        hosts.start_run("--take-over", checkpoint=hosts.copy)
        hosts.until(lambda: "ready after" in hosts.log("run"))
        run.send_signal(signal.SIGCONT)
        assert run.wait(400) == TAKEN_OVER
    hosts.await_output(EVENTS)


def test_a_standby_on_the_copy_takes_over_by_itself(hosts: Hosts) -> None:
    """The lease is in the copy, too: the first host is lost, and the second one continues."""
    hosts.start_replica()
    run = hosts.start_run()
    hosts.until(lambda: "ready after" in hosts.log("run"))
    hosts.start_run("--standby", checkpoint=hosts.copy)
    hosts.until(lambda: "standing by for process" in hosts.log("run"))
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.acknowledged > EVENTS // 3)
        hosts.lose_first_host(run)
    hosts.until(lambda: "taking over" in hosts.log("run"))
    hosts.await_output(EVENTS)


def test_a_standby_on_the_copy_ends_with_the_application(hosts: Hosts) -> None:
    hosts.start_replica()
    run = hosts.start_run()
    hosts.until(lambda: "ready after" in hosts.log("run"))
    standby = hosts.start_run("--standby", checkpoint=hosts.copy)
    hosts.until(lambda: "standing by for process" in hosts.log("run"))

    assert hosts.stop(run) == 0
    assert standby.wait(400) == 0


def test_a_run_that_was_replaced_by_its_copy_is_refused(hosts: Hosts) -> None:
    """The copy was continued, so the first host's folder is out of date, and the copy no copy."""
    replica = hosts.start_replica()
    run = hosts.start_run()
    hosts.send(40)
    hosts.kill(run)
    hosts.stop(replica)
    second = hosts.start_run(checkpoint=hosts.copy)
    hosts.send(80)
    hosts.await_output(80)
    hosts.stop(second)

    refused = hosts.start(["-m", "wallaroo", "replica", str(hosts.copy)])

    assert refused.wait(400) == 1
    assert "a run has continued from it" in hosts.log("command")


def test_a_first_host_that_comes_back_does_not_continue(hosts: Hosts) -> None:
    """Its run was killed and the copy taken over; the replica still runs, and refuses it."""
    hosts.start_replica()
    first = hosts.start_run()
    hosts.send(40)
    hosts.kill(first)
    hosts.port = hosts.ports[1]
    hosts.start_run("--take-over", checkpoint=hosts.copy)
    hosts.send(80)
    hosts.port = hosts.ports[0]

    back = hosts.start_run()

    assert back.wait(400) == TAKEN_OVER
    assert "was taken over" in hosts.log("run")
    hosts.await_output(80)


def test_a_run_on_older_data_is_refused(hosts: Hosts) -> None:
    """A backup of the first host's folder must not replace what the copy has acknowledged."""
    hosts.start_replica()
    run = hosts.start_run()
    hosts.send(40)
    hosts.stop(run)
    backup = shutil.copytree(hosts.check, hosts.folder / "backup")
    for events in (60, 80):
        run = hosts.start_run()
        hosts.send(events)
        hosts.stop(run)
    shutil.rmtree(hosts.check)
    backup.rename(hosts.check)

    older = hosts.start_run()

    assert older.wait(400) == TAKEN_OVER
    assert "is that of another run, whose epoch, 3, is not before this one's, 2" in hosts.log("run")


def test_a_full_disk_of_the_replica_is_waited_for(hosts: Hosts) -> None:
    """What it has no room for is not acknowledged; both logs name the disk."""
    with hosts.small_copy():
        hosts.start_replica()
        hosts.start_run()
        hosts.send(EVENTS // 4)
        ballast = hosts.fill_copy()
        with hosts.sending(EVENTS):
            hosts.until(lambda: "No space left on device" in hosts.log("run"))
            assert hosts.acknowledged < EVENTS
            assert hosts.log("replica").count("its disk refuses: [Errno 28]") == 1
            ballast.unlink()
        hosts.await_output(EVENTS)
        hosts.end()


def test_a_replica_refuses_another_checkpoint(hosts: Hosts) -> None:
    hosts.start_replica()
    run = hosts.start_run()
    hosts.until(lambda: "ready after" in hosts.log("run"))
    hosts.stop(run)
    shutil.rmtree(hosts.check)

    other = hosts.start_run()

    assert other.wait(400) == 1
    assert "is the copy of another checkpoint" in hosts.log("run")


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_who_listens_between_the_hosts_reads_nothing_if_the_replica_has_a_certificate(
    hosts: Hosts, is_encrypted: bool
) -> None:
    """Without one, which only loopback allows, the names of the copy's files are to be read."""
    if is_encrypted:
        own = make_certificate(hosts.folder, "replica")
        hosts.replica_options = f"--tls-cert={own.certificate}", f"--tls-key={own.key}"
    replica = hosts.start_replica()
    between = Proxy((HOST, hosts.replica_port))
    hosts.reached_port = between.address[1]
    run = hosts.start_run()
    hosts.send(40)
    hosts.await_output(40)

    assert between.connections > 0
    assert len(between.seen) > 1000
    assert (b"commits/" in between.seen) == (not is_encrypted)

    hosts.lose_first_host(run)
    hosts.stop(replica)
    between.close()
    hosts.start_run(checkpoint=hosts.copy)
    hosts.send(80)
    hosts.await_output(80)


def test_a_replica_with_another_certificate_than_the_keys_gets_nothing(hosts: Hosts) -> None:
    """What listens at the replica's address in its place has neither certificate nor secret."""
    own = make_certificate(hosts.folder, "replica")
    hosts.replica_options = f"--tls-cert={own.certificate}", f"--tls-key={own.key}"
    hosts.stop(hosts.start_replica())
    other = make_certificate(hosts.folder, "other")
    with socket.create_server((HOST, hosts.replica_port)) as listener:
        impostor = server_context(other).wrap_socket(listener, server_side=True)
        impostor.settimeout(WAIT_S)
        hosts.start_run()
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            impostor.accept()
        hosts.until(lambda: "which confirms nothing" in hosts.log("run"))
    assert hosts.acknowledged == 0
    assert hosts.output() == []


def test_a_stop_does_not_wait_for_a_copy_that_is_away(hosts: Hosts) -> None:
    replica = hosts.start_replica()
    hosts.stop(replica)
    run = hosts.start_run()
    hosts.until(lambda: "which confirms nothing" in hosts.log("run"))

    assert hosts.stop(run) == 0
