"""Check of commits, deltas and snapshots.

For each damaged file it reports the state that needs it.  A file that an older commit names and
that is missing was released; only the newest commit must have all of its files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.checkpoints.inspection.reader import ranges_text
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.state.log.commit_segments import CommitSegment
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef, broken_link, decode
from wallaroo.state.log.delta import DeltaFile
from wallaroo.state.log.layout import COMMITS
from wallaroo.state.log.line import Line, commit_file, read_line
from wallaroo.state.log.storage import WAYS_OUT, LocalStorage

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


RESTORE = "Restore the file from a backup of the checkpoint"


def read_commits(root: Path) -> tuple[dict[int, Commit], dict[str, str], Line]:
    """Return the readable commits, the damage of the others by file, and their line."""
    storage = LocalStorage(str(root), is_durable=False)
    line = read_line(storage)
    commits: dict[int, Commit] = {}
    wrong: dict[str, str] = {}
    for file in filter(None, map(commit_file, storage.names(COMMITS))):
        if not line.counts(file):
            continue
        if file.is_segment:
            _read_run(storage, CommitSegment(file), commits, wrong)
            continue
        try:
            commit = decode(storage.read(file.name), file.name)
        except (CheckpointError, PeerError) as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # else it was just deleted
                wrong[file.name] = sentence(error)
            continue
        if commit.batch == file.first:
            commits[commit.batch] = commit
        else:
            wrong[file.name] = f"It holds commit {commit.batch}."
    return commits, wrong, line


def _read_run(
    storage: LocalStorage, run: CommitSegment, commits: dict[int, Commit], wrong: dict[str, str]
) -> None:
    try:
        read = run.read_on(storage.read(run.name))
    except (CheckpointError, PeerError) as error:
        if not isinstance(error.__cause__, FileNotFoundError):  # else it was just deleted
            wrong[run.name] = sentence(error)
        return
    commits.update((commit.batch, commit) for commit in read)
    if run.damage:
        wrong[run.name] = sentence(CheckpointError(run.damage))


def check_log(survey: Survey) -> Iterator[Damage]:
    """Read all commits, deltas and snapshots; note complete commits in ``survey.whole``."""
    commits, wrong, line = read_commits(survey.root)
    survey.commits = commits
    survey.line = line
    if not wrong and (problem := line.lost_end(commits, survey.id)):
        wrong[line.name_of(line.last)] = problem
    wrong |= _broken_links(survey, commits, wrong)
    groups: dict[str, Iterable[int]] = {}
    missing: set[str] = set()
    for file, ref in refs_of(commits).items():
        try:
            damaged = _damaged_groups(survey, file, ref)
        except (CheckpointError, PeerError) as error:
            if isinstance(error.__cause__, FileNotFoundError):
                missing.add(file)
            else:
                wrong[file] = sentence(error)
        else:
            if damaged:
                wrong[file] = f"The checksum of key groups {ranges_text(damaged)} is wrong."
                groups[file] = damaged
    needs = {batch: needs_of(commit, commits, line) for batch, commit in commits.items()}
    newest = max(needs, default=None)
    names = {line.name_of(batch) for batch in commits}
    wrong |= _missing_now(needs.get(newest, {}) if newest is not None else {}, missing, names)
    released = {batch for batch in needs if batch != newest and missing & needs[batch].keys()}
    kept = {batch: files for batch, files in needs.items() if batch not in released}
    survey.whole = tuple(batch for batch, files in kept.items() if not wrong.keys() & files.keys())
    for file in sorted(wrong):
        yield Damage(file, wrong[file], _consequence(file, kept, groups.get(file), survey.whole))


def _broken_links(
    survey: Survey, commits: Mapping[int, Commit], wrong: Mapping[str, str]
) -> dict[str, str]:
    broken: dict[str, str] = {}
    line = survey.line
    before: Commit | None = None
    for batch, commit in commits.items():
        survey.note("commits", 0)
        if before is not None and line.name_of(before.batch + 1) in wrong:
            before = None  # already reported
        if problem := broken_link(before, commit, survey.id, line):
            broken[line.name_of(batch)] = problem
        before = commit
    return broken


def _damaged_groups(survey: Survey, file: str, ref: DeltaRef | SnapshotRef) -> list[int]:
    content = LocalStorage(str(survey.root), is_durable=False).read(file)
    survey.note("deltas" if isinstance(ref, DeltaRef) else "snapshots", len(content))
    return damaged_groups(content, ref)


def damaged_groups(content: bytes, ref: DeltaRef | SnapshotRef) -> list[int]:
    """Return a state file's damaged key groups; raise CheckpointError if it is another file."""
    state = DeltaFile(content, ref.file)
    state.require(ref.size, ref.digest)
    damaged = []
    for group in state.groups():
        try:
            for _ in state.entries(group):
                pass
        except CheckpointError:
            damaged.append(group)
    return damaged


def _missing_now(needs: Needs, missing: set[str], names: set[str]) -> dict[str, str]:
    """Return the missing files that the newest commit needs; ``names``: commits'."""
    return {
        file: "It is missing, and the newest commit needs it."
        for file in needs
        if file in missing or (file.startswith(COMMITS) and file not in names)
    }


def _consequence(
    file: str, kept: Mapping[int, Needs], damaged: Iterable[int] | None, whole: tuple[int, ...]
) -> str:
    broken = [batch for batch, files in kept.items() if file in files]
    newest = max(kept, default=-1)
    if not broken and not file.startswith(COMMITS):
        return "No commit that is kept needs it. It will be deleted."
    back = f"go back to commit {whole[-1]} (`wallaroo state rollback`)" if whole else ""
    if file.startswith(COMMITS):
        ways = f"{RESTORE}{', or ' + back if back else ''}."
        return f"No run can start from this checkpoint as long as it is so. {ways}"
    groups = ranges_text(list(damaged or kept[broken[0]][file]))
    which = f"Key groups {groups} at commits {ranges_text(broken)}"
    if newest not in broken:
        return f"{which} are lost; the newest state is whole. {RESTORE} to be able to go back."
    return (
        f"{which} cannot be rebuilt if a view is lost or damaged. {RESTORE}; or let the "
        f"application run: from intact views it writes new snapshots of all key groups, within "
        f"{SNAPSHOT_TURN} batches of finding the damage{'; or ' + back if back else ''}."
    )
