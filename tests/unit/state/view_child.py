"""Processes that use a view and may die of it: ``view_child.py FOLDER pages | inside | SIGNAL``.

``pages`` overwrites one page of the view after another and lets a process of its own read it, two
at most; ``inside`` dies by SIGBUS in the view's code; any other word is a signal to die by.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.history import History
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.views.view import View

GROUPS = 16  # one to a shard
GROUP = 3
KEYS = [b"suser-%04d" % number for number in range(300)]
PAGE = 4096


def value_of(key: bytes) -> bytes:
    """What the log holds for a key."""
    return b"count:" + key[-4:] + b":" * 40


def data_of(root: Path) -> Path:
    """The file that holds the keys."""
    return root / f"{GROUP:02d}" / "data.mdb"


def opened(root: Path) -> View:
    """The view, at the newest commit."""
    storage = LocalStorage(str(root / "log"), is_durable=False)
    view = View(root / "view", GROUPS, 0, GROUPS)
    view.catch_up(History(storage, (), 0, CommitLog(storage).read))
    return view


def read_all(root: Path) -> None:
    """Compare every key."""
    view = opened(root)
    for key in KEYS:
        assert view.read(GROUP, 0, key) == value_of(key), key
    assert view.read(GROUP, 0, b"sabsent") is None
    view.close()


def damage_pages(root: Path) -> None:
    """Overwrite each page in turn; print what the readers ended with."""
    file = data_of(root / "view")
    whole = file.read_bytes()
    for page in range(len(whole) // PAGE):
        damaged = bytearray(whole)
        garbage = random.Random(page).randbytes(PAGE - 8)
        damaged[page * PAGE + 8 : (page + 1) * PAGE] = garbage
        file.write_bytes(damaged)
        statuses = [status_of_reader(root)]
        if statuses[0] < 0:
            statuses.append(status_of_reader(root))
        print(*statuses, flush=True)


def status_of_reader(root: Path) -> int:
    """Run a reader in a process of its own; return its exit code, or minus its signal."""
    reader = os.fork()
    if reader == 0:
        read_all(root)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])


def die_inside(root: Path) -> None:
    """Die by SIGBUS where the view reads."""

    class Reads(dict[int, Any]):
        def __getitem__(self, shard: int) -> Any:
            os.kill(os.getpid(), signal.SIGBUS)

    view = opened(root)
    view._reads = Reads()
    view.read(0, 0, b"sx")


def main(root: Path, what: str) -> None:
    """Do it."""
    if what == "pages":
        damage_pages(root)
    elif what == "inside":
        die_inside(root)
    else:
        opened(root)
        os.kill(os.getpid(), getattr(signal, what))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
