"""The log as one task sees it: what brings a key group from the version it has to the version it needs.

Where it runs: worker and driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wallaroo.state.commits import Commit
from wallaroo.state.delta import DeltaFile, Entry
from wallaroo.state.storage import Storage


class History:
    """The commits up to ``batch`` and the files they name, each read once.  ``commits`` are the ones at hand; others are read."""

    def __init__(self, storage: Storage, commits: Iterable[Commit], batch: int, read_commit: Callable[[int], Commit]):
        self.batch = batch
        self._storage, self._read_commit = storage, read_commit
        self._commits = {commit.batch: commit for commit in commits}
        self._files: dict[str, DeltaFile] = {}

    def _commit(self, batch: int) -> Commit:
        if batch not in self._commits:
            self._commits[batch] = self._read_commit(batch)
        return self._commits[batch]

    def _file(self, name: str) -> DeltaFile:
        if name not in self._files:
            self._files[name] = DeltaFile(self._storage.read(name), name)
        return self._files[name]

    def since(self, group: int, version: int) -> tuple[bool, list[Iterator[Entry]]]:
        """Return what brings ``group`` from ``version`` to ``batch``: whether to empty it first, and entries, oldest first."""
        if self.batch < 0:
            return version != -1, []
        snapshots = [ref for ref in self._commit(self.batch).snapshots if ref.first <= group < ref.end]
        base = snapshots[0].batch if snapshots else -1
        is_reset = version < base or version > self.batch or (version == -1 and base < 0)
        found = [self._file(snapshots[0].file).entries(group)] if is_reset and snapshots else []
        start = base if is_reset else version
        for batch in range(start + 1, self.batch + 1):
            for delta in self._commit(batch).deltas:
                if delta.first <= group < delta.end:
                    found.append(self._file(delta.file).entries(group))
        return is_reset, found
