"""``python -m tests.faults.owners``: drivers that contend for one checkpoint, many times.

``--started N``: two drivers begin at once, N times, each time with a checkpoint of their own; every
other time both with ``--take-over``.  ``--stopped N``: a driver is stopped (SIGSTOP) in the middle
of its work, another one takes over, the first one continues; N times with one checkpoint, so each
driver that took over is the next one to be stopped.  ``--stood-by N``: the driver that leads is
killed, or stopped and continued, while two others stand by; N times with one checkpoint.
``--cluster``: the last with ``wallaroo run`` on a cluster of Spark on this machine, one standby;
every third time all processes of the driver that leads are stopped, as if its host were cut off.

Where it runs: a terminal, or a test.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from tests.faults.figures import report
from tests.faults.owned_driver import NUMBERS
from wallaroo.cli.main import EXIT_FAILED, EXIT_TAKEN_OVER
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.processes.environment import python_environment
from wallaroo.processes.table import Process, identify, is_running, send, with_descendants
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.log.lease import read_lease

KEYS = 7  # with the first numbers
EVENTS = 300  # between two stops
FIRST = 50  # of them, before the fault: the first batch of a driver may take seconds
RATE = 300.0  # events a second
WAIT_S = 400.0
LOOK_S = 0.02
SENTENCE = "was taken over by epoch"
NONE_LEADS = "standing by for a run that leads"
APPLICATION = Path(__file__).with_name("owned_application.py")
SomeDrivers = TypeVar("SomeDrivers", bound="Drivers")


class Contention(AssertionError):
    """Two drivers of one checkpoint did what one of them must not."""


class Fault(Enum):
    """The end of a driver that leads, by name."""

    KILLED = "killed"
    HANGS = "hangs"
    CUT_OFF = "cut off"  # with its JVM and children: none of its host answers

    def strike(self, pid: int) -> list[Process]:
        """Do it to the driver ``pid``; return the processes to continue."""
        if self is Fault.KILLED:
            os.kill(pid, signal.SIGKILL)
            return []
        driver = [process for process in [identify(pid)] if process is not None]
        stopped = with_descendants(driver) if self is Fault.CUT_OFF else driver
        for process in stopped:
            send(process, signal.SIGSTOP)
        return stopped


@dataclass(frozen=True, slots=True)
class Pause:
    """The seconds from a fault to the lease of another driver, and to its first output.

    None if there was none to come.
    """

    fault: Fault
    lease_s: float
    output_s: float | None


ON_ONE_MACHINE = (Fault.KILLED, Fault.HANGS)


def wait_for(is_so: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            raise Contention(f"not in time: {what}")
        time.sleep(LOOK_S)


class Drivers:
    """Drivers of the checkpoint in ``folder``."""

    def __init__(self, folder: Path, host: str):
        self.folder = folder
        self.output = folder / "out.txt"
        self.ports = free_ports(2)
        self._host = host
        self._logs: dict[subprocess.Popen[bytes], Path] = {}

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more."""
        log = self.folder / f"driver-{len(self._logs)}.log"
        with log.open("w") as words:
            driver = subprocess.Popen(
                [sys.executable, "-m", *self._command(*options)],
                env=python_environment(),
                stdout=words,
                stderr=subprocess.STDOUT,
            )
        self._logs[driver] = log
        return driver

    def words(self, driver: subprocess.Popen[bytes]) -> str:
        """Return what a driver has printed."""
        return self._logs[driver].read_text()

    def _command(self, *options: str) -> list[str]:
        ports = map(str, self.ports)
        return ["tests.faults.owned_driver", str(self.folder), self._host, *ports, *options]

    def size(self) -> int:
        """Return the bytes of output."""
        return self.output.stat().st_size if self.output.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines of output."""
        return self.output.read_text().splitlines() if self.output.exists() else []

    def parts(self) -> list[str]:
        """Return the lines of the other sink, a folder."""
        parts = sorted((self.folder / "parts").glob("part-*"))
        return [line for path in parts for line in path.read_text().splitlines()]

    def require_end(self, driver: subprocess.Popen[bytes], *codes: int) -> int:
        """Wait for a driver's end; raise unless it is one of a run that does not own."""
        code = driver.wait(WAIT_S)
        if code not in codes:
            raise Contention(f"ended with {code}: {self.words(driver)}")
        if code == EXIT_TAKEN_OVER and SENTENCE not in self.words(driver):
            raise Contention(f"ended without the sentence: {self.words(driver)}")
        return code

    def require_exact(self, events: int, *, is_growing: bool = False) -> None:
        """Raise unless each event left once, in its key's order, with its count, to both sinks."""

        def written(lines: Callable[[], list[str]]) -> list[str]:
            wait_for(lambda: len(lines()) >= events, f"{events} events")
            return lines()[: events if is_growing else None]

        for lines in (self.lines, self.parts):
            require_in_order(written(lines), events)

    def send(self, events: int) -> threading.Thread:
        """Send all events up to a number under load; return the thread once a driver writes."""
        payloads = [f"key{event % KEYS} {event}".encode() for event in range(events)]
        sending = threading.Thread(
            target=send_acknowledged,
            args=(("127.0.0.1", self.ports[1]), "all", of_payloads(payloads)),
            kwargs={"rate": RATE, "connect_timeout_s": WAIT_S},
            daemon=True,
        )
        size = self.size()
        sending.start()
        wait_for(lambda: self.size() > size, "a driver writes")
        return sending

    def wait_standing_by(
        self, drivers: list[subprocess.Popen[bytes]], leader: subprocess.Popen[bytes]
    ) -> None:
        """Wait until all of these drivers have seen the one that leads."""
        self.wait_words(drivers, f"standing by for process {leader.pid} ")

    def wait_words(self, drivers: list[subprocess.Popen[bytes]], words: str) -> None:
        """Wait until all of these drivers have printed some words."""

        def have_printed() -> bool:
            return all(words in self.words(driver) for driver in drivers)

        wait_for(have_printed, f"others print '{words}'")

    def wait_leading(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait until a driver has the lease."""
        wait_for(lambda: self.leading([driver]), "the first driver leads")

    def wait_taken_over(
        self, fault: Fault, drivers: list[subprocess.Popen[bytes]], events: int
    ) -> Pause:
        """Wait until one of these drivers leads, and all events have left; return the pause."""
        began = time.monotonic()
        size = self.size()
        is_to_come = len(self.lines()) < events
        wait_for(lambda: self.leading(drivers), "a standby leads")
        lease_s = time.monotonic() - began
        wait_for(lambda: self.size() > size or not is_to_come, "it writes")
        output_s = time.monotonic() - began if is_to_come else None
        wait_for(lambda: len(self.lines()) >= events, "all events")
        return Pause(fault, lease_s, output_s)

    def leading(self, drivers: list[subprocess.Popen[bytes]]) -> list[subprocess.Popen[bytes]]:
        """Return the one of these drivers that has the lease, if it is one."""
        lease = read_lease(self.folder / "state")
        return [driver for driver in drivers if lease is not None and driver.pid == lease.pid]

    def tasks(self) -> list[Process]:
        """Return the processes that run tasks elsewhere."""
        return []

    def end(self) -> None:
        """Kill those that are left."""
        left = [driver for driver in self._logs if driver.poll() is None]
        for driver in left:
            driver.kill()
            driver.wait()
            print(f"{driver.pid}: {self.words(driver)}", file=sys.stderr)


class ClusterDrivers(Drivers):
    """Drivers by the command, on a cluster of Spark."""

    def __init__(self, folder: Path, host: str, cluster: LocalCluster):
        super().__init__(folder, host)
        self._cluster = cluster

    def _command(self, *options: str) -> list[str]:
        events, acknowledged = self.ports
        return [
            *("wallaroo", "run", str(APPLICATION), str(self.folder), str(events)),
            *("--checkpoint", str(self.folder / "state"), "--host", self._host, "--no-live"),
            *("--acknowledged", f"Events={acknowledged}"),
            *("--master", self._cluster.url, "--conf", "spark.executor.memory=512m", *options),
        ]

    def tasks(self) -> list[Process]:
        workers = [identify(worker.pid) for worker in self._cluster.status().workers]
        found = [process for process in workers if process is not None]
        return [process for process in with_descendants(found) if process not in found]


def drivers_in(folder: Path, host: str) -> contextlib.AbstractContextManager[Drivers]:
    """Make drivers of a checkpoint in ``folder``; none is left at the end."""
    return ending(Drivers(folder, host))


@contextlib.contextmanager
def ending(drivers: SomeDrivers) -> Iterator[SomeDrivers]:
    """End those that are left."""
    try:
        yield drivers
    finally:
        drivers.end()


def ms(seconds: float | None) -> int | None:
    """Return seconds in milliseconds."""
    return None if seconds is None else round(seconds * 1e3)


def require_in_order(lines: list[str], events: int) -> None:
    """Raise unless these are so many events, those of each key in order, with its counts."""
    if len(lines) != events:
        raise Contention(f"{len(lines)} lines instead of {events}")
    counts: Counter[str] = Counter()
    for line in lines:
        key, event, count = line.split(" ")
        expected = int(key.removeprefix("key")) + KEYS * counts[key]
        counts[key] += 1
        if (int(event), int(count)) != (expected, counts[key]):
            raise Contention(f"{line} instead of {key} {expected} {counts[key]}")


def start_two(folder: Path, host: str, *options: str) -> int:
    """Start two drivers at once; return the exit code of the one that does not continue."""
    with drivers_in(folder, host) as drivers:
        both = [drivers.start("--numbers", *options) for _ in range(2)]
        wait_for(lambda: any(driver.poll() is not None for driver in both), "one of two ends")
        wait_for(lambda: len(drivers.lines()) >= NUMBERS, "the other one continues")
        ended = [driver for driver in both if driver.poll() is not None]
        if len(ended) != 1:
            raise Contention(f"{len(ended)} of two ended: {[drivers.words(one) for one in both]}")
        code = drivers.require_end(ended[0], EXIT_FAILED, EXIT_TAKEN_OVER)
        drivers.require_exact(NUMBERS, is_growing=True)
        return code


def stop_and_continue(folder: Path, host: str, times: int) -> None:
    """Stop a driver while another one takes over, ``times`` times; raise what goes wrong."""
    with drivers_in(folder, host) as drivers:
        current = drivers.start()
        for number in range(1, times + 1):
            events = number * EVENTS
            sending = drivers.send(events)
            os.kill(current.pid, signal.SIGSTOP)
            stopped, current = current, drivers.start("--take-over")
            wait_for(lambda events=events: len(drivers.lines()) >= events, "the next one writes")
            os.kill(stopped.pid, signal.SIGCONT)
            drivers.require_end(stopped, EXIT_TAKEN_OVER)
            sending.join(WAIT_S)
            drivers.require_exact(events)
            print(f"stopped and continued: {number}", file=sys.stderr)


def stand_by(
    drivers: Drivers,
    times: int,
    faults: tuple[Fault, ...] = ON_ONE_MACHINE,
    standbys: int = 2,
    options: tuple[str, ...] = ("--standby",),
) -> list[Pause]:
    """Let a fault befall the driver that leads, ``times`` times, while others stand by.

    Return how long each time took.  Raise what is wrong.
    """
    pauses: list[Pause] = []
    others = [drivers.start(*options) for _ in range(standbys)]
    drivers.wait_words(others, NONE_LEADS)  # before the leader, which needs all workers
    leader = drivers.start()
    drivers.wait_leading(leader)
    for number in range(1, times + 1):
        drivers.wait_standing_by(others, leader)
        events = number * EVENTS
        drivers.send(events - EVENTS + FIRST).join(WAIT_S)
        sending = drivers.send(events)
        held = drivers.tasks()
        fault = faults[(number - 1) % len(faults)]
        stopped = fault.strike(leader.pid)
        pauses.append(drivers.wait_taken_over(fault, others, events))
        wait_for(lambda held=held: not any(map(is_running, held)), "tasks of the former one end")
        for process in stopped:
            send(process, signal.SIGCONT)
        is_killed = fault is Fault.KILLED
        drivers.require_end(leader, -signal.SIGKILL if is_killed else EXIT_TAKEN_OVER)
        sending.join(WAIT_S)
        drivers.require_exact(events)
        (leader,) = drivers.leading(others)
        others = [other for other in others if other is not leader]
        for other in [*others]:
            if other.poll() is not None:  # it led, and a busy machine kept its lease still
                drivers.require_end(other, EXIT_TAKEN_OVER)
                others.remove(other)
        others += [drivers.start(*options) for _ in range(standbys - len(others))]
        print(f"stood by: {number}, {pauses[-1]}", file=sys.stderr)
    drivers.wait_standing_by(others, leader)
    leader.terminate()
    for driver in (leader, *others):  # a stop in order is not taken over
        drivers.require_end(driver, 0)
    return pauses


def stood_by(folder: Path, host: str, times: int, on_cluster: bool) -> list[Pause]:
    """Do as `stand_by`, in one process each or on a cluster."""
    if not on_cluster:
        with drivers_in(folder, host) as drivers:
            return stand_by(drivers, times)
    with (
        LocalCluster.start(folder / "cluster", workers=2, cores=1) as cluster,
        ending(ClusterDrivers(folder, host, cluster)) as drivers,
    ):
        return stand_by(drivers, times, tuple(Fault), standbys=1)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.owners")
    add = parser.add_argument
    add("--started", type=int, default=20, metavar="N", help="times that two drivers begin")
    add("--stopped", type=int, default=5, metavar="N", help="times that a driver is stopped")
    add("--stood-by", type=int, default=0, metavar="N", help="times that a standby takes over")
    add("--cluster", action="store_true", help="those on a cluster of Spark")
    add("--host", default="resident", choices=("resident", "micro-batch"), help="kind of commits")
    add("--json", metavar="FILE", help="append the figures to this file, as a line of JSON")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    load = os.getloadavg()[0]
    codes: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="wallaroo-owners-") as root:
        for number in range(options.started):
            both = ("--take-over",) * (number % 2)
            folder = Path(root, str(number))
            folder.mkdir()
            codes[start_two(folder, options.host, *both)] += 1
            print(f"two started: {number + 1}, ended with {dict(codes)}", file=sys.stderr)
        if options.stopped:
            stop_and_continue(Path(root), options.host, options.stopped)
        pauses: list[Pause] = []
        if options.stood_by:
            folder = Path(root, "standby")
            folder.mkdir()
            pauses = stood_by(folder, options.host, options.stood_by, options.cluster)
    figures = {
        "host": f"{options.host}, cluster" if options.cluster else options.host,
        "started": options.started,
        "refused": codes[EXIT_FAILED],
        "taken over": codes[EXIT_TAKEN_OVER],
        "stopped": options.stopped,
        "stood by": options.stood_by,
        "longest without a leader, ms": ms(max((each.lease_s for each in pauses), default=0.0)),
        "without output, ms": {
            fault.value: [ms(each.output_s) for each in pauses if each.fault is fault]
            for fault in Fault
        },
        "load": round(load, 1),
        "seconds": round(time.monotonic() - began),
    }
    report(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
