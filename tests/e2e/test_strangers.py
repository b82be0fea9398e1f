"""Runs that are disturbed from outside: other users of the machine get nothing of a run or of a
cluster, and a worker that is killed is reported.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from tests import strangers
from tests.sampling import sampled
from tests.strangers import (
    CHUNK,
    RPC_RESPONSE,
    STREAM,
    Listening,
    answers_of,
    as_stranger,
    listening,
)
from wallaroo.cli.application.targets import as_target
from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.discovery import RunRecord, running
from wallaroo.processes.killed_workers import FOLDER
from wallaroo.spark.local_cluster import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]
START_S_MAX = 400.0
STRANGERS = 60  # at each port
REST_S = 1.0  # longer than between the levels of a batch
MARKER = "marked-event"
NO_SECRET = "Unknown challenge message"  # Spark's words
APPLICATION = """
import time

import wallaroo

class Endless:
    def initial_value(self):
        return "marked-event 0"

    def apply(self, text):
        time.sleep(0.002)
        return f"marked-event {int(text.split()[1]) + 1}"

@wallaroo.key_extractor
def last_digit(text):
    return text[-1]

@wallaroo.state_computation(state=dict)
def last(text, state):
    state["text"] = text
    return text

@wallaroo.encoder
def encode(text):
    return text

def application_setup(args):
    texts = wallaroo.source("in", wallaroo.GenSourceConfig("in", Endless()))
    sink = wallaroo.FileSinkConfig("OUT", encode)
    return wallaroo.build_application("App", texts.key_by(last_digit).to(last).to_sink(sink))
"""


@dataclass
class Victim:
    """A run under way, and the cluster that it is on."""

    process: psutil.Process
    log: Path
    record: RunRecord
    roots: list[psutil.Process]  # it, and the daemons of the cluster
    holds_workers: bool  # each worker process of its cluster has a task that stays

    @property
    def is_on_cluster(self) -> bool:
        return len(self.roots) > 1

    def ask(self, path: str) -> str:
        """Return what its status server answers."""
        host, port = self.record.address
        headers = {"Authorization": f"Bearer {self.record.token}"} if self.record.token else {}
        with urlopen(Request(f"http://{host}:{port}{path}", headers=headers)) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        """Return its status."""
        return dict(json.loads(self.ask("/status")))


HOSTS = {
    "micro-batch": ("--master", "local[2]", "--host", "micro-batch"),
    "low latency": ("--master", "local[2]", "--latency", "low"),
    "cluster": ("--host", "micro-batch"),
    "low latency on a cluster": ("--host", "resident"),  # its tasks listen to each other
}
# its workers have the blocks, and its tasks the ports, that each of the others has
CHOSEN = "low latency on a cluster"
OTHERS = [host for host in HOSTS if host != CHOSEN]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("cluster"), workers=1, cores=2) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=sampled([CHOSEN], OTHERS))
def victim(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("run")
    (folder / "application.py").write_text(APPLICATION.replace("OUT", str(folder / "out")))
    chosen = HOSTS[request.param]
    with ExitStack() as stack:
        cluster = None
        if "--master" not in chosen:
            cluster = request.getfixturevalue("cluster")
            chosen += ("--master", cluster.url)
        log = folder / "log"
        command = [sys.executable, "-m", "wallaroo", "run", str(folder / "application.py"), *chosen]
        with open(log, "wb") as out:
            process = subprocess.Popen(
                [*command, "--no-live", "--checkpoint", str(folder / "checkpoint")],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        record = _has_committed(process, log)
        daemons = [master_and_worker.pid for master_and_worker in _daemons(cluster)]
        roots = [psutil.Process(pid) for pid in (process.pid, *daemons)]
        yield Victim(roots[0], log, record, roots, "resident" in chosen)


def _daemons(cluster: LocalCluster | None) -> list[psutil.Process]:
    if cluster is None:
        return []
    status = cluster.status()
    return [psutil.Process(pid) for pid in (status.pid, *(one.pid for one in status.workers))]


def _has_committed(process: subprocess.Popen[bytes], log: Path) -> RunRecord:
    """Return where a run's status server is once batches have been committed."""
    end_s = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < end_s:
        for record in running():
            with suppress(PeerError):
                if record.pid == process.pid:
                    status = json.loads(as_target(record).ask("/status").body)
                    if status["batches"] > 3:
                        return record
        time.sleep(0.1)
    pytest.fail(f"not in time: {log.read_text()}")


def test_another_user_gets_no_block_no_event_and_no_deserialization(victim: Victim) -> None:
    ports, paths = listening(victim.roots)
    asked = {port for port in ports if port[1] != victim.record.address[1]}
    assert asked
    answers = as_stranger(lambda: strangers.said_to(sorted(asked)))
    assert len(answers) == len(asked) * len(strangers.requests())
    assert any(NO_SECRET in text for _, _, text, _ in answers)
    for port, request, text, _ in answers:
        place = f"{request} at port {port}: {text[:500]}"
        assert MARKER not in text, place
        assert "StreamCorrupted" not in text, place
        assert not {RPC_RESPONSE, CHUNK, STREAM} & set(answers_of(text.encode("latin-1"))), place
        assert not text.startswith("HTTP/1.1 200"), place
        if request == "py4j" and text.startswith("!"):
            assert "Authentication error" in text, place
    assert "StreamCorrupted" not in victim.log.read_text()
    assert as_stranger(lambda: strangers.reached(sorted(paths))) == []


def test_strangers_who_hold_connections_to_sparks_ports_do_not_stop_the_run(
    victim: Victim, eventually: Callable[..., None]
) -> None:
    """They say nothing, half a frame, or anything, before and after they have been refused."""
    ports, _ = listening(victim.roots)
    with ExitStack() as held:

        def hold(port: Listening) -> None:
            chance = random.Random(port[1])
            for number in range(STRANGERS):
                address = (port[0] or "127.0.0.1", port[1])
                stranger = held.enter_context(socket.create_connection(address, START_S_MAX))
                beginnings = b"", strangers.REQUESTS["a chunk"][:5], chance.randbytes(200)
                with suppress(OSError):
                    stranger.sendall(beginnings[number % len(beginnings)])

        with ThreadPoolExecutor(len(ports)) as pool:  # some take seconds to accept that many
            list(pool.map(hold, ports))
        done = victim.status()["events_done"]
        eventually(lambda: victim.status()["events_done"] > done, "it continues")
        assert victim.process.is_running(), victim.log.read_text()


DAEMONS = {"wallaroo.spark.session.worker_daemon", "pyspark.daemon"}


def _workers(victim: Victim) -> list[psutil.Process]:
    """Return the Python workers of a run, and their daemon's, on this machine."""
    for process in (one for root in victim.roots for one in root.children(recursive=True)):
        with suppress(psutil.Error):  # one that ends meanwhile
            if DAEMONS & set(process.cmdline()) and process.children():
                return list(process.children())
    return []


def _is_reported(victim: Victim, kill: Callable[[], str], eventually: Callable[..., None]) -> None:
    """Require that a worker's death is a line, in the status and a metric, and the run resumes."""
    count = victim.status()["workers_killed"] + 1
    before = len(victim.log.read_text())
    line = kill()
    eventually(lambda: line in victim.log.read_text()[before:], "the log has a line")
    eventually(lambda: victim.status()["workers_killed"] == count, "the status, too")
    assert f"wallaroo_workers_killed_total {count}.0\n" in victim.ask("/metrics")
    done = victim.status()["events_done"]
    eventually(lambda: victim.status()["events_done"] > done, "it continues")
    assert victim.status()["workers_killed"] == count


def test_a_killed_worker_is_a_line_in_the_log_in_the_status_and_a_metric(
    victim: Victim, eventually: Callable[..., None]
) -> None:
    if victim.is_on_cluster:
        pytest.skip("the next test has more to ask of a cluster")

    def kill() -> str:
        worker = _workers(victim)[0]
        worker.kill()
        return f"worker process {worker.pid} was killed (signal 9); its tasks run again"

    _is_reported(victim, kill, eventually)


@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "at work"])
def test_a_killed_worker_of_a_cluster_is_reported_whether_it_is_idle_or_at_work(
    victim: Victim, is_idle: bool, eventually: Callable[..., None]
) -> None:
    if not victim.is_on_cluster:
        pytest.skip("on one machine the workers' daemon reports all deaths")
    if is_idle and victim.holds_workers:
        pytest.skip("none is idle: tests/e2e/test_quiet_deaths.py has more tasks than that")
    (host,) = victim.status()["workers"]
    line = (
        f"an idle worker process on {host['name']} was killed; another one takes its place"
        if is_idle
        else "was killed, or has ended; its tasks run again"
    )

    def kill() -> str:
        worker = _idle(victim, eventually) if is_idle else _at_work(victim, eventually)
        worker.kill()
        victim.process.resume()
        return line

    _is_reported(victim, kill, eventually)


def _is_marked(worker: psutil.Process) -> bool:
    """Return whether a worker of a cluster states that it has no task."""
    return any(Path(worker.cwd(), FOLDER).glob(f"{worker.pid}-*"))


def _at_work(victim: Victim, eventually: Callable[..., None]) -> psutil.Process:
    """Suspend a worker that has a task; return it."""
    found: list[psutil.Process] = []

    def is_found() -> bool:
        for worker in _workers(victim):
            with suppress(psutil.NoSuchProcess):
                worker.suspend()
                while worker.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                    time.sleep(0.001)
                if not _is_marked(worker):
                    found.append(worker)
                    return True
                worker.resume()
        return False

    eventually(is_found, "a worker has a task")
    return found[0]


def _idle(victim: Victim, eventually: Callable[..., None]) -> psutil.Process:
    """Suspend the run, whose workers then end their tasks; return one that has none.

    For that its file is not enough: Spark may have sent it a task that it has not begun, and the
    death would be that of a worker at work, too.
    """
    victim.process.suspend()
    busy_s = [time.monotonic()]

    def is_at_rest() -> bool:
        with suppress(psutil.Error):  # one that ends meanwhile
            workers = _workers(victim)
            if workers and all(map(_is_marked, workers)):
                return time.monotonic() - busy_s[-1] > REST_S
        busy_s.append(time.monotonic())
        return False

    try:
        eventually(is_at_rest, "no worker has a task")
    except BaseException:
        victim.process.resume()
        raise
    return _workers(victim)[0]
