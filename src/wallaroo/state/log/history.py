"""A task's view of the log: entries that update a key group.

Where it runs: worker and driver.

The invariant: no entry comes from a file with another size or digest than its commit names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from wallaroo.errors import CheckpointError
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef, content_of
from wallaroo.state.log.delta import DeltaFile, Row
from wallaroo.state.log.storage import Storage


class Version(NamedTuple):
    """Target commit of a key group, by number and id."""

    batch: int
    id: str


NOTHING = Version(-1, "")  # before the first commit


class Missing(NamedTuple):
    """Entries that a key group lacks."""

    is_reset: bool  # whether to empty the group first
    is_cold: bool  # whether more than the newest commit is read
    steps: list[Iterator[Row]]  # entries, oldest first
    bytes: int  # the size of a cold group's entries in their files


class Past(Protocol):
    """Source of the entries that bring a view to a version."""

    @property
    def version(self) -> Version:
        """Return the version that every key group is brought to."""

    def since(self, group: int, version: Version) -> Missing:
        """Return the entries that bring ``group`` from ``version`` to that of the past."""


class History:
    """The commits up to ``batch`` and the files they name.

    Each is read once.  ``commits`` are already loaded; others are read.
    """

    def __init__(
        self,
        storage: Storage,
        commits: Iterable[Commit],
        batch: int,
        read_commit: Callable[[int], Commit],
    ):
        self.batch = batch
        self._storage = storage
        self._read_commit = read_commit
        self._commits = {commit.batch: commit for commit in commits}
        self._files: dict[str, DeltaFile] = {}
        self._bases: dict[int, SnapshotRef] | None = None

    @property
    def version(self) -> Version:
        """Return the version that every key group is brought to."""
        return Version(self.batch, self._commit(self.batch).id) if self.batch >= 0 else NOTHING

    def _commit(self, batch: int) -> Commit:
        if batch not in self._commits:
            commit = self._read_commit(batch)
            # there may be thousands, and only their deltas and ids are needed
            is_last = batch == self.batch
            self._commits[batch] = (
                commit if is_last else replace(commit, offsets={}, snapshots=(), sinks={})
            )
        return self._commits[batch]

    def _base(self, group: int) -> SnapshotRef | None:
        if self._bases is None:
            snapshots = self._commit(self.batch).snapshots
            self._bases = {
                covered: ref for ref in snapshots for covered in range(ref.first, ref.end)
            }
        return self._bases.get(group)

    def _file(self, ref: DeltaRef | SnapshotRef) -> DeltaFile:
        if ref.file not in self._files:
            content = content_of(ref) or self._storage.open(ref.file)
            file = DeltaFile(content, ref.file)
            file.require(ref.size, ref.digest)
            self._files[ref.file] = file
        return self._files[ref.file]

    def _is_ours(self, version: Version) -> bool:
        """Return whether this line of commits contains that commit.

        It is not if its file was deleted, as that can no longer be checked.
        """
        try:
            return self._commit(version.batch).id == version.id
        except CheckpointError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return False

    def since(self, group: int, version: Version) -> Missing:
        """Return the entries that bring ``group`` from ``version`` to ``batch``.

        A version that is ahead, older than the snapshot in force, or of a line of commits that was
        rolled back is ignored: the group restarts from the snapshot.
        """
        if self.batch < 0:
            return Missing(version != NOTHING, False, [], 0)
        snapshot = self._base(group)
        base = snapshot.batch if snapshot else -1
        is_reset = not max(base, 0) <= version.batch <= self.batch or not self._is_ours(version)
        start = base if is_reset else version.batch
        files = [self._file(snapshot)] if is_reset and snapshot else []
        is_cold = bool(files) or start < self.batch - 1
        for batch in range(start + 1, self.batch + 1):
            files += [
                self._file(delta)
                for delta in self._commit(batch).deltas
                if delta.first <= group < delta.end
            ]
        size = sum(file.bytes_of(group) for file in files) if is_cold else 0
        return Missing(is_reset, is_cold, [file.rows(group) for file in files], size)


class Remembered:
    """The end of the log, in its writer task's memory.

    It holds, by key group, the last entries of all commits from one version to another.  A group at
    any other version is brought to it by the log.
    """

    def __init__(
        self,
        start: Version,
        version: Version,
        entries: Mapping[int, list[Row]],
        read_log: Callable[[], History],
    ):
        self._start = start
        self.version = version
        self._entries = entries
        self._read_log = read_log
        self._log: History | None = None

    def since(self, group: int, version: Version) -> Missing:
        """Return the entries that bring ``group`` from ``version`` to that of the past."""
        if version == self._start:
            return Missing(False, False, [iter(self._entries.get(group, ()))], 0)
        if self._log is None:
            self._log = self._read_log()
        return self._log.since(group, version)
