"""Fault points: named places where a test can kill the process, to prove what a restart finds.

Where it runs: everywhere that writes durable files.  ``WALLAROO_FAULT="name:nth"`` kills this
process with SIGKILL when it passes the named point for the nth time (from 1).
``WALLAROO_FAULT_LOG=FILE`` appends the name of every point passed to FILE, so that a test can find
out which there are.  Where neither is set, points are trace points (``wallaroo.tracing``), if those
are asked for; otherwise ``fault_point`` does nothing.  The choice is made once, at import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from wallaroo.tracing import choose_tracer


def killer(plan: str) -> Callable[[str], None]:
    """Make the fault point for a plan ``name:nth``; an empty plan makes one that does nothing."""
    if not plan:
        return _pass
    wanted, _, nth = plan.rpartition(":")
    if not wanted or not nth.isdigit():
        raise ValueError(f"WALLAROO_FAULT={plan!r} is not of the form name:nth.")
    left = [int(nth)]

    def fault_point(name: str) -> None:
        if name != wanted:
            return
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault_point


def recorder(file: str) -> Callable[[str], None]:
    """Make the fault point that writes down what is passed, a name to a line."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def fault_point(name: str) -> None:
        os.write(descriptor, name.encode() + b"\n")

    return fault_point


def _choose(environment: Mapping[str, str]) -> Callable[[str], None]:
    log = environment.get("WALLAROO_FAULT_LOG")
    if log:
        return recorder(log)
    plan = environment.get("WALLAROO_FAULT", "")
    return killer(plan) if plan else choose_tracer(environment) or _pass


def _pass(name: str) -> None:
    """Do nothing."""


fault_point = _choose(os.environ)
