"""Detection of workers of a cluster that are killed between two tasks.

Where it runs: workers of clusters, whose parent is Spark's own daemon.

Spark replaces such a worker without a line in any log.  So a worker that waits for a task keeps a
file with its process id beside those of the same executor.  It removes the file when a task begins,
and when it ends because Spark no longer needs it.  The file of a process that is gone is therefore
that of one that was killed; the next task there removes it and reports the death.  A worker that
is killed during a task has no file: Spark's scheduler reports it (`killed_workers`).  One that is
killed when Spark has sent it a task that it has not begun has a file, too, and may be reported
twice: to count one death too many is better than to miss one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SPARKS_DAEMON = "pyspark.daemon"
FOLDER = "wallaroo-idle"  # in the executor's folder, to which Spark has fetched the application
_folder: Path | None = None  # none on this machine, whose daemon notices all deaths


def report_idle_deaths() -> None:
    """Arrange that this worker's death is reported, if its parent is Spark's own daemon."""
    global _folder
    main = sys.modules["__main__"]
    program = getattr(main, "__spec__", None)
    if _folder is not None or program is None or program.name != SPARKS_DAEMON:
        return
    _folder = Path.cwd() / FOLDER
    vars(main)["os"] = SimpleNamespace(**{**vars(os), "_exit": _leave})


def as_task(work: Callable[..., Iterable[Any]], index: int, rows: Iterable[Any]) -> Iterator[Any]:
    """Yield what ``work`` does as a task of Spark's; then this worker waits for the next one.

    A task that fails or is cancelled ends its worker, on Spark's request.
    """
    _unmark(os.getpid())
    yield from work(index, rows)
    if _folder is not None:
        with contextlib.suppress(OSError):
            _folder.mkdir(exist_ok=True)
            (_folder / str(os.getpid())).touch()


def take_idle_deaths() -> int:
    """Return how many workers of this executor were killed while idle, each once."""
    if _folder is None:
        return 0
    try:
        names = os.listdir(_folder)
    except OSError:
        return 0
    return sum(_is_gone(int(name)) and _unmark(int(name)) for name in names)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's process has the number now
    return False


def _unmark(pid: int) -> bool:
    """Remove a worker's file; return whether it was there."""
    if _folder is None:
        return False
    try:
        (_folder / str(pid)).unlink()
    except OSError:
        return False
    return True


def _leave(code: int) -> None:
    _unmark(os.getpid())
    os._exit(code)
