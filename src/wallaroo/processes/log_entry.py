"""Entries of a run's log, and their formats.

Where it runs: driver, and a worker that writes to its own stderr.

Everything that a run reports passes through here: its own log, lines of Spark and of other
processes, and output and log records of the application.  A JSON entry is one line, even if its
message contains newlines.
"""

from __future__ import annotations

import json
import logging
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
