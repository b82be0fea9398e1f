"""What Spark's processes print on stderr, without the lines that say nothing to a user.

Where it runs: driver.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator

from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer

from wallaroo import console

NOISE = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"spark ERROR MicroBatchExecution",  # the driver says it in the user's words
    b"spark ERROR TaskSchedulerImpl: Lost executor",  # so it does here
    b"spark ERROR StandaloneSchedulerBackend: Application has been killed",
)

HEAD = b"Traceback (most recent call last)"
OF_DAEMON = b"pyspark/daemon.py"
# between the tracebacks of an error and of what it came upon
BETWEEN = (b"\n", b"During handling of the above", b"The above exception was the direct cause")

_is_closing = threading.Event()


def quiet_from_now() -> None:
    """Pass nothing on any more: pipes broken by a session's own end are of no interest."""
    _is_closing.set()


def filtered_stderr() -> int:
    """Return a descriptor for a process's stderr; what is no noise goes on to this process's."""
    read, write = os.pipe()
    _is_closing.clear()
    threading.Thread(target=_forward, args=(read,), name="spark-stderr", daemon=True).start()
    return write


def quiet_python_side() -> None:
    """Keep PySpark's own tracebacks off the user's terminal when the JVM dies: the driver says it
    in one sentence.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4js)  # it uses the root logger as well
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _silent  # type: ignore[method-assign,assignment]  # socketserver prints a traceback


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Distinguish py4j's records from others by the file that made them."""
    return "/py4j/" not in record.pathname


def _silent(*_: object) -> None:
    """Print nothing."""


def _forward(read: int) -> None:
    with open(read, "rb") as lines:
        for text in without_noise(lines):
            _pass_on(text)


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out what says nothing to a user: noise, and tracebacks of workers whose result is no
    longer wanted, however the lines of several of them are mixed.
    """
    held: list[bytes] = []  # tracebacks of which it is not known yet whose they are
    is_open = 0  # so many of them have no last line yet
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
            was_left_out = OF_DAEMON in b"".join(held)
            if not was_left_out:
                yield b"".join(held)
            held = []
    if OF_DAEMON not in b"".join(held):
        yield from held


def _pass_on(text: bytes) -> None:
    if not _is_closing.is_set():
        console.write_lines(text.decode(errors="backslashreplace"), 2)
