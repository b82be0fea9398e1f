"""``python -m tests.faults.owners``: drivers that contend for one checkpoint, many times.

``--started N``: two drivers begin at once, N times, each time with a checkpoint of their own; every
other time both with ``--take-over``.  ``--stopped N``: a driver is stopped (SIGSTOP) in the middle
of its work, another one takes over, the first one continues; N times with one checkpoint, so each
driver that took over is the next one to be stopped.  ``--stood-by N``: the driver that leads is
killed, or stopped and continued, while two others stand by; N times with one checkpoint.

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
from pathlib import Path

from tests.faults.figures import report
from tests.faults.owned_driver import NUMBERS
from wallaroo.cli.main import EXIT_FAILED, EXIT_TAKEN_OVER
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.processes.environment import python_environment
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.log.lease import read_lease

EVENTS = 300  # between two stops
RATE = 300.0  # events a second
WAIT_S = 120.0
LOOK_S = 0.02
SENTENCE = "was taken over by epoch"


class Contention(AssertionError):
    """Two drivers of one checkpoint did what one of them must not."""


def wait_for(is_so: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    until = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > until:
            raise Contention(f"{what}: not within {WAIT_S:.0f} s")
        time.sleep(LOOK_S)


class Drivers:
    """Drivers of the checkpoint in ``folder``."""

    def __init__(self, folder: Path, host: str):
        self.folder = folder
        self.output = folder / "out.txt"
        self.ports = free_ports(2)
        self._host = host
        self._all: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start one more."""
        arguments = (str(self.folder), self._host, *map(str, self.ports), *options)
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.owned_driver", *arguments],
            env=python_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._all.append(driver)
        return driver

    def size(self) -> int:
        """Return the bytes of output."""
        return self.output.stat().st_size if self.output.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines of output."""
        return self.output.read_text().splitlines() if self.output.exists() else []

    def parts(self) -> bytes:
        """Return the output of the other sink, a folder."""
        parts = sorted((self.folder / "parts").glob("part-*"))
        return b"".join(path.read_bytes() for path in parts)

    def require_end(self, driver: subprocess.Popen[str], *codes: int) -> int:
        """Wait for a driver's end; raise unless it is one of a run that does not own."""
        output, _ = driver.communicate(timeout=WAIT_S)
        if driver.returncode not in codes:
            raise Contention(f"ended with {driver.returncode}: {output}")
        if driver.returncode == EXIT_TAKEN_OVER and SENTENCE not in output:
            raise Contention(f"ended without the sentence: {output}")
        return driver.returncode

    def require_exact(self, events: int, *, is_growing: bool = False) -> None:
        """Raise unless each event left once, in order, with the count of its key, to both sinks."""
        wait_for(lambda: len(self.lines()) >= events, f"{events} events")
        lines = self.lines()[: events if is_growing else None]
        if len(lines) != events:
            raise Contention(f"{len(lines)} lines instead of {events}")
        counts: Counter[str] = Counter()
        for number, line in enumerate(lines):
            key, event, count = line.split(" ")
            counts[key] += 1
            if (int(event), int(count)) != (number, counts[key]):
                raise Contention(f"line {number} is {line}")
        wait_for(lambda: self.parts().splitlines()[:events] == [*map(str.encode, lines)], "parts")

    def send(self, events: int) -> threading.Thread:
        """Send all events up to a number under load; return the thread once a driver writes."""
        payloads = [f"key{event % 7} {event}".encode() for event in range(events)]
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

    def wait_standing_by(self, drivers: list[subprocess.Popen[str]]) -> None:
        """Wait until all of these drivers have seen the one that leads."""
        marks = [self.folder / f"standby-{driver.pid}" for driver in drivers]
        wait_for(lambda: all(mark.exists() for mark in marks), "the others stand by")

    def leading(self, drivers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
        """Return the one of these drivers that has the lease, if it is one."""
        lease = read_lease(self.folder / "state")
        return [driver for driver in drivers if lease is not None and driver.pid == lease.pid]

    def end(self) -> None:
        """Kill those that are left."""
        for driver in self._all:
            driver.kill()
            if driver.stdout is not None and not driver.stdout.closed:
                print(f"{driver.pid}: {driver.communicate()[0]}", file=sys.stderr)


@contextlib.contextmanager
def drivers_in(folder: Path, host: str) -> Iterator[Drivers]:
    """Make drivers of a checkpoint in ``folder``; none is left at the end."""
    drivers = Drivers(folder, host)
    try:
        yield drivers
    finally:
        drivers.end()


def start_two(folder: Path, host: str, *options: str) -> int:
    """Start two drivers at once; return the exit code of the one that does not continue."""
    with drivers_in(folder, host) as drivers:
        both = [drivers.start("--numbers", *options) for _ in range(2)]
        wait_for(lambda: any(driver.poll() is not None for driver in both), "one of two ends")
        wait_for(lambda: len(drivers.lines()) >= NUMBERS, "the other one continues")
        ended = [driver for driver in both if driver.poll() is not None]
        if len(ended) != 1:
            raise Contention(f"{len(ended)} of two ended: {[one.communicate() for one in both]}")
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


def stand_by(folder: Path, host: str, times: int, options: tuple[str, ...] = ("--standby",)) -> int:
    """Kill or stop the driver that leads, ``times`` times, while two stand by; raise what is wrong.

    Return the longest time in milliseconds from the fault to the lease of another one.
    """
    longest_s = 0.0
    with drivers_in(folder, host) as drivers:
        leader = drivers.start()
        others = [drivers.start(*options) for _ in range(2)]
        for number in range(1, times + 1):
            drivers.wait_standing_by(others)
            sending = drivers.send(number * EVENTS)
            is_killed = bool(number % 2)
            os.kill(leader.pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
            began = time.monotonic()
            wait_for(lambda others=others: drivers.leading(others), "a standby leads")
            longest_s = max(longest_s, time.monotonic() - began)
            wait_for(lambda number=number: len(drivers.lines()) >= number * EVENTS, "all events")
            if not is_killed:
                os.kill(leader.pid, signal.SIGCONT)
            drivers.require_end(leader, -signal.SIGKILL if is_killed else EXIT_TAKEN_OVER)
            sending.join(WAIT_S)
            drivers.require_exact(number * EVENTS)
            (leader,) = drivers.leading(others)
            others = [other for other in others if other is not leader]
            for other in [*others]:
                if other.poll() is not None:  # it led, and a busy machine kept its lease still
                    drivers.require_end(other, EXIT_TAKEN_OVER)
                    others.remove(other)
            others += [drivers.start(*options) for _ in range(2 - len(others))]
            print(f"stood by: {number}, longest {longest_s:.1f} s", file=sys.stderr)
        drivers.wait_standing_by(others)
        leader.terminate()
        for driver in (leader, *others):  # a stop in order is not taken over
            drivers.require_end(driver, 0)
    return round(longest_s * 1e3)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.owners")
    add = parser.add_argument
    add("--started", type=int, default=20, metavar="N", help="times that two drivers begin")
    add("--stopped", type=int, default=5, metavar="N", help="times that a driver is stopped")
    add("--stood-by", type=int, default=0, metavar="N", help="times that a standby takes over")
    add("--host", default="resident", choices=("resident", "micro-batch"), help="kind of commits")
    add("--json", metavar="FILE", help="append the figures to this file, as a line of JSON")
    options = parser.parse_args(arguments)
    began = time.monotonic()
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
        longest_ms = 0
        if options.stood_by:
            folder = Path(root, "standby")
            folder.mkdir()
            longest_ms = stand_by(folder, options.host, options.stood_by)
    figures = {
        "host": options.host,
        "started": options.started,
        "refused": codes[EXIT_FAILED],
        "taken over": codes[EXIT_TAKEN_OVER],
        "stopped": options.stopped,
        "stood by": options.stood_by,
        "longest without a leader, ms": longest_ms,
        "seconds": round(time.monotonic() - began),
    }
    report(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
