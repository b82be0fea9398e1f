"""LMDB environments of the view.

They are opened once per process, checked, and removed if damaged.

Where it runs: worker.

The invariants:

* A file that is shorter than its own header declares is never read through the map, as the missing
  pages would end the process (SIGBUS).  While a process writes, the file may be shorter for a
  moment: it is damaged only if it is short while no process writes.
* A process that dies by a signal of its own (SIGBUS, SIGSEGV, SIGABRT) while it uses a view leaves
  a report in the view's folder; the next process that opens the view removes the whole view, once.
* Removing a view, or a part of it, is always allowed: it is a copy and is rebuilt from the log.  A
  process that has it open keeps reading the files that it opened, and notices at its next task that
  they were removed.  The same holds for threads: an environment whose files were removed is closed
  when nothing reads it any more.
* An environment is open once per process, and only while its files exist and there is room: a
  process of a session that outlives its runs would run out of address space.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import lmdb

from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import hold_lock
from wallaroo.durable.whole_file import PRIVATE_FILE
from wallaroo.errors import PeerError

MAP_BYTES_MAX = 1 << 36  # virtual address space per shard, not memory and not disk
OPEN_MAX = 512  # a quarter of the addresses that a process has on most systems
UNUSED_REFERENCES = 2  # those of `_Open` and of the check itself
DATA = "data.mdb"
HEADER_PAGES = 2
# a file is replaced if it has more than PAGES_MIN pages, and more than FREE_TIMES_MAX times those
# in use: a batch that changes all of them writes new ones before the old ones are free
PAGES_MIN = 64
FREE_TIMES_MAX = 4
# a file is replaced sooner if the pages in use have fallen to this share of their maximum, and have
# not fallen further for CALM_LOOKS checks; it then grows to the size that its batches need, as if
# it had never held more
LEFT = 0.75
CALM_LOOKS = 16
GAIN_MIN = 1.5  # times the pages in use: a smaller gain is not worth it
WRITTEN_AT_ONCE = 100_000  # entries per transaction when a file is replaced
CRASHES = "crashes"
_LOCK = "lock"
_OWN_FOLDER = str(Path(__file__).parents[1])


@dataclass(slots=True)
class _Used:
    """Number of pages in use in a file since it was opened."""

    most: int = 0
    least: int = 0
    looks: int = 0  # since the minimum

    def has_fallen(self, used: int) -> bool:
        """Note the pages in use; return whether many were freed, and no more are being freed."""
        self.most = max(self.most, used)
        self.looks += 1
        if used < self.least or not self.least:
            self.least = used
            self.looks = 0
        return self.looks >= CALM_LOOKS and used <= LEFT * self.most


@dataclass(frozen=True, slots=True)
class _Open:
    inode: int
    environment: lmdb.Environment
    page_bytes: int
    used: _Used = field(default_factory=_Used)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open environment; ``was_damaged``: whether an earlier one had to be removed."""

    environment: lmdb.Environment
    was_damaged: bool = False


_open: dict[Path, _Open] = {}  # per process: opening costs 0.3 ms
_opening = threading.Lock()
_reports: dict[Path, int] = {}  # view -> descriptor of this process's crash report


def open_environment(path: Path, open_max: int = OPEN_MAX) -> Opened:
    """Return the environment in the folder ``path``, created if needed.

    If ``open_max`` are open, unused ones of other views are closed.
    """
    with _opening:
        return _known_or_opened(path, open_max)


def _known_or_opened(path: Path, open_max: int) -> Opened:
    opened = _open.get(path)
    try:
        inode = os.stat(path / DATA).st_ino
    except FileNotFoundError:
        inode = -1
    if opened is not None:
        if opened.inode == inode and _is_undamaged(path, opened.environment, opened.page_bytes):
            return Opened(opened.environment)
        _open.pop(path, None)
    for removed in [each for each in _open if not (each / DATA).exists()]:
        del _open[removed]
    _make_room(path.parent, open_max)
    with hold_lock(path.parent / _LOCK):
        return _opened(path, was_damaged=opened is not None and opened.inode == inode)


def release_environments(view: Path) -> None:
    """Close this process's environments of a view, of which no task is running."""
    with _opening:
        for path in [path for path in _open if path.parent == view]:
            del _open[path]


def _make_room(view: Path, open_max: int) -> None:
    """Close unused environments of other views, oldest first."""
    for path in [path for path in _open if path.parent != view]:
        if len(_open) < open_max:
            return
        if sys.getrefcount(_open[path].environment) <= UNUSED_REFERENCES:
            del _open[path]


def _opened(path: Path, was_damaged: bool) -> Opened:
    try:
        if was_damaged:
            shutil.rmtree(path, ignore_errors=True)
        environment = _lmdb(path)
        page_bytes = int(environment.stat()["psize"])
        if not _is_undamaged(path, environment, page_bytes):
            environment.close()
            raise lmdb.CorruptedError(f"{path} is shorter than its header says")
    except lmdb.Error:
        was_damaged = True
        shutil.rmtree(path, ignore_errors=True)
        environment = _lmdb(path)
        page_bytes = int(environment.stat()["psize"])
    _open[path] = _Open(os.stat(path / DATA).st_ino, environment, page_bytes)
    return Opened(environment, was_damaged)


def _lmdb(path: Path) -> lmdb.Environment:
    make_private(path)
    try:
        environment = lmdb.open(
            str(path),
            map_size=MAP_BYTES_MAX,
            sync=False,
            metasync=False,
            max_readers=1024,
            readahead=False,
            mode=PRIVATE_FILE,
        )
    except lmdb.MemoryError as error:
        raise PeerError(
            f"the view of the state, {path}, cannot be mapped: each of its parts needs "
            f"{MAP_BYTES_MAX >> 30} GiB of addresses (not of memory), and this process may not "
            "have as many. Raise its limit (ulimit -v unlimited; LimitAS= of systemd), then run "
            "again: what was committed stays."
        ) from error
    environment.reader_check()
    return environment


def _is_undamaged(path: Path, environment: lmdb.Environment, page_bytes: int) -> bool:
    """Return whether the file is whole, at the latest when the process that writes has finished."""
    if _is_whole(path, environment, page_bytes):
        return True
    with hold_lock(_lock_of_writer(path)):
        return _is_whole(path, environment, page_bytes)


def _is_whole(path: Path, environment: lmdb.Environment, page_bytes: int) -> bool:
    """Return whether the file has all pages that its header counts (including two header pages)."""
    file = path / DATA
    try:
        if file.stat().st_size < HEADER_PAGES * page_bytes:  # the header is read through the map
            return False
        pages = int(environment.info()["last_pgno"]) + 1
        return file.stat().st_size >= pages * page_bytes  # after the header: others make it longer
    except FileNotFoundError:  # another process removed it
        return False


@contextlib.contextmanager
def writing(path: Path, environment: lmdb.Environment) -> Iterator[None]:
    """Keep others from judging the file while it is written, and leave it whole.

    LMDB counts pages at the end that were given back before they were written.
    """
    with hold_lock(_lock_of_writer(path)):
        yield
        page_bytes = int(environment.stat()["psize"])
        if not _is_whole(path, environment, page_bytes):
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                os.truncate(path / DATA, (environment.info()["last_pgno"] + 1) * page_bytes)


def _lock_of_writer(path: Path) -> Path:
    return path.with_name(f"{_LOCK}-{path.name}")


def shrink(path: Path, environment: lmdb.Environment) -> bool:
    """Replace a file with many free pages by one without them; return whether it was replaced.

    LMDB reuses free pages, and never releases them.  A process that has the old file open keeps
    reading it; data written to it from here on is lost, as if the view had been removed.
    """
    pages = environment.info()["last_pgno"] + 1
    if pages <= PAGES_MIN or not _is_mostly_free(path, environment, pages):
        return False
    with _opening, hold_lock(path.parent / _LOCK):
        if _is_current(path, environment):
            _replace(path, environment)
    return True


def _is_mostly_free(path: Path, environment: lmdb.Environment, pages: int) -> bool:
    found = environment.stat()
    used = found["branch_pages"] + found["leaf_pages"] + found["overflow_pages"]
    known = _open.get(path)
    has_fallen = known is not None and known.used.has_fallen(used)
    return pages > FREE_TIMES_MAX * used or (has_fallen and pages > GAIN_MIN * used)


def _is_current(path: Path, environment: lmdb.Environment) -> bool:
    """Return whether the file is still the one that this process has open."""
    opened = _open.get(path)
    try:
        inode = os.stat(path / DATA).st_ino
    except FileNotFoundError:
        return False
    return opened is not None and opened.environment is environment and opened.inode == inode


def _replace(path: Path, environment: lmdb.Environment) -> None:
    copy = path.with_name(f"copy-{path.name}")
    shutil.rmtree(copy, ignore_errors=True)
    made = _lmdb(copy)
    _write_packed(environment, made)
    made.close()
    _open.pop(path, None)
    shutil.rmtree(path, ignore_errors=True)
    os.rename(copy, path)


def _write_packed(environment: lmdb.Environment, made: lmdb.Environment) -> None:
    """Write all entries in order, which fills pages that removals left half empty."""
    with environment.begin() as read:
        entries = iter(read.cursor())
        is_rest = True
        while is_rest:
            with made.begin(write=True) as write:
                is_rest = bool(
                    write.cursor().putmulti(islice(entries, WRITTEN_AT_ONCE), append=True)[0]
                )


def drop(path: Path) -> None:
    """Remove an environment: the next ``open_environment`` creates an empty one."""
    with _opening, hold_lock(path.parent / _LOCK):
        _open.pop(path, None)
        shutil.rmtree(path, ignore_errors=True)


def close_environments() -> None:
    """Close all environments of this process, none of which is written to (tests)."""
    while _open:
        _, known = _open.popitem()
        known.environment.close()


# -- crashes


def prepare_view(root: Path) -> bool:
    """Create a view's folder; return whether it was emptied after a crash."""
    crashes = root / CRASHES
    try:
        reports = list(_reports_of_the_dead(crashes))
    except FileNotFoundError:
        make_private(crashes)
        reports = []
    has_crashed = any(map(_is_crash, reports))
    if has_crashed:
        with hold_lock(root / _LOCK):
            for shard in root.glob("[0-9]*"):
                _open.pop(shard, None)
                shutil.rmtree(shard, ignore_errors=True)
    _report_crashes_to(root)
    return has_crashed


def _reports_of_the_dead(crashes: Path) -> Iterator[bytes]:
    """Collect the reports of processes that have ended; each is read by one process only."""
    own = str(os.getpid())
    for entry in os.scandir(crashes):
        if entry.name == own or not entry.name.isdigit():
            continue
        if not Path("/proc", entry.name).exists():
            taken = crashes / f"{entry.name}.{os.getpid()}"
            with contextlib.suppress(FileNotFoundError):
                os.rename(entry.path, taken)
                yield taken.read_bytes()
                taken.unlink()


def _is_crash(report: bytes) -> bool:
    """Return whether a process died in this code, rather than in a library of the application.

    >>> _is_crash(b""), _is_crash(b'Fatal Python error: Bus error\\n  File "numpy.py", line 1 in f')
    (False, False)
    """
    return _OWN_FOLDER.encode() in report


def _report_crashes_to(root: Path) -> None:
    """Write a traceback on a fatal signal of this process; costs nothing until then.

    A process that reports its crashes elsewhere (Spark can be asked to do so) is left alone.
    """
    if root in _reports or faulthandler.is_enabled():
        return
    report = root / CRASHES / str(os.getpid())
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    _reports[root] = descriptor
    faulthandler.enable(descriptor, all_threads=False)
