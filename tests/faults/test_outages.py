"""An outage is not silence: what waited while clients or the run itself were away is as if it had
come in time.  (Brokers: ``tests/connectors/kafka/test_kafka_outage.py``.)
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wallaroo
from tests.conformance.apps import outages
from tests.conformance.apps.outages import FIRST, THEN
from tests.conformance.runners import REPOSITORY
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.local_cluster.hosts import free_ports

Eventually = Callable[..., None]
LIMIT_S = 400.0


def frames(numbers: Iterable[int]) -> bytes:
    payloads = [event.encode() for event in outages.events(numbers)]
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


def pass_time(seconds: float) -> None:
    """Let an outage last: its length is the fault, nothing is waited for."""
    time.sleep(seconds)


@contextmanager
def running(application: wallaroo.Application, folder: Path) -> Iterator[Run]:
    options = RunOptions(checkpoint=folder / "state", status_address=None)
    run = Run(application, options, InProcessHost(2))
    run.start()
    try:
        yield run
    finally:
        run.stop()
        assert run.wait(400)
        assert run.exception is None


def test_what_a_client_kept_while_it_was_not_connected_is_not_late(
    tmp_path: Path, eventually: Eventually
) -> None:
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", "0", outages.word)
    with running(outages.sessions(source, tmp_path), tmp_path) as run:
        with socket.create_connection(run.addresses["in"]) as client:
            client.sendall(frames(FIRST))
            eventually(lambda: outages.has(tmp_path, FIRST), "the first came")
        pass_time(outages.OUTAGE_S)
        assert outages.has(tmp_path, FIRST), "no session has ended"
        with socket.create_connection(run.addresses["in"]) as client:
            client.sendall(frames(THEN))
            eventually(lambda: outages.is_whole(tmp_path), "one session of each key")


def processes_of(pid: int) -> list[int]:
    """A process and all that it began, as Linux lists them."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in processes_of(int(child)))]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_run_that_was_stopped_by_the_system_does_not_take_that_for_silence(
    tmp_path: Path, eventually: Eventually
) -> None:
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "wallaroo.cli.in_process", "--no-live"),
            *("--checkpoint", str(tmp_path / "state")),
            *("tests.conformance.apps.outages", str(port), str(tmp_path)),
        ],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
    )
    try:
        with connected(port, process) as client:
            client.sendall(frames(FIRST))
            eventually(lambda: outages.has(tmp_path, FIRST), "the first came")
            stopped = processes_of(process.pid)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            client.sendall(frames(THEN))
            pass_time(outages.OUTAGE_S)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            eventually(lambda: outages.is_whole(tmp_path), "one session of each key")
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def connected(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    """A connection to a run that is about to listen."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        assert process.poll() is None, "the run has ended"
        try:
            return socket.create_connection(("127.0.0.1", port), 1.0)
        except OSError:
            assert time.monotonic() < deadline, "not in time: it listens"
            time.sleep(0.05)
