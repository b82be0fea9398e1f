"""The limit of a process's open files.

Where it runs: every process that opens many files.
"""

from __future__ import annotations

import contextlib
import resource
import sys


def files_max() -> int:
    """Return the limit of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def files_allowed() -> int:
    """Return the limit to which a process may raise its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


def allow_many_files() -> None:
    """Raise the limit of this process to the system's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems allow fewer than they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
