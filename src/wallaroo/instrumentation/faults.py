"""Fault points: places where tests can break process, disk or clock.

They test recovery.

Where it runs: everywhere that writes durable files.  ``WALLAROO_FAULT="name:nth"`` kills this
process with SIGKILL when it passes the named point for the nth time (from 1);
``WALLAROO_FAULT="name:nth:ACTION"`` performs that action instead (``fault_actions.py``).
``WALLAROO_FAULT_LOG=FILE`` appends the name of every point passed to FILE, so that a test can list
them.  ``WALLAROO_FAULT_ORDERS=FOLDER`` accepts an order while the process runs: the file ``order``
in FOLDER holds an action, empty files name the points at which it may be done, and the first
process that passes one of these takes the order and executes it.  If none of them is set, points
are trace points (``wallaroo.instrumentation.tracing``), if those are asked for; otherwise
``fault_point`` does nothing.  The choice is made once, at import.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from wallaroo.instrumentation.fault_actions import act, shift_clock
from wallaroo.instrumentation.tracing import choose_tracer

ORDER = "order"
TAKEN = ".taken"  # the suffix of an order that is being carried out, after the point's name


def actor(plan: str) -> Callable[[str], None]:
    """Return the fault point of a plan ``name:nth[:action]``; an empty plan's does nothing."""
    if not plan:
        return _pass
    wanted, nth, action = [*plan.split(":"), "kill"][:3]
    if not wanted or not nth.isdigit():
        raise ValueError(f"WALLAROO_FAULT={plan!r} is not of the form name:nth or name:nth:action.")
    left = [int(nth)]

    def fault_point(name: str) -> None:
        if name != wanted:
            return
        left[0] -= 1
        if left[0] == 0:
            act(action)

    return fault_point


def recorder(file: str) -> Callable[[str], None]:
    """Return the fault point that records the points passed, a name to a line."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def fault_point(name: str) -> None:
        os.write(descriptor, name.encode() + b"\n")

    return fault_point


def taker(folder: str) -> Callable[[str], None]:
    """Return the fault point that carries out a folder's orders; its file ``clock`` shifts ours."""
    shift_clock(os.path.join(folder, "clock"))
    rename = os.rename  # works even while this process's calls fail
    order = os.path.join(folder, ORDER)

    def fault_point(name: str) -> None:
        order_in_work = f"{folder}/{name}{TAKEN}"
        try:
            os.unlink(f"{folder}/{name}")
            rename(order, order_in_work)  # fails in all processes but one
        except OSError:
            return
        with open(order_in_work, encoding="ascii") as file:
            act(file.read())

    return fault_point


def _choose(environment: Mapping[str, str]) -> Callable[[str], None]:
    if log := environment.get("WALLAROO_FAULT_LOG"):
        return recorder(log)
    if orders := environment.get("WALLAROO_FAULT_ORDERS"):
        return taker(orders)
    if plan := environment.get("WALLAROO_FAULT"):
        return actor(plan)
    return choose_tracer(environment) or _pass


def _pass(name: str) -> None:
    """Do nothing."""


fault_point = _choose(os.environ)
