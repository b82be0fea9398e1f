"""Actions of a fault point, which break a process or its environment.

They kill the process, or break its disk or clock.

Where it runs: everywhere, in tests and verifications only.

The actions: ``kill`` (SIGKILL), ``enospc`` and ``eio`` (the next call that writes, syncs or renames
a file fails with it), ``enospc SECONDS`` and ``eio SECONDS`` (all such calls for that time),
``torn`` (the next write to a file is cut in half, and the process dies).
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import stat
import struct
import time
from collections.abc import Callable
from typing import Any

WRITES = ("write", "pwrite", "pwritev")
SYNCS = ("fsync", "fdatasync")
NAMES = ("rename", "replace")
ERRORS = {"enospc": errno.ENOSPC, "eio": errno.EIO}
# a full disk fails calls that need space; a sync does not
BREAKABLE = {errno.ENOSPC: WRITES + NAMES, errno.EIO: WRITES + SYNCS + NAMES}
OFFSET = struct.Struct(">q")  # how far the clock is ahead, in nanoseconds
_REAL: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in WRITES + SYNCS + NAMES}


def act(action: str) -> None:
    """Carry out an action; raise ValueError if it does not exist."""
    name, _, seconds = action.partition(" ")
    if name == "kill":
        _die()
    elif name == "torn":
        _tear_next()
    elif name in ERRORS:
        _fail_next(ERRORS[name], float(seconds or 0))
    else:
        raise ValueError(f"A fault point cannot {action!r}.")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail_next(number: int, seconds: float) -> None:
    until = time.monotonic() + seconds

    def broken(name: str) -> Callable[..., Any]:
        def call(first: Any, *rest: Any, **options: Any) -> Any:
            if name in WRITES and not _is_file(first):
                return _REAL[name](first, *rest, **options)
            if time.monotonic() >= until:
                for each, real in _REAL.items():
                    setattr(os, each, real)
            if seconds and time.monotonic() >= until:  # the time has passed: this call succeeds
                return _REAL[name](first, *rest, **options)
            raise OSError(number, os.strerror(number))

        return call

    for name in BREAKABLE[number]:
        setattr(os, name, broken(name))


def _tear_next() -> None:
    def torn(name: str) -> Callable[..., Any]:
        def call(descriptor: int, content: Any, *rest: Any, **options: Any) -> Any:
            if not _is_file(descriptor):
                return _REAL[name](descriptor, content, *rest, **options)
            whole = b"".join(content) if name == "pwritev" else bytes(content)
            half = whole[: len(whole) // 2]
            _REAL[name](descriptor, [half] if name == "pwritev" else half, *rest, **options)
            return _die()

        return call

    for name in WRITES:
        setattr(os, name, torn(name))


def _is_file(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def shift_clock(file: str) -> None:
    """Shift this process's clock by the nanoseconds in a file, from now on.

    ``time.time`` and ``time.time_ns`` are ahead by the number in ``file``, which may change at any
    moment; without the file nothing happens.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    ahead = mmap.mmap(descriptor, OFFSET.size, access=mmap.ACCESS_READ)
    os.close(descriptor)
    real_ns = time.time_ns

    def time_ns() -> int:
        offset: int = OFFSET.unpack_from(ahead)[0]
        return real_ns() + offset

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
