"""Trace points: named places that record when they are passed.

They show where an epoch spends its time.

Where it runs: everywhere.  ``WALLAROO_TRACE=FILE`` has every process of a run append a line for
each point that it passes, with tabs between: monotonic nanoseconds; nanoseconds for which the
thread computed, and for which it was runnable without a core (Linux; else 0); process, thread,
name.  Fault points (``wallaroo.instrumentation.faults``) are among them.  Without that variable
nothing is written; the choice is made once, at import.  `python -m benchmarks.latency.epoch_trace`
reads the file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping

VARIABLE = "WALLAROO_TRACE"


def tracer(file: str) -> Callable[[str], None]:
    """Return the trace point that writes into ``file``."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def trace_point(name: str) -> None:
        thread = threading.current_thread().name
        computed, waited = _scheduled()
        line = f"{time.monotonic_ns()}\t{computed}\t{waited}\t{os.getpid()}\t{thread}\t{name}\n"
        os.write(descriptor, line.encode())

    return trace_point


def _scheduled() -> tuple[int, int]:
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            computed, waited, _ = map(int, file.read(100).split())
    except OSError:
        return 0, 0
    return computed, waited


def choose_tracer(environment: Mapping[str, str]) -> Callable[[str], None] | None:
    """Return the trace point for the environment; None if it defines none."""
    file = environment.get(VARIABLE)
    return tracer(file) if file else None


def _pass(name: str) -> None:
    """Write nothing."""


trace_point = choose_tracer(os.environ) or _pass
