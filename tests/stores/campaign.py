"""``python -m tests.stores.campaign``: drivers that are killed, stopped and started at once, often.

``--killed N``: processes are killed at any moment, by turns on two machines, while a proxy before
the store loses answers, doubles requests, resets connections, answers 503 and 409, and takes 30 to
200 ms.  ``--started N``: two drivers begin at once, N times, every other time with ``--take-over``.
``--stopped N``: a driver is stopped (SIGSTOP) for ``--seconds``, another one takes over, the first
one continues.  ``--azure``: the same in Azurite.  ``--folder``: the same with a folder as the
checkpoint, without a proxy.

After each, every event has to have left once, in the order of its key.

Where it runs: a terminal.  Drivers are forked, so a start costs no imports.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.connectors.files.s3.server import environment_of, running_s3
from tests.faults.figures import report
from tests.server_process import ServerProcess
from tests.stores.azurite.server import azure_environment_of, running_azurite
from tests.stores.fault_proxy import ALL, NONE, Faults, running_proxy
from tests.stores.stored_driver import KEYS
from tests.stores.stored_driver import main as drive
from wallaroo.cli.main import EXIT_FAILED, EXIT_TAKEN_OVER

BAD = Faults(ALL.lost, ALL.duplicated, ALL.reset, ALL.busy, ALL.conflict, (0.03, 0.2))
ROUND = 10  # kills of one checkpoint
EVENTS = 800
ALIVE_S = (0.5, 6.0)
WAIT_S = 300.0
LOOK_S = 0.02


class Wrong(AssertionError):
    """Drivers of one checkpoint did what they must not."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A forked driver, and where its words go."""

    pid: int
    log: Path

    def code(self, seconds: float = WAIT_S) -> int:
        """Return the exit code; after ``seconds`` the driver is killed."""
        until = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return -signal.SIGKILL
            time.sleep(LOOK_S)


class Application:
    """One checkpoint, its input and its output."""

    def __init__(self, folder: Path, store: Store | None):
        folder.mkdir()
        self._folder = folder
        self._store = store
        self._place = f"{store.url}/{folder.name}" if store else str(folder / "state")
        self._starts = 0
        self.events = 0

    def grow(self, events: int) -> None:
        """Add input."""
        with (self._folder / "in.txt").open("a") as file:
            file.writelines(f"{each}\n" for each in range(self.events, self.events + events))
        self.events += events

    def start(self, machine: str, *options: str, pause_s: float = 0.0) -> Driver:
        """Start a driver with the cache of a machine."""
        self._starts += 1
        log = self._folder / f"driver-{self._starts}.log"
        pid = os.fork()
        if pid:
            return Driver(pid, log)
        code = 70
        try:
            if self._store:
                os.environ.update(self._store.environment(self._folder / machine))
            os.environ["STORED_PAUSE_S"] = str(pause_s)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            code = drive(str(self._folder), self._place, *options)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def lines(self) -> list[str]:
        """Return what has left."""
        file = self._folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []

    def require_exact(self) -> None:
        """Raise unless each event left once, in the order of its key."""
        counts: Counter[int] = Counter()
        lines = self.lines()
        for line in lines:
            event, count = map(int, line.split(" "))
            key = event % KEYS
            if (event, count) != (counts[key] * KEYS + key, counts[key] + 1):
                raise Wrong(f"{self._folder}: {line}")
            counts[key] += 1
        if len(lines) != self.events:
            raise Wrong(f"{self._folder}: {len(lines)} lines instead of {self.events}")

    def finish(self) -> None:
        """Let a driver process what is left; raise unless all is right."""
        driver = self.start("machine0", "--take-over")
        if code := driver.code():
            raise Wrong(f"ended with {code}: {driver.log.read_text()}")
        self.require_exact()


def kill(root: Path, store: Store | None, times: int, seed: int, until: float) -> Counter[str]:
    """Kill drivers at any moment; return how they ended."""
    chance = random.Random(seed)
    ends: Counter[str] = Counter()
    while ends["killed"] < times and time.monotonic() < until:
        application = Application(root / f"killed{ends['killed']}", store)
        for _ in range(ROUND):
            application.grow(EVENTS)
            driver = application.start(f"machine{chance.randrange(2)}", "--take-over")
            code = driver.code(chance.uniform(*ALIVE_S))
            raise_unless(code in (0, -signal.SIGKILL), driver)
            ends["killed" if code else "ended before"] += 1
        application.finish()
        print(f"killed: {dict(ends)}", file=sys.stderr)
    return ends


def raise_unless(is_right: bool, driver: Driver) -> None:
    """Raise SystemExit with what a driver wrote unless it is right."""
    if not is_right:
        raise SystemExit(f"{driver.log}: {driver.log.read_text()}")


def start_two(root: Path, store: Store | None, times: int, until: float) -> Counter[str]:
    """Start two drivers at once; return how the ones ended that did not end in order."""
    ends: Counter[str] = Counter()
    for number in range(times):
        if time.monotonic() > until:
            break
        application = Application(root / f"started{number}", store)
        application.grow(300)
        options = ("--take-over",) * (number % 2)
        both = [application.start(f"machine{machine}", *options) for machine in range(2)]
        codes = [driver.code() for driver in both]
        for code, driver in zip(codes, both, strict=True):
            raise_unless(code in (0, EXIT_FAILED, EXIT_TAKEN_OVER), driver)
        raise_unless(0 in codes, both[0])
        application.require_exact()
        refused = [code for code in codes if code]
        ends[f"ended with {refused[0]}" if refused else "one after the other"] += 1
        print(f"started: {number + 1}, {dict(ends)}", file=sys.stderr)
    return ends


def stop(root: Path, store: Store | None, times: int, seconds: float, until: float) -> Counter[str]:
    """Stop a driver while another one takes over; return how they ended."""
    ends: Counter[str] = Counter()
    application = Application(root / "stopped", store)
    for number in range(times):
        if time.monotonic() > until:
            break
        application.grow(EVENTS)
        before = len(application.lines())
        first = application.start(f"machine{number % 2}", "--take-over", pause_s=0.2)
        while len(application.lines()) == before:
            time.sleep(LOOK_S)
        os.kill(first.pid, signal.SIGSTOP)
        began = time.monotonic()
        second = application.start(f"machine{1 - number % 2}", "--take-over")
        raise_unless(second.code() == 0, second)
        application.require_exact()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        os.kill(first.pid, signal.SIGCONT)
        code = first.code()
        raise_unless(code == EXIT_TAKEN_OVER, first)
        application.require_exact()
        ends[f"ended with {code}"] += 1
        print(f"stopped: {number + 1}", file=sys.stderr)
    return ends


class Store:
    """A store behind a proxy, in a process of its own: the one that forks has no threads."""

    def __init__(self, root: Path, is_azure: bool, faults: Faults, seed: int):
        self.url = "az://container" if is_azure else "s3://bucket"
        self._environment_of = azure_environment_of if is_azure else environment_of
        (root / "store" / "data" / "bucket").mkdir(parents=True)
        running = running_azurite(root / "store") if is_azure else running_s3(root / "store")
        here, there = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            here.close()
            try:
                self._serve(running, faults, seed, there)
            finally:
                os._exit(0)
        there.close()
        self._socket = here
        self.port = int(here.recv(64))

    @staticmethod
    def _serve(
        running: AbstractContextManager[ServerProcess],
        faults: Faults,
        seed: int,
        asked: socket.socket,
    ) -> None:
        with running as server, running_proxy(server.port, faults, seed) as proxy:
            asked.send(b"%d" % proxy.port)
            asked.recv(1)
            asked.send(json.dumps(proxy.counts).encode())

    def environment(self, cache: Path) -> dict[str, str]:
        """Return the variables of a machine."""
        return self._environment_of(self.port, cache)

    def end(self) -> dict[str, int]:
        """End; return what became of the requests."""
        self._socket.send(b"e")
        counts: dict[str, int] = json.loads(self._socket.recv(4096))
        os.waitpid(self._pid, 0)
        return counts


def main(arguments: list[str]) -> int:
    """Do what the arguments state; 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.stores.campaign")
    add = parser.add_argument
    add("--killed", type=int, default=0, metavar="N", help="processes to kill")
    add("--started", type=int, default=0, metavar="N", help="times that two drivers begin")
    add("--stopped", type=int, default=0, metavar="N", help="times that a driver is stopped")
    add("--seconds", type=float, default=30.0, help="that it is stopped (default %(default)g)")
    add("--azure", action="store_true", help="checkpoints are in Azurite, not in S3Proxy")
    add("--folder", action="store_true", help="checkpoints are folders")
    add("--seed", type=int, default=0)
    add("--minutes", type=float, default=1e6, help="after which nothing more is begun")
    add("--json", metavar="FILE", help="append the figures to this file, as a line of JSON")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    load = os.getloadavg()[0]
    faults = BAD if options.killed else NONE
    with tempfile.TemporaryDirectory(prefix="wallaroo-stores-") as name:
        root = Path(name)
        store = None if options.folder else Store(root, options.azure, faults, options.seed)
        try:
            until = began + 60 * options.minutes
            killed = kill(root, store, options.killed, options.seed, until)
            started = start_two(root, store, options.started, until)
            stopped = stop(root, store, options.stopped, options.seconds, until)
        finally:
            requests = store.end() if store else {}
    server = "Azurite 3.35.0" if options.azure else "S3Proxy 4.0.0"
    figures = {
        "storage": "folder" if options.folder else server,
        "killed": dict(killed),
        "two started": dict(started),
        "stopped for": options.seconds if options.stopped else 0,
        "stopped": dict(stopped),
        "requests": requests,
        "load": round(load, 1),
        "seconds": round(time.monotonic() - began),
    }
    report(figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
