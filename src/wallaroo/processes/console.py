"""Entries of a run's log, and their output to stderr or a view.

Where it runs: driver.  There is one stderr, so there is one place for its current owner and for the
format of its lines.

Invariant: an entry is written whole, by one write, so that those of several threads do not mix.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of the log.

    ``logger`` is empty for printed lines; ``step`` and ``worker`` say which function printed or
    logged it, and in which worker process, counted from 1.  ``kind`` distinguishes the entries that
    ``facts`` belong to.

    Everything that a run reports passes through here: its own log, lines of Spark and of other
    processes, and output and log records of the application. A JSON entry is one line, even if its
    message contains newlines.
    """

    message: str
    level: str = "info"
    logger: str = ""
    step: str = ""
    worker: int = 0
    kind: str = ""
    exception: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Form = Callable[[Entry], str]


def of_record(record: logging.LogRecord, step: str = "", worker: int = 0) -> Entry:
    """Return the entry for a record of Python's logging."""
    exception = ""
    if record.exc_info and record.exc_info[0] is not None:
        exception = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
    return Entry(
        record.getMessage(), record.levelname.lower(), record.name, step, worker, "", exception
    )


def plain(entry: Entry) -> str:
    """Return an entry as text; records of the application with their level and logger.

    >>> plain(Entry("a new word", "info", "words", "Count words", 2))
    '[Count words, worker 2] INFO:words:a new word'
    """
    origin = ", ".join(
        part for part in (entry.step, entry.worker and f"worker {entry.worker}") if part
    )
    is_own = not entry.logger or (entry.logger.startswith(("wallaroo", "spark")) and not origin)
    label = "" if is_own else f"{entry.level.upper()}:{entry.logger}:"
    text = f"{label}{entry.message}" + (f"\n{entry.exception}" if entry.exception else "")
    return f"[{origin}] {text}" if origin else text


def dated(entry: Entry) -> str:
    """Return an entry as text with the local date and time before each of its lines."""
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    return "\n".join(f"{now} {line}" for line in plain(entry).splitlines() or [""])


def as_json(entry: Entry) -> str:
    """Return an entry as one line of JSON without empty members.

    >>> json.loads(as_json(Entry("saw 1", "info", "words", "Count", 2)))["step"]
    'Count'
    """
    optional = {
        "kind": entry.kind,
        "logger": entry.logger,
        "step": entry.step,
        "worker": entry.worker,
        "exception": entry.exception,
    }
    members = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": entry.level,
        **{name: value for name, value in optional.items() if value},
        "message": entry.message,
        **entry.facts,
    }
    return json.dumps(members, ensure_ascii=False)


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
