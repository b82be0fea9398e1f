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
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
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


SPARKS_DAEMON = "pyspark.daemon"
FOLDER = "wallaroo-idle"  # in the executor's folder, into which Spark has fetched the application
_mark: Path | None = None  # none on this machine, whose daemon detects all deaths


def report_idle_deaths() -> None:
    """Arrange that this worker's death is reported, if its parent is Spark's own daemon.

    Spark replaces such a worker without a line in any log. So a worker that waits for a task keeps
    a file with its process id in its executor's folder. It removes the file when a task begins, and
    when it ends because Spark no longer needs it. So the file of a missing process means that it
    was killed. It stays: each later task there reports it by name, so that the driver learns of the
    death even if an attempt fails, and counts it once. A worker that is killed during a task has no
    file: Spark's scheduler reports it. One that is killed before beginning a task that Spark has
    sent it also has a file, and may be reported twice: one death too many is better than a missed
    one.
    """
    global _mark
    main = sys.modules["__main__"]
    program = getattr(main, "__spec__", None)
    if _mark is not None or program is None or program.name != SPARKS_DAEMON:
        return
    _mark = Path.cwd() / FOLDER / f"{os.getpid()}-{secrets.token_hex(4)}"
    vars(main)["os"] = SimpleNamespace(**{**vars(os), "_exit": _leave})


def as_task(work: Callable[..., Iterable[Any]], index: int, rows: Iterable[Any]) -> Iterator[Any]:
    """Run ``work`` as a task of Spark; then this worker waits for the next one.

    A task that fails or is cancelled ends its worker, on Spark's request.
    """
    _unmark()
    yield from work(index, rows)
    if _mark is not None:
        with contextlib.suppress(OSError):
            _mark.parent.mkdir(exist_ok=True)
            _mark.touch()


def idle_deaths() -> tuple[str, ...]:
    """Return names of this executor's workers that were killed while idle, as of its start."""
    if _mark is None:
        return ()
    try:
        names = os.listdir(_mark.parent)
    except OSError:
        return ()
    return tuple(name for name in names if _is_gone(int(name.partition("-")[0])))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's process has the number now
    return False


def _unmark() -> None:
    if _mark is not None:
        with contextlib.suppress(OSError):
            _mark.unlink()


def _leave(code: int) -> None:
    _unmark()
    os._exit(code)
