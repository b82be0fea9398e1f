"""The input of a checkpoint's checkers (``verification.CHECKERS``), and their reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef
from wallaroo.state.log.line import Line
from wallaroo.state.log.storage import WAYS_OUT

SNAPSHOT_TURN = DEFAULT.snapshot_every  # batches


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged file, described in sentences for people."""

    file: str
    what: str
    consequence: str  # and the possible remedies


@dataclass(slots=True)
class Survey:
    """A checkpoint being read.

    ``commits`` are those that can be read, oldest first.
    """

    root: Path
    id: str
    commits: Mapping[int, Commit]
    line: Line = field(default_factory=Line)
    read: Counter[str] = field(default_factory=Counter)  # number of items read, by kind
    bytes: int = 0
    whole: tuple[int, ...] = ()  # commits whose state was read in full

    @property
    def last(self) -> Commit | None:
        return self.commits[max(self.commits)] if self.commits else None

    def note(self, what: str, size: int) -> None:
        """Count something that was read."""
        self.read[what] += 1
        self.bytes += size


Checker = Callable[[Survey], Iterator[Damage]]
Needs = dict[str, range]  # file -> the key groups that need it


def needs_of(commit: Commit, commits: Mapping[int, Commit], line: Line) -> Needs:
    """Return the files that make up the state after ``commit``, and the commits between."""
    groups = range(max((ref.end for ref in refs_of(commits).values()), default=0))
    bases: dict[int, int] = {}
    needs: Needs = {}
    for snapshot in commit.snapshots:
        bases |= dict.fromkeys(range(snapshot.first, snapshot.end), snapshot.batch)
        needs[snapshot.file] = range(snapshot.first, snapshot.end)
    first = 1 + min((bases.get(group, -1) for group in groups), default=commit.batch - 1)
    for batch in range(first, commit.batch + 1):
        needs[line.name_of(batch)] = groups
        for delta in commits[batch].deltas if batch in commits else ():
            if not delta.inline and any(
                bases.get(group, -1) < batch for group in range(delta.first, delta.end)
            ):
                needs[delta.file] = range(delta.first, delta.end)
    return needs


def refs_of(commits: Mapping[int, Commit]) -> dict[str, DeltaRef | SnapshotRef]:
    """Return every state file that a commit names, which excludes inline deltas."""
    refs: dict[str, DeltaRef | SnapshotRef] = {}
    for commit in commits.values():
        refs |= {delta.file: delta for delta in commit.deltas if not delta.inline}
        refs |= {snapshot.file: snapshot for snapshot in commit.snapshots}
    return refs


def sentence(error: Exception) -> str:
    """Return an error's text without the advice that a verification replaces."""
    return str(error).removesuffix(WAYS_OUT).strip()
