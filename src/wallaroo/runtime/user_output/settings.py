"""Destination of the application's printed lines, sent with the deployment.

Where it runs: created by the driver, read by workers.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

# our levels, and those of logging; off: nothing is that severe
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
# begins a line of Python's on the socket: JSON follows; C code's lines come as they are
STRUCTURED = b"\0"


@dataclass(frozen=True, slots=True)
class UserOutput:
    """The driver's Unix socket for workers' lines.

    "": the worker's own stderr.
    """

    address: str = ""
    log_level: str = "info"
    # tasks that run in the driver itself print directly; 0: workers are on other machines
    driver_pid: int = 0
    is_json: bool = False  # the form of the log, for a worker that writes to its own stderr
