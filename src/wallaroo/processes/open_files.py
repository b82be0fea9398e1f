"""The limit of open files of a process.

Where it runs: every process that has many.
"""

from __future__ import annotations

import contextlib
import resource
import sys


def files_max() -> int:
    """Return how many this process may have open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def allow_many_files() -> None:
    """Have as many as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # a system that allows fewer than it states
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
