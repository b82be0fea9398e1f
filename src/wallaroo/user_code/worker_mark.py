"""Flag of worker processes, which must not run the application they import.

Where it runs: a worker sets it, ``run`` reads it.
"""

from __future__ import annotations

_is_forbidden = False
UNDER_MAIN = "Put the call under: if __name__ == '__main__':"


def forbid_runs() -> None:
    """Make ``run`` fail in this process from now on."""
    global _is_forbidden
    _is_forbidden = True


def is_run_forbidden() -> bool:
    """Return whether this process is a worker, in which ``run`` fails."""
    return _is_forbidden
