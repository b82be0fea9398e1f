"""The stderr of Spark's processes, filtered for users."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from wallaroo.processes import console
from wallaroo.processes.console import Entry
from wallaroo.processes.killed_workers import note_death, note_loss, read_death

NOISE = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"spark ERROR MicroBatchExecution",  # the driver reports it in the user's words
    b"spark ERROR TaskSchedulerImpl: Lost executor",  # and this one
    b"spark ERROR TaskSetManager: Task ",  # and the end of a job, such as a probe
    b"spark ERROR StandaloneSchedulerBackend: Application has been killed",
)

HEAD = b"Traceback (most recent call last)"
# found in tracebacks of Python processes that Spark's JVM has hung up on, or has not waited for
OF_SPARK = (b"pyspark/daemon.py", b"in local_connect_and_auth")
# between the tracebacks of an error and of the one that it follows
BETWEEN = (b"\n", b"During handling of the above", b"The above exception was the direct cause")

USAGE = b"Usage: spark-submit"  # a hundred lines, after the error
NO_COMMAND = "CMD: bad array subscript"  # Spark's script read nothing from its launcher
LAUNCHER_KILLED = (
    "the process that computes its command was killed, by a user or by the system for lack of "
    "memory"
)
READ_S = 1.0  # to read the last output of a process that has ended
# lines of a Java that does not start, before or after the one with the reason
EMPTY_WORDS = (
    "Error occurred during initialization of VM",
    "Error: Could not create the Java Virtual Machine",
    "Error: A fatal exception has occurred",
)
# such as "Invalid maximum heap size", "Unrecognized option", "os::commit_memory(...) failed"
_IS_REASON = re.compile("invalid|unrecognized|failed|exception|error", re.IGNORECASE)
_OF_LOG4J = re.compile(r"spark (\w+) ([\w$.]+): ")  # as the pattern in wallaroo.spark.jvm.settings
_LEVELS = {"WARN": "warning", "FATAL": "critical", "TRACE": "debug"}  # log4j's levels, and ours

# TaskSetManager's lines have an appender of their own (`wallaroo.spark.jvm.settings`); a duplicate
# names its host otherwise: "on HOST, executor 0: ..."
OF_TASKS = b"wallaroo tasks: "
_LOST_WORKER = re.compile(
    rb"Lost task .*? (?:\(|on )(\S+?),? executor \w+\)?: (?:\S+ ?\()?(?:"
    rb".*Python worker exited unexpectedly|java\.net\.SocketException|"
    rb"java\.io\.\w+:? .*(?:Connection reset|Broken pipe))"
)

_is_closing = threading.Event()
_words: deque[str] = deque(maxlen=50)  # the last lines of Spark's processes
_forwarding: list[threading.Thread] = []


def quiet_from_now() -> None:
    """Pass nothing on from now on: errors at a session's own end are of no interest."""
    _is_closing.set()
    _words.clear()


def filtered_stderr() -> int:
    """Return a descriptor for a process's stderr; all but noise is passed to this process's."""
    read, write = os.pipe()
    forward(read)
    return write


def forward(read: int) -> None:
    """Pass on what a descriptor says of Spark's processes, until its end; note their deaths."""
    _is_closing.clear()
    forwarding = threading.Thread(target=_forward, args=(read,), name="spark-stderr", daemon=True)
    _forwarding[:] = [*filter(threading.Thread.is_alive, _forwarding), forwarding]
    forwarding.start()


def reason_of_end() -> str:
    """Return the line with the reason of a JVM that ended during its start; "" if none."""
    ends = time.monotonic() + READ_S
    for thread in list(_forwarding):
        thread.join(max(0.0, ends - time.monotonic()))
    lines = [line for line in map(str.strip, _words) if line and not line.startswith(EMPTY_WORDS)]
    _words.clear()
    reason = next(filter(_IS_REASON.search, lines), "".join(lines[:1]))
    if reason.endswith(NO_COMMAND):
        return LAUNCHER_KILLED
    return reason.removeprefix('Exception in thread "main" ').removeprefix("Error: ")


def _forward(read: int) -> None:
    with open(read, "rb") as lines:
        shown = itertools.takewhile(lambda line: not line.startswith(USAGE), lines)
        others = (line for line in shown if not (_is_death(line) or _is_of_tasks(line)))
        for text in without_noise(others):
            _pass_on(text)


def _is_death(line: bytes) -> bool:
    """Return whether a line reports a killed worker; note its death."""
    death = read_death(line)
    if death is not None and not _is_closing.is_set():
        note_death(*death)
    return death is not None


def _is_of_tasks(line: bytes) -> bool:
    """Return whether a line is about a failed task attempt; note a worker that has ended."""
    lost = _LOST_WORKER.search(line) if line.startswith(OF_TASKS) else None
    if lost is not None and not _is_closing.is_set():
        note_loss(lost[1].decode())
    return line.startswith(OF_TASKS)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out lines that are useless to a user.

    These are noise, and tracebacks of workers whose result is no longer wanted, however the lines
    of several of them are mixed.
    """
    held: list[bytes] = []  # tracebacks whose origin is not known yet
    is_open = 0  # how many of them are not complete yet
    was_left_out = False
    for line in lines:
        if line.startswith(HEAD):
            is_open += 1
        if is_open:
            held.append(line)
            is_last = not line.startswith((b" ", b"\n", HEAD))
            is_open -= is_last
        elif not (was_left_out and line.startswith(BETWEEN)) and not line.startswith(NOISE):
            was_left_out = False
            yield line
        if held and not is_open:
            was_left_out = _is_of_spark(held)
            if not was_left_out:
                yield b"".join(held)
            held = []
    if not _is_of_spark(held):
        yield from held


def _is_of_spark(lines: list[bytes]) -> bool:
    text = b"".join(lines)
    return any(part in text for part in OF_SPARK)


def _pass_on(text: bytes) -> None:
    if _is_closing.is_set():
        return
    words = text.decode(errors="backslashreplace")
    _words.extend(words.splitlines())
    console.write(entry_of(words.rstrip("\n")), 2)


def entry_of(text: str) -> Entry:
    """Return the log entry of a line of Spark's processes; the logger is a class of Spark.

    >>> entry_of("spark WARN TaskSetManager: Lost task").logger
    'spark.TaskSetManager'
    """
    found = _OF_LOG4J.match(text)
    if found is None:
        return Entry(text, logger="spark")
    level = _LEVELS.get(found[1], found[1].lower())
    return Entry(text, level, f"spark.{found[2]}")
