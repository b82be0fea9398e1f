"""A driver that is stopped, taken over and continued does nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.processes.environment import python_environment
from wallaroo.spark.local_cluster.hosts import free_ports

EVENTS = 3000
RATE = 600.0
WAIT_S = 120.0
Eventually = Callable[..., None]


class Drivers:
    """Drivers of one checkpoint."""

    def __init__(self, folder: Path, host: str):
        self.folder = folder
        self._host = host
        self.ports = free_ports(2)
        self.all: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        arguments = (str(self.folder), self._host, *map(str, self.ports), *options)
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.owned_driver", *arguments],
            env=python_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.all.append(driver)
        return driver

    def lines(self) -> list[str]:
        file = self.folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []

    def parts(self) -> bytes:
        return b"".join(
            path.read_bytes() for path in sorted((self.folder / "parts").glob("part-*"))
        )


@pytest.fixture(params=["micro-batch", "resident"], ids=["single commits", "segments"])
def drivers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Drivers]:
    made = Drivers(tmp_path, request.param)
    yield made
    for driver in made.all:
        driver.kill()
        driver.wait()


def test_a_stopped_driver_that_was_taken_over_does_nothing_more(
    drivers: Drivers, eventually: Eventually
) -> None:
    payloads = [f"key{number % 7} {number}".encode() for number in range(EVENTS)]
    sending = threading.Thread(
        target=send_acknowledged,
        args=(("127.0.0.1", drivers.ports[1]), "all", of_payloads(payloads)),
        kwargs={"rate": RATE, "connect_timeout_s": WAIT_S},
        daemon=True,
    )
    first = drivers.start()
    sending.start()
    eventually(lambda: len(drivers.lines()) > 100, "the first run writes")
    os.kill(first.pid, signal.SIGSTOP)
    before = len(drivers.lines())

    refused = drivers.start()
    assert refused.wait(WAIT_S) == 1
    drivers.start("--take-over")
    eventually(lambda: len(drivers.lines()) > before + 100, "the second run writes")
    os.kill(first.pid, signal.SIGCONT)

    output, _ = first.communicate(timeout=WAIT_S)
    assert first.returncode == 4
    assert "was taken over by epoch 2, process" in output
    eventually(lambda: len(drivers.lines()) >= EVENTS, "all is written")
    counts: Counter[str] = Counter()
    for line in drivers.lines():
        key, _, count = line.split(" ")
        counts[key] += 1
        assert int(count) == counts[key]
    assert sorted(int(line.split(" ")[1]) for line in drivers.lines()) == list(range(EVENTS))
    output_file = (drivers.folder / "out.txt").read_bytes()
    # a commit's output goes to one sink after the other
    eventually(lambda: drivers.parts() == output_file, "the folder has what the file has")
