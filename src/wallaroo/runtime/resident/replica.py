"""Copy of key groups owned by other hosts, refreshed in the background.

Where it runs: worker, in a resident task; the work itself in a thread.

The invariant: nothing depends on the copy.  It is a part of this host's view (`state.views.view`),
at some commit; a task that becomes their owner updates it from the log, like any view. A failed
update is retried later and ends no task.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from wallaroo.errors import WallarooError
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.history import History
from wallaroo.state.log.storage import Storage
from wallaroo.state.views.view import View

REPLICA_NOTE = "replica"  # in a task's report: the commit that its copy was brought to


class Replica:
    """The copy of ``groups`` in the view folder ``root``.

    ``every_s`` passes between two turns.
    """

    def __init__(
        self, root: Path, key_groups: int, groups: Sequence[int], storage: Storage, every_s: float
    ):
        self._root = root
        self._key_groups = key_groups
        self._runs = list(contiguous(groups))
        self._storage = storage
        self._log = CommitLog(storage)
        self._every_s = every_s
        self._turn_at = 0.0
        self._executor = ThreadPoolExecutor(1, "wallaroo-replica")
        self._turn: Future[int] | None = None
        self._held = -1

    def follow(self, committed: int) -> None:
        """Start updating the copy to a commit if an update is due."""
        if not self._runs or committed < 0 or time.monotonic() < self._turn_at:
            return
        if self._turn is not None and not self._turn.done():
            return
        self._turn_at = time.monotonic() + self._every_s
        self._turn = self._executor.submit(self._brought, committed)

    def newly_held(self) -> int | None:
        """Return, once, the commit to which an update brought the copy; None if none has ended."""
        turn = self._turn
        if turn is None or not turn.done():
            return None
        self._turn = None
        before = self._held
        self._held = turn.result()
        return self._held if self._held != before else None

    def _brought(self, committed: int) -> int:
        """Bring all key groups to a commit; return it, or the former one if that fails."""
        history = History(self._storage, (), committed, self._log.read)
        try:
            for first, end in self._runs:
                view = View(self._root, self._key_groups, first, end)
                try:
                    view.catch_up(history)
                finally:
                    view.close()
        except WallarooError:  # such as a file that was removed with its commit meanwhile
            return self._held
        self._log.forget_before(committed)
        return committed

    def close(self) -> None:
        """Wait for the current update, and end the thread."""
        self._executor.shutdown()


def contiguous(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending key groups as ranges, each its first group and the one after its last.

    >>> list(contiguous((1, 2, 3, 7)))
    [(1, 4), (7, 8)]
    """
    for _, run in itertools.groupby(enumerate(groups), lambda pair: pair[1] - pair[0]):
        members = [group for _, group in run]
        yield members[0], members[-1] + 1
