"""A checkpoint read from outside: its commits, and their state.

The state is that after any retained commit.

The invariants: nothing is locked and nothing is written.  Published files never change, but a
running application deletes those that it no longer needs; so all files of a commit are opened
before the first entry is read (an open file outlives its name), and if one was deleted by then the
newest commit is tried instead, or, if a certain commit was requested, it is reported as no longer
retained.
"""

from __future__ import annotations

import difflib
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wallaroo.checkpoints.inspection.keyed import StoredEntry, keyed, step_of
from wallaroo.checkpoints.inspection.step_forms import StepForms
from wallaroo.engine.blocks.keys import Key, decode_key, encode_key, group_of
from wallaroo.errors import CheckpointError
from wallaroo.state.log.commits import Commit, CommitLog, DeltaRef
from wallaroo.state.log.delta import Row, latest
from wallaroo.state.log.history import NOTHING, History
from wallaroo.state.log.layout import read_identity
from wallaroo.state.log.storage import PART_BYTES_MIN, Content, LocalStorage, read_errors
from wallaroo.state.store.stored_checkpoint import place_of

# newest commits tried while an application deletes them: at worst it commits every few milliseconds
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class MappedStorage(LocalStorage):
    """Local storage that maps large files to load only accessed pages."""

    mapped_bytes_min: int = PART_BYTES_MIN

    def open(self, name: str) -> Content:
        path = Path(self.root, name)
        with read_errors(path), path.open("rb") as file:
            if path.stat().st_size < self.mapped_bytes_min:
                return file.read()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@dataclass(frozen=True, slots=True)
class StepSize:
    """Size of one step's state: keys, and bytes with all indexes."""

    keys: int = 0
    bytes: int = 0


class StateAt:
    """State after one commit, with all files open.

    Entries are read one key group at a time.
    """

    def __init__(self, commit: Commit, history: History, groups: int, forms: StepForms):
        self.commit = commit
        self.forms = forms
        self._history = history
        self.groups = groups
        for group in range(groups):
            history.since(group, NOTHING)  # opens the group's files; its entries are read later

    @property
    def steps(self) -> list[str]:
        """Return the names of the steps that keep state."""
        return list(dict.fromkeys(step_of(name)[0] for name in self.commit.steps))

    def check_step(self, step: str | None) -> None:
        """Raise CheckpointError if there is no such step."""
        if step is not None and step not in self.steps:
            names = ", ".join(f"'{name}'" for name in self.steps) or "none"
            near = "".join(difflib.get_close_matches(step, self.steps, 1))
            hint = f"Did you mean '{near}'?" if near else f"Its state steps: {names}."
            raise CheckpointError(f"commit {self.commit.batch} has no state step '{step}'. {hint}")

    def rows(self, group: int) -> Iterator[Row]:
        """Yield one key group's entries as they were written, oldest first."""
        for part in self._history.since(group, NOTHING).steps:
            yield from part

    def group(self, group: int) -> dict[tuple[str, bytes], bytes]:
        """Return one key group's entries by step and encoded key, in that order."""
        entries = latest(self.rows(group))
        return {(self.commit.steps[step], key): entries[step, key] for step, key in sorted(entries)}

    def keyed(self, group: int) -> dict[tuple[str, bytes], StoredEntry]:
        """Return the entries of one key group, by step and encoded key, in that order."""
        return keyed(self.group(group), self.forms.kinds)

    def entries(self, step: str | None = None) -> Iterator[StoredEntry]:
        """Yield what steps, or one step if it is named, keep for each key."""
        for group in range(self.groups):
            for (name, _), entry in self.keyed(group).items():
                if step is None or name == step:
                    yield entry

    def sizes(self) -> dict[str, StepSize]:
        """Count keys and bytes by step, including steps without entries."""
        keys = dict.fromkeys(self.steps, 0)
        sizes = dict.fromkeys(self.steps, 0)
        for group in range(self.groups):
            for (name, key), raw in self.group(group).items():
                sizes[step_of(name)[0]] += len(key) + len(raw)
            for step, _ in self.keyed(group):
                keys[step] += 1
        return {step: StepSize(keys[step], sizes[step]) for step in keys}

    def find(self, keys: Iterable[Key], step: str | None = None) -> list[StoredEntry]:
        """Return what steps (or the named one) keep for the first of these keys that exists."""
        _, _, kept = self._first(keys, step) or (0, None, [])
        return kept

    def locate(self, keys: Iterable[Key], step: str | None = None) -> tuple[int, Key] | None:
        """Return the first of these keys that any step (or the named one) has, and its group."""
        first = self._first(keys, step)
        return None if first is None else first[:2]

    def _first(
        self, keys: Iterable[Key], step: str | None
    ) -> tuple[int, Key, list[StoredEntry]] | None:
        for key in keys:
            encoded = encode_key(key)
            for group in self._likely_groups(encoded):
                entries = self.keyed(group)
                kept = [
                    entries[name, encoded]
                    for name in self.steps
                    if step in (None, name) and (name, encoded) in entries
                ]
                if kept:
                    return group, key, kept
        return None

    def _likely_groups(self, encoded: bytes) -> Iterable[int]:
        """Return the key's own group first, then the others.

        In a young checkpoint the files do not always show how many groups there are.
        """
        likely = group_of(encoded, self.groups) if self.groups else 0
        return sorted(range(self.groups), key=lambda group: group != likely)


class CheckpointReader:
    """A checkpoint folder, for reading only."""

    def __init__(self, root: Path, mapped_bytes_min: int = PART_BYTES_MIN):
        self.id = read_identity(root)
        self.root = root
        self._storage = LocalStorage(str(root), False)
        self._state_files = MappedStorage(str(root), False, mapped_bytes_min)

    def commits(self) -> list[Commit]:
        """Return the retained commits, oldest first: those whose state can be read in full."""
        commits = self._readable_commits()
        named = {delta.file for commit in commits.values() for delta in commit.deltas}
        named |= {snapshot.file for commit in commits.values() for snapshot in commit.snapshots}
        folders = {file.rpartition("/")[0] for file in named}
        files = {f"{folder}/{name}" for folder in folders for name in self._storage.names(folder)}
        return [commit for commit in commits.values() if _is_whole(commit, commits, files)]

    def before(self, batch: int) -> Commit | None:
        """Return the commit before ``batch`` if its file exists, readable or not."""
        return self._readable_commits().get(batch - 1)

    def at(self, batch: int | None = None) -> StateAt:
        """Open the state after ``batch`` or the newest commit.  Raises CheckpointError."""
        for _ in range(ATTEMPTS):
            log = CommitLog(self._storage)
            there = log.batches()
            if not there:
                raise CheckpointError(
                    f"{place_of(self.root)} has no commit yet: no batch has been completed. Look "
                    f"again after the first."
                )
            wanted = there[-1] if batch is None else batch
            try:
                if wanted in there:
                    return self._open(wanted, log, there)
            except CheckpointError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
            if batch is not None:
                raise CheckpointError(self._not_retained(batch, there))
        raise CheckpointError(
            f"{place_of(self.root)} commits faster than it can be read. Retain more commits, or "
            f"stop the run first."
        )

    def _open(self, batch: int, log: CommitLog, there: list[int]) -> StateAt:
        commit = log.read(batch)
        ends = [ref.end for ref in commit.snapshots]
        ends += [
            delta.end
            for number in there
            if number <= batch
            for delta in _deltas_if_there(log, number)
        ]
        return StateAt(
            commit,
            History(self._state_files, (commit,), batch, log.read),
            max(ends, default=0),
            StepForms.of(self.root),
        )

    def _readable_commits(self) -> dict[int, Commit]:
        log = CommitLog(self._storage)
        commits = {}
        for batch in log.batches():
            try:
                commits[batch] = log.read(batch)
            except CheckpointError as error:  # deleted a moment ago
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
        return commits

    def _not_retained(self, batch: int, there: list[int]) -> str:
        retained = ranges_text([commit.batch for commit in self.commits()]) or "none"
        was = 0 <= batch <= there[-1]
        return (
            f"commit {batch} {'is no longer retained' if was else 'does not exist'} in "
            f"{place_of(self.root)}. Retained: {retained}."
        )


def _deltas_if_there(log: CommitLog, batch: int) -> Iterable[DeltaRef]:
    try:
        return log.read(batch).deltas
    except (
        CheckpointError
    ) as error:  # deleted a moment ago; if it is needed, opening its files fails
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        return ()


def _is_whole(commit: Commit, commits: dict[int, Commit], files: set[str]) -> bool:
    """Return whether a commit's snapshots, and all deltas after them, are there."""
    bases: dict[int, int] = {}
    for ref in commit.snapshots:
        if ref.file not in files:
            return False
        bases |= dict.fromkeys(range(ref.first, ref.end), ref.batch)
    groups = max((delta.end for known in commits.values() for delta in known.deltas), default=0)
    first = 1 + min((bases.get(group, -1) for group in range(groups)), default=commit.batch)
    for batch in range(first, commit.batch + 1):
        if batch not in commits:
            return False
        for delta in commits[batch].deltas:
            if (
                not delta.inline
                and delta.file not in files
                and any(bases.get(group, -1) < batch for group in range(delta.first, delta.end))
            ):
                return False
    return True


def ranges_text(numbers: list[int]) -> str:
    """Write ascending numbers as ranges.

    >>> ranges_text([1, 2, 3, 7])
    '1 to 3, 7'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(map(str, run)) for run in runs)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one key's state; ``old`` None: added, ``new`` None: removed."""

    step: str
    key: Key
    old: StoredEntry | None
    new: StoredEntry | None


def changes(old: StateAt, new: StateAt, step: str | None = None) -> Iterator[Change]:
    """Yield the changes between commits, of one step if named, by key group."""
    for group in range(max(old.groups, new.groups)):
        before = old.keyed(group) if group < old.groups else {}
        after = new.keyed(group) if group < new.groups else {}
        for name, key in sorted(before.keys() | after.keys()):
            was = before.get((name, key))
            now = after.get((name, key))
            if was != now and step in (None, name):
                yield Change(name, decode_key(key), was, now)
