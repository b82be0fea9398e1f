"""Commits: the only commit point.

A commit is one small file per batch, or a record in a file of many.

Where it runs: driver writes, driver and workers read.

The invariants of a commit (batch n):

1. Tasks stage: one delta file per task under a fresh name, sink output under fresh names.  Nothing
   they write is ever overwritten.
2. The driver checks that all tasks read the same attempt of each producer, then publishes
   ``commits/<n>.<epoch>`` atomically, or appends it to a run (``state.log.commit_segments``), where
   a record that is not whole does not exist; then it checks whether it still owns the checkpoint
   (``durable.ownership``).  Before that file or record exists, batch n is not committed, and its
   staged files are garbage.  After it exists, and is on the line of commits (``state.log.line``),
   batch n is never processed again.
3. Sinks are asked to commit batch n: again after a restart, therefore idempotently.
4. Views apply ``commits/<n>``'s deltas at the start of the next batch that needs their key groups.
   A view never holds anything uncommitted, so nothing in it is ever rolled back.
5. Every commit has an id that is never used again, and names its checkpoint and the id of the
   commit before it.  After a rollback (`state.rollback`) numbers are used again, ids are not; a log
   with a gap, or with a commit of another line or checkpoint, is refused.
6. A commit names its files by content: a delta or snapshot with another size or digest is refused,
   even if its name is right.
7. Source positions at or below the oldest retained commit's may be forgotten; files that no
   retained commit needs are deleted.

State of key group g after batch n: the snapshot ``snapshots[g]`` of commit n, then the deltas of
the commits after that snapshot's batch, up to and including n, in order of batch.

A command that edits state (`wallaroo state drop`) publishes a commit without input and output; its
``sinks`` are those of the batch before it, whose output they stage (``emitted``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from wallaroo.durable.appended_file import AppendedFile
from wallaroo.durable.commit_id import NO_BATCH, CommitHistory
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.tuning import DEFAULT
from wallaroo.state.log.commit_record import (
    Commit,
    DeltaRef,
    SnapshotRef,
    content_of,
    decode,
    encode,
    packed_inline,
)
from wallaroo.state.log.commit_segments import CommitSegment, encode_record
from wallaroo.state.log.floor import LOST
from wallaroo.state.log.layout import COMMITS
from wallaroo.state.log.line import CommitFile, Line, commit_file, read_line
from wallaroo.state.log.storage import WAYS_OUT, Storage

__all__ = [
    "Commit",
    "CommitLog",
    "DeltaRef",
    "SnapshotRef",
    "broken_link",
    "content_of",
    "decode",
    "encode",
    "packed_inline",
]


class CommitLog:
    """Commits on a checkpoint's line, by default the current one.

    Commits that were read are kept (they never change).
    """

    def __init__(self, storage: Storage, line: Line | None = None):
        self._storage = storage
        self._is_followed = line is None
        self._line = Line() if line is None else line
        self._has_line = line is not None
        self._known: dict[int, Commit] = {}
        self._delta_files: dict[int, tuple[str, ...]] = {}  # by commit
        self._runs: dict[int, CommitSegment] = {}
        self._read_from = 0  # the oldest segment that may have grown since it was read
        self._is_appending = False
        self._run_bytes_max = 0
        self._run_max = 0
        self._growing: AppendedFile | None = None

    # -- reading

    def batches(self) -> list[int]:
        """Return the numbers of the existing commits, ascending."""
        files = self._files()
        self._look_at_runs(files)
        found = {file.first for file in files if not file.is_segment}
        for run in self._runs.values():
            found.update(range(run.first, run.next))
        return sorted(found)

    def _files(self) -> list[CommitFile]:
        """Return the files on the line that counts now, in their order."""
        if self._is_followed:
            line = read_line(self._storage)
            if line.pieces != self._line.pieces and self._has_line:
                self._forget()
            self._line = line
            self._has_line = True
        found = map(commit_file, self._storage.names(COMMITS))
        return sorted(file for file in found if file is not None and self._line.counts(file))

    def _forget(self) -> None:
        """Forget what was read, as another line counts now."""
        self._known.clear()
        self._delta_files.clear()
        self._runs.clear()
        self._read_from = 0

    def _look_at_runs(self, files: Iterable[CommitFile]) -> None:
        """Read new records of segments; forget deleted segments."""
        segments = {file.first: file for file in files if file.is_segment}
        there = list(segments)
        self._runs = {
            first: self._runs.get(first) or CommitSegment(file) for first, file in segments.items()
        }
        for first in there:
            if first >= self._read_from:
                self._read_run(self._runs[first])
        if there:
            self._read_from = max(self._read_from, there[-1])

    def _read_run(self, run: CommitSegment) -> None:
        try:
            content = self._storage.read(run.name)
        except CheckpointError:  # deleted a moment ago
            return
        for commit in run.read_on(content):
            self._known[commit.batch] = commit

    def read(self, batch: int) -> Commit:
        """Return commit ``batch``.  Raises CheckpointError if absent, damaged or another one."""
        if batch in self._known:
            return self._known[batch]
        if not self._has_line:
            self._files()
        name = self._line.name_of(batch)
        try:
            commit = decode(self._storage.read(name), name)
        except CheckpointError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            found = self._in_a_run(batch)
            if found is None:
                raise
            commit = found
        if commit.batch != batch:
            raise CheckpointError(f"{name} holds commit {commit.batch}. {WAYS_OUT}")
        self._known[batch] = commit
        return commit

    def _in_a_run(self, batch: int) -> Commit | None:
        """Read only the run that holds the commit, as a starting task needs few."""
        segments = [file for file in self._files() if file.is_segment and file.first <= batch]
        if segments:
            self._read_run(CommitSegment(segments[-1]))
        return self._known.get(batch)

    def _run_of(self, batch: int) -> CommitSegment | None:
        runs = self._runs.values()
        return next((run for run in runs if run.first <= batch < run.next), None)

    def _up_to(self, up_to: int | None) -> list[int]:
        return [batch for batch in self.batches() if up_to is None or batch <= up_to]

    def last(self, up_to: int | None = None) -> Commit | None:
        """Return the newest commit (at or before ``up_to``), or None if there is none."""
        batches = self._up_to(up_to)
        return self.read(batches[-1]) if batches else None

    def check(self, checkpoint: str, up_to: int | None = None) -> None:
        """Raise CheckpointError unless the log is one line of this checkpoint's commits.

        There must be no gap, and no lost end.  Only commits up to ``up_to`` are checked, if it is
        given.
        """
        before: Commit | None = None
        batches = self._up_to(up_to)
        for run in self._runs.values():
            if run.damage and (up_to is None or run.next <= up_to):
                raise CheckpointError(run.damage)
        for batch in batches:
            commit = self.read(batch)
            if problem := broken_link(before, commit, checkpoint, self._line):
                raise CheckpointError(f"{problem} {WAYS_OUT}")
            before = commit
        if up_to is None:
            self.require_end(checkpoint)

    def require_end(self, checkpoint: str) -> None:
        """Raise CheckpointError if the newest commits that this checkpoint had are missing."""
        if problem := self.lost_end(checkpoint):
            raise CheckpointError(f"{problem} {WAYS_OUT}")

    def lost_end(self, checkpoint: str) -> str:
        """Return how the log ends before it should (`Line.lost_end`); "" if it does not."""
        batches = self.batches()
        return self._line.lost_end(batches, checkpoint)

    def noted(self, checkpoint: str) -> Line:
        """Return the line with its newest commit, to be noted in the claim."""
        return replace(
            self._line, last=max(self.batches(), default=NO_BATCH), checkpoint=checkpoint
        )

    def history(self, checkpoint: str, sink: str = "") -> CommitHistory:
        """Return the retained batches' identities with ``sink``'s tokens, without edits."""
        commits = [self.read(batch) for batch in self.batches()]
        seen = {commit.emitted: tuple(commit.sinks.get(sink, ())) for commit in commits}
        lost = [commit.batch for commit in commits if commit.edit == LOST]
        recovered = max(lost, default=NO_BATCH)
        return CommitHistory(checkpoint, tuple(seen), tuple(seen.values()), recovered=recovered)

    def delta_files(self, oldest: int) -> frozenset[str]:
        """Return the names of all commits' delta files from ``oldest`` on, uncached."""
        known = self._delta_files
        needed = [batch for batch in self.batches() if batch >= oldest]
        self._delta_files = {
            batch: known[batch] if batch in known else self._files_of(batch) for batch in needed
        }
        return frozenset(file for files in self._delta_files.values() for file in files)

    def _files_of(self, batch: int) -> tuple[str, ...]:
        return tuple(delta.file for delta in self.read(batch).deltas if not delta.inline)

    # -- writing, by the one run or command that holds the checkpoint

    def append_from_here(
        self,
        run_bytes_max: int = DEFAULT.commit_run_bytes_max,
        run_max: int = DEFAULT.commit_run_max,
    ) -> None:
        """Publish commits into runs from now on: one write each, instead of a file.

        A run of more than ``run_bytes_max`` bytes, or of ``run_max`` commits, is not appended to:
        commits of a run are read and removed together.
        """
        self._is_appending = True
        self._run_bytes_max = run_bytes_max
        self._run_max = run_max

    def publish(self, commit: Commit) -> None:
        """Publish the commit: this is the commit point."""
        if self._is_appending:
            self._append(commit)
        else:
            self._storage.publish(self._line.name_of(commit.batch), encode(commit))
        self._known[commit.batch] = commit

    def _append(self, commit: Commit) -> None:
        if self._growing is None or self._is_full(self._growing):
            self.close()
            file = self._line.file_of(commit.batch, is_segment=True)
            self._growing = self._storage.open_log(file.name)
            self._runs[commit.batch] = CommitSegment(file)
            self._read_from = commit.batch + 1  # its content is known here
        run = self._runs[self._read_from - 1]
        self._storage.append(self._growing, encode_record(commit, run.snapshots))
        run.ends.append(self._growing.size)
        run.snapshots = commit.snapshots

    def _is_full(self, growing: AppendedFile) -> bool:
        """Return whether the growing run accepts no more commits."""
        run = self._runs[self._read_from - 1]
        return growing.size > self._run_bytes_max or len(run.ends) >= self._run_max

    def close(self) -> None:
        """Close the growing file."""
        if self._growing is not None:
            self._growing.close()
            self._growing = None

    def continue_as(self, epoch: int, view: int | None = None) -> Line:
        """Write as ``epoch`` from now on; return the line, which must be in the claim first.

        The newest run is copied as far as it is whole: its writer may still append to it, or take
        back unsynced records.  ``view``: the epoch whose views are used, if it is another one.
        """
        batches = self.batches()
        oldest = batches[0] if batches else 0
        first = batches[-1] + 1 if batches else 0
        newest = self._run_of(first - 1)
        line = self._line if view is None else replace(self._line, view=view)
        if newest is not None and not newest.damage:
            first = newest.first
            copy = CommitFile(first, epoch, is_segment=True)
            whole = self._storage.read(newest.name)[: newest.end]
            self._storage.publish(copy.name, whole)
            self._runs[first] = replace(newest, file=copy, ends=[*newest.ends])
        self._line = line.continued(first, epoch, oldest)
        return self._line

    def continue_after_loss(self, epoch: int, last: int, fillers: Sequence[Commit]) -> Line:
        """Write as ``epoch`` after commit ``last`` and the fillers, which follow it at once.

        Commits after ``last`` no longer count, even if they can be read.
        """
        batches = [batch for batch in self.batches() if batch <= last]
        run = self._run_of(last)
        whole = self._storage.read(run.name)[: run.end_after(last)] if run is not None else b""
        first = run.first if run is not None else last + 1
        records = [encode_record(fillers[0], None)]
        records += [encode_record(filler, fillers[0].snapshots) for filler in fillers[1:]]
        segment = CommitFile(first, epoch, is_segment=True)
        self._storage.publish(segment.name, whole + b"".join(records))
        line = self._line.continued(first, epoch, batches[0] if batches else first)
        self._forget()
        self._line = line
        return line

    def delete(self, batch: int) -> None:
        """Remove a commit that has a file of its own."""
        self._known.pop(batch, None)
        self._storage.delete(self._line.name_of(batch))

    def uncounted(self, epoch: int) -> list[str]:
        """Return the names of files that earlier epochs wrote and that are no longer on a line."""
        found = map(commit_file, self._storage.names(COMMITS))
        return [
            file.name
            for file in found
            if file is not None and file.epoch < epoch and not self._line.counts(file)
        ]

    def remove_before(self, bound: int) -> None:
        """Remove commits older than ``bound``, oldest first; those of a run all or none."""
        there = self.batches()
        in_runs: set[int] = set()
        for run in list(self._runs.values()):
            in_runs.update(range(run.first, run.next))
        for batch in there:
            if batch >= bound:
                return
            run_here = self._runs.get(batch)
            if batch not in in_runs:
                self.delete(batch)
            elif run_here is not None and run_here.next <= bound:
                self._remove_run(run_here)

    def _remove_run(self, run: CommitSegment) -> None:
        if self._growing is not None and run.first == self._read_from - 1:
            return
        self._storage.delete(run.name)
        del self._runs[run.first]
        for batch in range(run.first, run.next):
            self._known.pop(batch, None)

    def remove_after(self, to: int) -> Iterator[int]:
        """Remove commits newer than ``to``, newest first; yield the oldest removed."""
        self.batches()
        for batch in sorted(self._newer(to), reverse=True):
            run = self._runs.get(batch)
            if run is None:
                self.delete(batch)
            else:
                self._remove_run(run)
            yield batch
        split = self._run_of(to)
        if split is not None and (split.next > to + 1 or split.damage):
            self._storage.cut(split.name, split.end_after(to))
            self._known = {batch: known for batch, known in self._known.items() if batch <= to}
            self._runs = {}
            self._read_from = 0
            yield to + 1

    def _newer(self, to: int) -> set[int]:
        """Return the files and runs that begin after ``to``, by their first commit."""
        return {file.first for file in self._files() if file.first > to}

    def forget_before(self, batch: int) -> None:
        """Drop cached commits older than ``batch`` from memory."""
        for old in [known for known in self._known if known < batch]:
            del self._known[old]


def broken_link(before: Commit | None, commit: Commit, checkpoint: str, line: Line) -> str:
    """Return the reason why ``commit`` is not the one after ``before``; "" if it is."""
    name = line.name_of(commit.batch)
    if not commit.id or commit.checkpoint != checkpoint:
        owner = f"checkpoint {commit.checkpoint}" if commit.checkpoint else "no checkpoint"
        return f"{name} belongs to {owner}, not to this one ({checkpoint})."
    if before is None:
        return ""
    if before.batch + 1 != commit.batch:
        gap = f"{line.name_of(before.batch + 1)} is missing"
        return f"{gap}: the log has commits {before.batch} and {commit.batch}."
    if before.id != commit.parent:
        return (
            f"{name} was not made after {line.name_of(before.batch)}: one of the two is of another "
            f"history, such as of before a rollback."
        )
    return ""
