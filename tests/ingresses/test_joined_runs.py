"""Ingresses on other hosts: killed, frozen, away for long, joining late and leaving."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from subprocess import Popen

import psutil
import pytest

from tests.ingresses.hosts import OWN, Ingresses
from tests.sampling import sampled
from tests.strangers import as_stranger
from tests.unit.ingress.test_tls import make_certificate
from wallaroo.cli.main import main
from wallaroo.spool import SpoolReader, folder_of, read_tail

EVENTS = 600
FAILED = 1


def kill_child(process: Popen[bytes], module: str) -> bool:
    """Kill the child of a process that runs a module; return whether there was one."""
    for each in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # nor a zombie
            if module in each.cmdline():
                each.kill()
                return True
    return False


def test_an_ingress_joins_a_run_under_load(hosts: Ingresses) -> None:
    """What both receive is processed once, in the order of each connection, and let go."""
    hosts.start_run()
    own = hosts.send_to(OWN, EVENTS)
    hosts.until(lambda: own.acknowledged > EVENTS // 4)
    hosts.joined("edge")
    hosts.send_to("edge", EVENTS).join()
    own.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)
    spool = folder_of(hosts.folder / "edge" / "spool", "in")
    hosts.until(lambda: read_tail(spool) == SpoolReader(spool).head().position)


@pytest.mark.parametrize("module", ["wallaroo.ingress", "wallaroo.spool.remote.server"])
def test_a_killed_process_of_an_ingress_is_started_again(hosts: Ingresses, module: str) -> None:
    """Its senders get through on the same port, and the run reads on."""
    hosts.start_run()
    edge = hosts.joined("edge")
    senders = hosts.send_to(OWN, EVENTS), hosts.send_to("edge", EVENTS)
    for share in (4, 2):
        hosts.until(lambda share=share: senders[1].acknowledged > EVENTS // share)
        hosts.until(lambda: kill_child(edge, module))  # it may be about to be started again
    for sender in senders:
        sender.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)
    hosts.until(lambda: "starting it again" in hosts.log("edge"))


def test_an_ingress_that_is_lost_for_a_while_holds_up_no_other(hosts: Ingresses) -> None:
    """The run processes the other's input meanwhile, says since when, and then takes the rest."""
    hosts.start_run()
    edge = hosts.joined("edge")
    own = hosts.send_to(OWN, EVENTS)
    sender = hosts.send_to("edge", EVENTS, rate=2000)
    hosts.until(lambda: sender.acknowledged > EVENTS // 4)
    hosts.kill(edge)
    own.join()
    hosts.await_streams(own=EVENTS)
    waiting = "WAITING source 'in': ingress 'edge' is disconnected"
    hosts.until(lambda: waiting in hosts.log("run"))
    assert ", since " in hosts.log("run")
    hosts.start_ingress("edge")
    sender.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)


def test_a_frozen_ingress_is_away(hosts: Ingresses) -> None:
    """A host that says nothing for long is as good as gone, and continues where it was."""
    hosts.start_run()
    edge = hosts.joined("edge")
    sender = hosts.send_to("edge", EVENTS)
    hosts.until(lambda: sender.acknowledged > EVENTS // 4)
    os.killpg(edge.pid, signal.SIGSTOP)
    frozen = psutil.Process(edge.pid).children(recursive=True)
    for each in frozen:
        each.suspend()
    hosts.until(
        lambda: "ingress 'edge' is disconnected: no sign of life for 5 s" in hosts.log("run")
    )
    own = hosts.send_to(OWN, EVENTS, rate=2000)
    own.join()
    hosts.await_streams(own=EVENTS)
    for each in frozen:
        each.resume()
    os.killpg(edge.pid, signal.SIGCONT)
    sender.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)


@pytest.mark.parametrize(
    "fault", sampled(["commit.before:5", "commit.after:1"], ["commit.after:5", "spool.tail:6"])
)
def test_a_killed_run_continues_with_all_its_ingresses(hosts: Ingresses, fault: str) -> None:
    """Senders of other hosts notice nothing; the next run takes what came meanwhile."""
    killed = hosts.start_run(fault=fault)
    hosts.start_ingress("edge")
    hosts.until(lambda: "edge" in hosts.ack_ports)
    senders = hosts.send_to(OWN, EVENTS), hosts.send_to("edge", EVENTS)
    assert killed.wait(400) == -signal.SIGKILL
    before = senders[1].acknowledged
    if "clients are served meanwhile" in hosts.log("edge").lower():
        hosts.until(lambda: senders[1].acknowledged > min(before, EVENTS - 1))
    hosts.start_run()
    for sender in senders:
        sender.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)


def test_everything_is_killed_at_once_again_and_again(hosts: Ingresses) -> None:
    """Run and both ingresses, in the middle of whatever they do."""
    hosts.start_run()
    hosts.start_ingress("edge")
    hosts.start_ingress("west")
    senders = [hosts.send_to(name, EVENTS, rate=300) for name in (OWN, "edge", "west")]
    for share in (6, 3, 2):
        hosts.until(
            lambda share=share: min(each.acknowledged for each in senders) > EVENTS // share
        )
        for process in hosts.running():
            hosts.kill(process)
        hosts.start_run()
        hosts.start_ingress("west")
        hosts.start_ingress("edge")
    for sender in senders:
        sender.join()
    hosts.await_streams(own=EVENTS, edge=EVENTS, west=EVENTS)


def test_an_ingress_that_was_stopped_and_a_run_that_was_stopped_continue(hosts: Ingresses) -> None:
    """Both end in order, the run without its ingress; later they find each other."""
    run = hosts.start_run()
    edge = hosts.joined("edge")
    hosts.send_to("edge", EVENTS).join()
    assert hosts.stop(edge) == 0
    assert hosts.stop(run) == 0
    hosts.start_run()
    own = hosts.send_to(OWN, EVENTS)
    own.join()
    hosts.await_streams(own=EVENTS)
    hosts.start_ingress("edge")
    hosts.await_streams(own=EVENTS, edge=EVENTS)


def test_a_made_again_folder_is_refused(hosts: Ingresses) -> None:
    """Under the same name, an empty folder is not the one that the commits know."""
    hosts.start_run()
    hosts.kill(hosts.joined("edge"))
    hosts.until(lambda: "'edge' is disconnected" in hosts.log("run"))
    shutil.rmtree(hosts.folder / "edge")
    assert hosts.start_ingress("edge").wait(400) == FAILED
    assert "ingress 'edge' has joined this run with another folder" in hosts.log("edge")


def test_a_spool_that_lacks_what_is_committed_is_refused(hosts: Ingresses) -> None:
    """The spool of a folder was deleted; its identity alone does not let it in."""
    hosts.start_run()
    edge = hosts.joined("edge")
    hosts.send_to("edge", 50).join()
    hosts.await_streams(edge=50)
    hosts.kill(edge)
    hosts.until(lambda: "'edge' is disconnected" in hosts.log("run"))
    shutil.rmtree(hosts.folder / "edge" / "spool")
    assert hosts.start_ingress("edge").wait(400) == FAILED
    assert "has committed 50 events, and its spool" in hosts.log("edge")
    hosts.until(lambda: "ingress 'edge' cannot join" in hosts.log("run"))


def test_a_lost_ingress_is_given_up_by_order_alone(hosts: Ingresses) -> None:
    """Its name is free again; what it was not read of is lost, and nothing else."""
    hosts.start_run()
    edge = hosts.joined("edge")
    hosts.send_to("edge", 50).join()
    hosts.await_streams(edge=50)
    refused = hosts.start([*hosts.command(), "--lost", "edge"])
    assert refused.wait(400) == FAILED
    assert "is connected" in hosts.log("command")
    hosts.kill(edge)
    hosts.until(lambda: "'edge' is disconnected" in hosts.log("run"))
    shutil.rmtree(hosts.folder / "edge")
    assert hosts.start([*hosts.command(), "--lost", "edge"]).wait(400) == 0
    hosts.joined("edge")
    hosts.send_to(OWN, EVENTS, rate=2000).join()
    hosts.await_streams(own=EVENTS, edge=50)


def test_an_ingress_leaves_once_all_it_received_is_processed(hosts: Ingresses) -> None:
    """Nothing of it is left out; its folder never joins again, and another one may."""
    run = hosts.start_run()
    edge = hosts.joined("edge")
    sender = hosts.send_to("edge", EVENTS)
    hosts.until(lambda: sender.acknowledged > EVENTS // 2)
    hosts.kill(edge)
    hosts.until(lambda: "'edge' is disconnected" in hosts.log("run"))
    acknowledged = sender.acknowledged
    assert hosts.start_ingress("edge", "--leave").wait(400) == 0
    assert "ingress 'edge' has left" in hosts.log("edge")
    hosts.until(lambda: "ingress 'edge' has left" in hosts.log("run"))
    done = len(hosts.lines_of("edge"))
    assert done >= acknowledged
    hosts.await_streams(edge=done)
    assert hosts.start_ingress("edge", "--leave").wait(400) == 0
    assert hosts.start_ingress("edge").wait(400) == FAILED
    assert "has left for good" in hosts.log("edge")
    assert hosts.stop(run) == 0
    hosts.start_run()
    hosts.joined("west")
    own = hosts.send_to(OWN, 50)
    own.join()
    hosts.await_streams(own=50, edge=done)


def test_a_wrong_key_is_refused(hosts: Ingresses) -> None:
    """The key of another run opens nothing."""
    hosts.start_run()
    wrong = hosts.folder / "wrong.key"
    hosts.until(hosts.key.exists)
    wrong.write_text('{"secret": "%s", "certificate": ""}' % ("00" * 32))
    assert hosts.start_ingress("edge", key=wrong).wait(400) == FAILED
    assert "is --key a copy of ingress.key" in hosts.log("edge")
    own = hosts.send_to(OWN, 50)
    own.join()
    hosts.await_streams(own=50)


def test_links_and_ranges_are_encrypted(hosts: Ingresses) -> None:
    """With certificates that sign themselves, one of the run and one of the ingress."""
    for name in ("driver", "edge-tls"):
        make_certificate(hosts.folder, name)
    hosts.start_run(f"--tls={hosts.folder}/driver")
    certificate = ["--tls-cert", f"{hosts.folder}/edge-tls.pem"]
    hosts.joined("edge", *certificate, "--tls-key", f"{hosts.folder}/edge-tls.key")
    hosts.send_to("edge", EVENTS).join()
    hosts.await_streams(edge=EVENTS)


def test_another_user_of_the_machine_reads_neither_key_nor_spool(hosts: Ingresses) -> None:
    """The key, the folder of an ingress and its range server are this user's alone."""
    if os.getuid() != 0:
        pytest.skip("another user needs root")
    hosts.start_run()
    hosts.joined("edge")
    paths = [str(hosts.key), str(hosts.folder / "edge" / "ingress.json")]
    assert as_stranger(lambda: [path for path in paths if os.access(path, os.R_OK)]) == []
    assert hosts.key.stat().st_mode & 0o077 == 0


def test_a_run_without_the_option_does_not_leave_input_behind(hosts: Ingresses) -> None:
    """It says what is missing, and continues with the option."""
    run = hosts.start_run()
    edge = hosts.joined("edge")
    hosts.send_to("edge", 50).join()
    hosts.await_streams(edge=50)
    hosts.stop(run)
    without = hosts.start_run(joins=False)
    assert without.wait(400) == FAILED
    assert "only a run with --ingress-listen can read" in hosts.log("run")
    hosts.start_run()
    own = hosts.send_to(OWN, 50)
    own.join()
    hosts.await_streams(own=50, edge=50)
    assert edge.poll() is None


def test_tools_refuse_what_would_leave_input_behind(
    hosts: Ingresses, capsys: pytest.CaptureFixture[str]
) -> None:
    """A savepoint cannot hold what is on other hosts; a check of the own spool continues."""
    run = hosts.start_run()
    hosts.joined("edge")
    hosts.send_to("edge", 50).join()
    hosts.await_streams(edge=50)
    hosts.stop(run)
    assert main(["state", "save", str(hosts.check), str(hosts.folder / "saved")]) == FAILED
    assert "ingresses on other hosts, too (edge)" in capsys.readouterr().err
    assert main(["state", "verify", str(hosts.check)]) == 0


def test_time_waits_for_an_ingress_that_is_away(hosts: Ingresses) -> None:
    """No window closes without its events, and none of them is late."""
    hosts.start_run("--windows")
    edge = hosts.joined("edge")
    hosts.send_to(OWN, 35, rate=2000).join()
    hosts.until(lambda: len(hosts.lines_of(OWN)) == 3)  # all that end by then
    edge.send_signal(signal.SIGSTOP)  # its ingress and range server continue
    hosts.until(lambda: "'edge' is disconnected" in hosts.log("run"))
    hosts.send_to("edge", 400, rate=2000).join()
    closed = hosts.lines_of(OWN)
    hosts.send_to(OWN, 400, rate=2000).join()
    time.sleep(1.0)
    assert hosts.lines_of(OWN) == closed
    edge.send_signal(signal.SIGCONT)
    hosts.until(lambda: len(hosts.lines_of(OWN)) >= 36)
    hosts.until(lambda: len(hosts.lines_of("edge")) >= 36)
    assert set(hosts.lines_of("edge")) == {"edge 10"}
    assert set(hosts.lines_of(OWN)) == {"own 10"}
    assert "are late" not in hosts.log("run")
