"""Termination of workers with their daemon, of Spark with its driver.

Where it runs: driver, Spark's daemon on this machine, and workers.

Spark ends a worker only through the daemon that forked it.  A worker whose daemon was killed would
remain: inside a user's function, busy with a task that was given to another worker meanwhile, or
idle.

The kernel ends it (Linux only; elsewhere workers behave as Spark has them).  On this machine that
is arranged right after the fork; a cluster's daemons are Spark's own, and their workers arrange it
when they get the first task of an application.  A worker without a daemon is left alone: it is a
child of a JVM's thread, and the end of that thread would count as the parent's death.

The JVM gets SIGHUP, not SIGKILL: it removes its temporary files and leaves its cluster in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

# modules that fork workers: our own on this machine, Spark's on clusters
OUR_DAEMON = "wallaroo.spark.session.worker_daemon"
DAEMONS = frozenset(["pyspark.daemon", OUR_DAEMON])
PR_SET_PDEATHSIG = 1  # see prctl(2)


def end_forks_with_this_process() -> None:
    """Make the kernel kill this process's forks together with it, but not their forks."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)  # nothing is loaded after the fork
    parent = os.getpid()
    is_parent = True

    def begin() -> None:
        nonlocal is_parent
        if is_parent:
            is_parent = False
            _end_with(parent, library)

    os.register_at_fork(after_in_child=begin)


def end_with_daemon(daemons: frozenset[str] = DAEMONS) -> None:
    """Make the kernel kill this process together with its parent, if that is one of ``daemons``."""
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if sys.platform != "linux" or program is None or program.name not in daemons:
        return
    parent = os.getppid()
    if _is_one_of(daemons, parent):
        _end_with(parent, ctypes.CDLL(None))
    else:
        _end()


def end_if_forked(process: int) -> None:
    """End this process at once if it is not ``process``.

    Then a function of the application forked it inside ``process``, and the fork returned from that
    function: it would run the task a second time.
    """
    if os.getpid() == process:
        return
    words = (
        f"a function of the application forked process {os.getpid()}, which returned from that "
        f"function into the task of process {process}, and is ended. End such a process with "
        "os._exit, or use the modules subprocess or multiprocessing.\n"
    )
    with contextlib.suppress(OSError):
        os.write(2, words.encode())
    os._exit(1)


def ending_with_this_process(prepare: Callable[[], None]) -> Callable[[], None]:
    """Return a function for a child to call before it executes its program.

    It calls ``prepare``; from then on the kernel sends the child SIGHUP when the thread that
    started it ends (Linux).
    """
    if sys.platform != "linux":
        return prepare
    library = ctypes.CDLL(None)
    parent = os.getpid()

    def begin() -> None:
        prepare()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a driver under nohup ignores it
        _end_with(parent, library, signal.SIGHUP)

    return begin


def from_lasting_thread(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process from a thread that ends after it.

    The kernel treats the end of the thread that started a process as the death of its parent.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def live() -> None:
        try:
            process = start()
        except BaseException as error:  # noqa: BLE001  # raised by the thread that waits
            started.set_exception(error)
            return
        started.set_result(process)
        if sys.platform == "linux":
            with contextlib.suppress(ChildProcessError):  # another thread has reaped it
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    threading.Thread(target=live, name="parent", daemon=True).start()
    return started.result()


def _end_with(parent: int, library: ctypes.CDLL, number: int = signal.SIGKILL) -> None:
    # if it is forbidden, the process stays under Spark's control
    library.prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # the parent died meanwhile
        _end()


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _is_one_of(modules: frozenset[str], pid: int) -> bool:
    """Return whether a process runs one of the modules; true if its command cannot be read."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return True
    return not modules.isdisjoint(command.split("\0"))
