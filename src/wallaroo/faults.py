"""Fault points: named places where a test can kill the process, to prove what a restart finds.

Where it runs: everywhere that writes durable files.  ``WALLAROO_FAULT="name:nth"`` kills this process with SIGKILL when it
passes the named point for the nth time (from 1).  Without the variable ``fault_point`` does nothing; the choice is made
once, at import.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


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


def _pass(name: str) -> None:
    """Do nothing."""


fault_point = killer(os.environ.get("WALLAROO_FAULT", ""))
