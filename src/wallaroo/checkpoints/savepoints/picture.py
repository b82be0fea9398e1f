"""Consistent snapshot of a checkpoint, even during a run.

The invariants:

* Nothing is locked or written, and no run has to wait.  All files are opened before the first one
  is copied: an open file outlives its name.  So the kernel releases everything when the process
  ends, for whatever reason.
* The picture is that of one commit.  Notes read before that commit (sinks' notes, spools' tails)
  refer to no later one.  Notes are read again once the waiting output is open: if none has changed,
  no output was sent in between, and none is missing.
* Published input after the commit is part of it: the heads of spools are read after the commit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from wallaroo.checkpoints.inspection.compatibility import planned_key_groups
from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt
from wallaroo.errors import CheckpointError
from wallaroo.sinks.queued.pending import read_pending
from wallaroo.sources.joined.log import hosts_of
from wallaroo.sources.log import from_stored
from wallaroo.spool.format import Boundary, SpoolHead, segments_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.spool.tail import read_tail
from wallaroo.state.log.commits import Commit, CommitLog
from wallaroo.state.log.layout import OUTBOX, PLAN, SPOOL
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.stored_checkpoint import outbox_files, rank_of

ATTEMPTS = 500
PAUSE_S = 0.003  # between two attempts
LISTS = 1  # the rank of a list of waiting output
NOTES = 2


class OpenFile(NamedTuple):
    """A file, and the number of its bytes that count.

    The file may grow.
    """

    file: IO[bytes]
    size: int


@dataclass(frozen=True, slots=True)
class Picture:
    """A checkpoint at one commit."""

    id: str
    state: StateAt
    key_groups: int  # 0 without state
    commits: tuple[Commit, ...]  # up to that one, oldest first
    contents: Mapping[str, bytes]  # the plan, the sinks' notes and lists
    files: Mapping[str, OpenFile]  # staged output, and segments of spools
    spools: Mapping[str, tuple[SpoolHead, Boundary]]  # by folder: head and tail


def take_picture(root: Path, closing: ExitStack) -> Picture:
    """Return a picture whose files ``closing`` closes.

    Raises CheckpointError if there is no commit, if something is damaged, or if the application
    changes faster than it can be read.
    """
    reader = CheckpointReader(root)
    log = CommitLog(LocalStorage(str(root), False))
    for _ in range(ATTEMPTS):
        with ExitStack() as opened, contextlib.suppress(FileNotFoundError):
            picture = _tried(root, reader, log, opened)
            if picture is not None:
                closing.push(opened.pop_all())
                return picture
        time.sleep(PAUSE_S)
    raise CheckpointError(
        f"{root} commits and sends faster than it can be read. Try again under less load, or stop "
        f"the run first."
    )


def _tried(
    root: Path, reader: CheckpointReader, log: CommitLog, opened: ExitStack
) -> Picture | None:
    """Return the picture, unless something changed meanwhile."""
    notes = _notes(root)
    tails = {folder: read_tail(folder) for folder in sorted((root / SPOOL).glob("*.spool"))}
    commits = _commits(root, log)
    if not commits:
        return None
    last = commits[-1]
    _require_own_input(last)
    lists, staged = _waiting(root, commits)
    files = {name: _opened(root / name, opened) for name in staged if (root / name).exists()}
    if _notes(root) != notes:
        return None
    heads = {folder: SpoolReader(folder).head() for folder in tails}
    for folder, head in heads.items():
        files.update(_input(root, folder, head, tails[folder], opened))
    try:
        state = reader.at(last.batch)
    except CheckpointError:
        if last.batch in log.batches():
            raise
        return None  # it is no longer retained
    plan = root / PLAN
    contents = {PLAN: plan.read_bytes()} if plan.exists() else {}
    return Picture(
        reader.id,
        state,
        (planned_key_groups(root) or state.groups) if last.steps else 0,
        commits,
        {**contents, **notes, **lists},
        files,
        {folder.name: (heads[folder], tail) for folder, tail in tails.items()},
    )


def _require_own_input(commit: Commit) -> None:
    """Raise CheckpointError if a part of the input is on other hosts."""
    for source, position in from_stored(commit.offsets).items():
        if names := hosts_of(position):
            raise CheckpointError(
                f"source '{source}' is received by ingresses on other hosts, too "
                f"({', '.join(names)}), whose input a savepoint cannot hold. Let them leave first: "
                f"`wallaroo ingress --leave`."
            )


def _notes(root: Path) -> dict[str, bytes]:
    paths = [path for path in outbox_files(root) if rank_of(path) == NOTES]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def _commits(root: Path, log: CommitLog) -> tuple[Commit, ...]:
    """Return the newest commits without a gap, oldest first."""
    batches = log.batches()
    if not batches:
        raise CheckpointError(
            f"{root} has no commit yet: no batch has been completed, and there is nothing to save."
        )
    commits: list[Commit] = []
    for batch in reversed(batches):
        try:
            commits.append(log.read(batch))
        except CheckpointError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            break  # it and those before it were deleted a moment ago
    return tuple(reversed(commits))


def _waiting(root: Path, commits: tuple[Commit, ...]) -> tuple[dict[str, bytes], set[str]]:
    """Return the lists of waiting output, and the names of staged files."""
    lists: dict[str, bytes] = {}
    staged: set[str] = set()
    for path in outbox_files(root):
        if rank_of(path) == LISTS and path.suffix == ".json":
            batch = read_pending(path)
            if batch.batch <= commits[-1].batch:
                lists[str(path.relative_to(root))] = path.read_bytes()
                folder = f"{OUTBOX}/{path.parent.parent.name}"
                staged.update(f"{folder}/{each['file']}" for each in batch.tokens if each["file"])
    for commit in commits:
        for sink, tokens in commit.sinks.items():
            named = (each.get("file") for each in tokens if isinstance(each, dict))
            staged.update(f"{OUTBOX}/{sink}/{file}" for file in named if file)
    return lists, staged


def _opened(path: Path, opened: ExitStack) -> OpenFile:
    file = opened.enter_context(path.open("rb"))
    return OpenFile(file, os.fstat(file.fileno()).st_size)


def _input(
    root: Path, folder: Path, head: SpoolHead, tail: Boundary, opened: ExitStack
) -> Iterator[tuple[str, OpenFile]]:
    """Yield a spool's segments from the tail to the head, with their indexes.

    The segment before the tail has the last chunk, by which a feeder resumes.
    """
    end = head.position.byte
    segments = [segment for segment in segments_of(folder) if segment.start.byte <= end]
    before = sum(segment.start.byte < tail.byte for segment in segments)
    for segment in segments[max(0, before - 1) :]:
        chunks = _opened(segment.path, opened)
        size = min(chunks.size, segment.offset(end))
        yield str(segment.path.relative_to(root)), chunks._replace(size=size)
        with contextlib.suppress(FileNotFoundError):
            index = _opened(segment.index_path, opened)
            yield str(segment.index_path.relative_to(root)), index
