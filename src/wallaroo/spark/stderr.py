"""What Spark's processes print on stderr, without the lines that say nothing to a user.

Where it runs: driver.
"""

from __future__ import annotations

import logging
import os
import threading

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
    held: list[bytes] = []  # a traceback of which it is not known yet whose it is
    with open(read, "rb") as lines:
        for line in lines:
            if held or line.startswith(b"Traceback (most recent call last)"):
                held.append(line)
                if len(held) > 1 and not line.startswith(b" "):
                    _pass_on_traceback(held)
                    held = []
            elif not line.startswith(NOISE):
                _pass_on(line)
    _pass_on_traceback(held)


def _pass_on_traceback(lines: list[bytes]) -> None:
    text = b"".join(lines)
    if b"pyspark/daemon.py" not in text:  # else: of a worker whose result is no longer wanted
        _pass_on(text)


def _pass_on(text: bytes) -> None:
    if not _is_closing.is_set():
        console.write_lines(text.decode(errors="backslashreplace"), 2)
