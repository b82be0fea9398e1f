"""The children of a run that was taken over, if it ran on this machine.

Where it runs: driver, once it has claimed the checkpoint.

They hold the locks of spools, and ports.  Those that run leave by themselves, as they poll the
claim (`processes.child`); those that are stopped, with their driver, cannot.
"""

from __future__ import annotations

import logging

from wallaroo.durable.ownership import VARIABLE
from wallaroo.processes.table import kill, marked, wait_for_end

LEAVE_S = 2.0  # they poll the claim every half a second
_log = logging.getLogger("wallaroo.run")


def end_children(claim: str, leave_s: float = LEAVE_S) -> None:
    """Wait for the end of the children of the run with this claim; kill remaining ones."""
    children = marked(f"{VARIABLE}={claim}") if claim else []
    if wait_for_end(children, leave_s):
        return
    pids = ", ".join(str(child.pid) for child in children)
    _log.warning("processes of the run that was taken over hang, and are killed: %s", pids)
    kill(children)
