"""Output for a person: to the driver's stderr, or above the table of a view.

Where it runs: driver.  There is one terminal, so there is one place for its current owner.

Invariant: a line is written whole, by one write, so that lines of several threads do not mix.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_owner: Callable[[str], None] | None = None


def take_over(write: Callable[[str], None]) -> None:
    """Pass every text for a person to ``write`` from now on; a text ends with a newline."""
    global _owner
    _owner = write


def give_back() -> None:
    """Write texts to stderr again from now on."""
    global _owner
    _owner = None


def write_lines(text: str, descriptor: int | None = None) -> None:
    """Write whole lines now: to the view, or without one to ``descriptor``, or else to stderr."""
    whole = text if text.endswith("\n") else text + "\n"
    owner = _owner
    if owner is not None:
        owner(whole)
    elif descriptor is not None:
        os.write(descriptor, whole.encode(errors="backslashreplace"))
    else:
        sys.stderr.write(whole)
        sys.stderr.flush()


class WholeLines:
    """A buffer that cuts text into whole lines.  Half a line waits for its end.  Safe to share."""

    def __init__(self) -> None:
        self._half = ""
        self._lock = threading.Lock()

    def add(self, text: str) -> str:
        """Return the lines that ``text`` completes; empty if there are none."""
        with self._lock:
            whole, newline, self._half = (self._half + text).rpartition("\n")
        return whole + newline

    def take_half(self) -> str:
        """Return half a line that nothing follows, as a whole one; empty if there is none."""
        with self._lock:
            half = self._half
            self._half = ""
        return half and half + "\n"
