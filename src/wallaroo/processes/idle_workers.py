"""Detection of workers of a cluster that are killed between two tasks.

Where it runs: workers of clusters, whose parent is Spark's own daemon.

Spark replaces such a worker without a line in any log.  So a worker that waits for a task keeps a
file with its process id in its executor's folder.  It removes the file when a task begins, and when
it ends because Spark no longer needs it.  So the file of a missing process means that it was
killed. It stays: each later task there reports it by name, so that the driver learns of the death
even if an attempt fails, and counts it once.  A worker that is killed during a task has no file:
Spark's scheduler reports it (`killed_workers`).  One that is killed before beginning a task that
Spark has sent it also has a file, and may be reported twice: one death too many is better than a
missed one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SPARKS_DAEMON = "pyspark.daemon"
FOLDER = "wallaroo-idle"  # in the executor's folder, into which Spark has fetched the application
_mark: Path | None = None  # none on this machine, whose daemon detects all deaths


def report_idle_deaths() -> None:
    """Arrange that this worker's death is reported, if its parent is Spark's own daemon."""
    global _mark
    main = sys.modules["__main__"]
    program = getattr(main, "__spec__", None)
    if _mark is not None or program is None or program.name != SPARKS_DAEMON:
        return
    _mark = Path.cwd() / FOLDER / f"{os.getpid()}-{secrets.token_hex(4)}"
    vars(main)["os"] = SimpleNamespace(**{**vars(os), "_exit": _leave})


def as_task(work: Callable[..., Iterable[Any]], index: int, rows: Iterable[Any]) -> Iterator[Any]:
    """Run ``work`` as a task of Spark; then this worker waits for the next one.

    A task that fails or is cancelled ends its worker, on Spark's request.
    """
    _unmark()
    yield from work(index, rows)
    if _mark is not None:
        with contextlib.suppress(OSError):
            _mark.parent.mkdir(exist_ok=True)
            _mark.touch()


def idle_deaths() -> tuple[str, ...]:
    """Return names of this executor's workers that were killed while idle, as of its start."""
    if _mark is None:
        return ()
    try:
        names = os.listdir(_mark.parent)
    except OSError:
        return ()
    return tuple(name for name in names if _is_gone(int(name.partition("-")[0])))


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's process has the number now
    return False


def _unmark() -> None:
    if _mark is not None:
        with contextlib.suppress(OSError):
            _mark.unlink()


def _leave(code: int) -> None:
    _unmark()
    os._exit(code)
