"""Output of the log, to the driver's stderr or to a view.

Where it runs: driver.  There is one stderr, so there is one place for its current owner and for the
format of its lines.

Invariant: an entry is written whole, by one write, so that those of several threads do not mix.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

from wallaroo.processes.log_entry import Entry, Form, as_json, plain

_owner: Callable[[str], None] | None = None
_form: Form = plain


def take_over(write: Callable[[str], None]) -> None:
    """Pass all plain text to ``write`` from now on; each text ends with a newline."""
    global _owner
    _owner = write


def give_back() -> None:
    """Write texts to stderr again from now on."""
    global _owner
    _owner = None


def use_form(form: Form) -> None:
    """Write every entry in this form from now on."""
    global _form
    _form = form


def is_json() -> bool:
    """Return whether entries are written as JSON."""
    return _form is as_json


def write(entry: Entry, descriptor: int | None = None) -> None:
    """Write an entry now: to the view, or without one to ``descriptor``, or else to stderr."""
    whole = _form(entry) + "\n"
    owner = _owner
    if owner is not None:
        owner(whole)
    elif descriptor is not None:
        os.write(descriptor, whole.encode(errors="backslashreplace"))
    else:
        sys.stderr.write(whole)
        sys.stderr.flush()


def write_printed(lines: str) -> None:
    """Write lines that code in this process printed, each as an entry."""
    for line in lines.splitlines():
        write(Entry(line))


class WholeLines:
    """A buffer that cuts text into whole lines.

    ``print`` writes a line in pieces, so each thread has a half line of its own.
    """

    def __init__(self) -> None:
        self._halves: dict[int, str] = {}  # by thread
        self._lock = threading.Lock()

    def add(self, text: str) -> str:
        """Return the lines that ``text`` completes; empty if there are none."""
        thread = threading.get_ident()
        with self._lock:
            text = self._halves.pop(thread, "") + text
            whole, newline, half = text.rpartition("\n")
            if half:
                self._halves[thread] = half
        return whole + newline

    def take_halves(self, *, of_all: bool = False) -> str:
        """Return the unfinished lines of this thread and of ended ones, or of all, as whole ones.

        The result is empty if there are none.
        """
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        with self._lock:
            taken = [thread for thread in self._halves if of_all or thread not in others]
            return "".join(f"{self._halves.pop(thread)}\n" for thread in taken)
