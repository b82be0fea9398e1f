"""The mark of a worker, which imports the application's module and must not run it.

Where it runs: a worker sets it, ``run`` reads it.
"""

from __future__ import annotations

_is_forbidden = False


def forbid_runs() -> None:
    """Let ``run`` refuse from now on, in this process."""
    global _is_forbidden
    _is_forbidden = True


def is_run_forbidden() -> bool:
    """Return whether this process is a worker, in which ``run`` refuses."""
    return _is_forbidden
