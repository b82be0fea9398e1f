"""Workers of a resident cluster that are killed while no events flow, and who reports them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from wallaroo.monitoring.status_api.discovery import RunRecord, run_of
from wallaroo.processes.killed_workers import FOLDER, SPARKS_DAEMON
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
pytestmark = [pytest.mark.spark, pytest.mark.long]
APPLICATION = """
import wallaroo


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(line):
    return line.decode()


@wallaroo.key_extractor
def key(line):
    return line


@wallaroo.state_computation(state=dict)
def count(line, state):
    state["lines"] = state.get("lines", 0) + 1
    return f"{line} {state['lines']}"


@wallaroo.encoder
def encode(text):
    return text + "\\n"


def application_setup(args):
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", PORT, decode, framing="lines")
    counted = wallaroo.source("in", source).key_by(key).to(count)
    sink = wallaroo.FileSinkConfig("OUT", encode)
    return wallaroo.build_application("Quiet", counted.to_sink(sink))
"""
KEYS = range(20)  # enough for each task to own one


@dataclass
class Quiet:
    """A run that has processed ``rounds`` lines of each key, and has no input now."""

    process: subprocess.Popen[bytes]
    cluster: LocalCluster
    folder: Path
    port: int
    eventually: Eventually
    rounds: int = 0

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def record(self) -> RunRecord:
        record = run_of(self.folder / "checkpoint")
        assert record is not None, self.log
        return record

    def ask(self, path: str) -> str:
        """Return what the status server answers."""
        host, port = self.record.address
        headers = {"Authorization": f"Bearer {self.record.token}"} if self.record.token else {}
        request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        """Return the run's status."""
        return dict(json.loads(self.ask("/status")))

    def process_a_round(self) -> None:
        """Send a line of each key; wait until all counts up to now are there, each once."""
        self.rounds += 1
        lines = "".join(f"key{number}\n" for number in KEYS)
        self.eventually(lambda: self._sent(lines), "the source listens")
        counts = range(1, self.rounds + 1)
        right = sorted(f"key{number} {count}" for number in KEYS for count in counts)
        self.eventually(lambda: self._outputs() == right, f"{self.rounds} lines of each key")

    def _sent(self, lines: str) -> bool:
        assert self.process.poll() is None, self.log
        with (
            suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", self.port)) as client,
        ):
            client.sendall(lines.encode())
            return True
        return False

    def _outputs(self) -> list[str]:
        parts = (self.folder / "out").glob("part-*")
        return sorted(line for part in parts for line in part.read_text().splitlines())

    def worker(self, is_idle: bool) -> psutil.Process | None:
        """Return a process on worker-1 that has no task, or has one, as its file states."""
        for process in psutil.Process(self._worker_1()).children(recursive=True):
            with suppress(psutil.Error):  # one that ends meanwhile
                parent = process.parent()
                if parent is None or SPARKS_DAEMON not in parent.cmdline():
                    continue
                if any(Path(process.cwd(), FOLDER).glob(f"{process.pid}-*")) == is_idle:
                    return process
        return None

    def _worker_1(self) -> int:
        return next(one.pid for one in self.cluster.status().workers if one.name == "worker-1")

    def is_reported(self, count: int, line: str) -> bool:
        """Return whether log, status and metrics have ``count`` deaths, the last as ``line``."""
        return (
            self.log.count(line) == 1
            and self.status()["workers_killed"] == count
            and f"wallaroo_workers_killed_total {count}.0\n" in self.ask("/metrics")
        )


@contextmanager
def quiet_run(
    tmp_path: Path, eventually: Eventually, workers: int, cores: int, *options: str
) -> Iterator[Quiet]:
    """Run the application on a cluster, with a task for each of two cores."""
    (port,) = free_ports(1)
    code = APPLICATION.replace("PORT", str(port)).replace("OUT", str(tmp_path / "out"))
    (tmp_path / "application.py").write_text(code)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster.start(tmp_path / "cluster", workers, cores))
        log = stack.enter_context((tmp_path / "log").open("wb"))
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "wallaroo", "run", str(tmp_path / "application.py")),
                *("--master", cluster.url, "--host", "resident", "--tasks", "2", "--no-live"),
                *("--checkpoint", str(tmp_path / "checkpoint")),
                *("--conf", "spark.executor.memory=512m"),
                *options,
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        yield Quiet(process, cluster, tmp_path, port, eventually)


@pytest.fixture
def quiet(tmp_path: Path, eventually: Eventually) -> Iterator[Quiet]:
    with quiet_run(tmp_path, eventually, 1, 2) as run:
        yield run


def test_a_killed_worker_of_a_resident_cluster_is_reported_while_no_events_flow(
    quiet: Quiet, eventually: Eventually
) -> None:
    """At once if it holds a task; with the next batch on its host if it has none."""
    quiet.process_a_round()
    assert quiet.worker(is_idle=True) is None
    holder = quiet.worker(is_idle=False)
    assert holder is not None
    batches = quiet.status()["batches"]
    holder.kill()
    line = "was killed, or has ended; its tasks run again"
    eventually(lambda: quiet.is_reported(1, line), "the death of a worker that holds a task")
    assert quiet.status()["batches"] == batches, "nothing but the death caused the report"
    quiet.process_a_round()

    quiet.cluster.add_worker()  # one of the two tasks moves there
    eventually(lambda: len(quiet.status()["workers"]) == 2, "worker-2 joins")
    quiet.process_a_round()
    eventually(lambda: quiet.worker(is_idle=True), "a worker has no task")
    idle = quiet.worker(is_idle=True)
    assert idle is not None
    idle.kill()
    idle.wait()  # a batch that ends before would not find that it is gone
    quiet.process_a_round()
    line = "an idle worker process on worker-1 was killed; another one takes its place"
    eventually(lambda: quiet.is_reported(2, line), "the death of an idle worker")
    assert quiet.process.poll() is None, quiet.log
