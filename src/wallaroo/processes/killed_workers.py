"""Detection of Python workers that died unexpectedly.

They were killed, or a function of the application ended them.

Where it runs: Spark's daemon and driver.

On this machine Spark's daemon, the workers' parent, writes a line about each such worker to its
stderr, which the driver reads.  A worker that the daemon kills itself, because Spark no longer
needs it, is not counted, nor are those that end with the daemon.  On a cluster, whose daemons are
Spark's own, the driver learns of it from the log of Spark's scheduler, without process and signal,
and of an idle worker's death from later reports of its host (`idle_workers`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

LINE = b"wallaroo worker ended: process %d with %d\n"
_LINE = re.compile(rb"wallaroo worker ended: process (\d+) with (-?\d+)$")
OF_SPARK = (0, 1)  # the exit codes of Spark's own workers
_log = logging.getLogger("wallaroo.run")
_killed: list[int | str] = []  # processes, or hosts of a cluster, from all runs of this driver
_idle: set[str] = set()  # names of those that had no task; each is reported many times


class Deaths:
    """Deaths of a daemon's children.

    They died of others' signals, or by a call of ``os._exit``.

    ``report`` takes a process, and its exit code or, negated, signal.
    """

    def __init__(self, report: Callable[[int, int], None]):
        self._report = report
        self._expected: set[int] = set()
        self._is_over = False

    def kill(self, pid: int, number: int) -> None:
        """Send a signal like ``os.kill``, and expect it to end the process; 0 means all."""
        self._is_over |= pid == 0
        self._expected.add(pid)  # first: the end may be noticed immediately
        try:
            os.kill(pid, number)
        except OSError:
            self._expected.discard(pid)
            raise

    def signal(self, number: int, handler: Any) -> Any:
        """Set a handler like ``signal.signal``, but never ignore SIGCHLD.

        SIGINT ends a worker as SIGTERM does: Python's handler would raise inside a user's function.
        """
        if (number, handler) == (signal.SIGINT, signal.default_int_handler):
            handler = signal.SIG_DFL
        if (number, handler) == (signal.SIGCHLD, signal.SIG_IGN):
            handler = self._reap
        return signal.signal(number, handler)

    def _reap(self, *_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                is_expected = self._is_over or pid in self._expected
                self._expected.discard(pid)
                code = os.waitstatus_to_exitcode(status)
                if code not in OF_SPARK and not is_expected:
                    self._report(pid, code)


def report_deaths(daemon: ModuleType) -> None:
    """Have Spark's daemon write a line about each worker that was killed, or ended itself."""
    deaths = Deaths(_write)
    vars(daemon)["os"] = SimpleNamespace(**{**vars(os), "kill": deaths.kill})
    vars(daemon)["signal"] = SimpleNamespace(**{**vars(signal), "signal": deaths.signal})


def _write(pid: int, code: int) -> None:
    with contextlib.suppress(OSError):
        os.write(2, LINE % (pid, code))


def read_death(line: bytes) -> tuple[int, int] | None:
    """Return the process and the exit code that a line of the daemon's stderr reports.

    >>> read_death(LINE % (31467, -9)), read_death(b"other\\n")
    ((31467, -9), None)
    """
    words = _LINE.search(line)
    return (int(words[1]), int(words[2])) if words else None


def note_death(pid: int, code: int) -> None:
    """Log and count a worker that was killed, or ended itself."""
    if code < 0:
        _log.warning("worker process %d was killed (signal %d); its tasks run again", pid, -code)
    else:
        _log.warning("worker process %d has ended (exit code %d); its tasks run again", pid, code)
    _killed.append(pid)


def note_loss(host: str) -> None:
    """Log and count a worker of a cluster that was killed, or ended its process."""
    _log.warning("a worker process on %s was killed, or has ended; its tasks run again", host)
    _killed.append(host)


def note_idle_deaths(worker: str, names: Iterable[str]) -> None:
    """Log and count processes of a cluster's worker that were killed between two tasks."""
    for name in set(names) - _idle:
        _log.warning("an idle worker process on %s was killed; another one takes its place", worker)
        _idle.add(name)
        _killed.append(worker)


def killed() -> int:
    """Return the number of such workers since this process started."""
    return len(_killed)
