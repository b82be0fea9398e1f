"""Tests as a user whom permissions concern, also where they run as root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

UNPRIVILEGED = 65534  # the user without rights of its own, on Linux


@contextmanager
def without_privileges() -> Iterator[None]:
    """Be a user whom permissions concern."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
