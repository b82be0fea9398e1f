"""The committer of a directory with one file per batch.

Where it runs: driver.

The invariant: a part appears whole, by rename, under a name that is its identity:
``part-<batch>-<writer>-<commit>``.  ``writer`` identifies the checkpoint and the sink, ``commit``
the commit.  So a part is published if and only if its name exists, and a part of another run, of
another sink or of a commit that was rolled back is never mistaken for the one with its number.
``.committed`` names the writer of the directory while it has no part yet, and states how far it was
rolled back.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from wallaroo.connectors.file.committer import FileCommitter, FileTarget, make_folder
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.durable.whole_file import USER_FILE, sync_folder, write_whole
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.staging import StagedToken, read_staged

FORMAT = 2  # format 1 had no marker, and parts named by number only
MARKER = ".committed"
PART = re.compile(r"part-(\d{12,})-([0-9a-f]{12})-([0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class DirectoryMarker:
    """The writer of a directory.

    ``rolled_back`` is the newest part that a rollback removed.
    """

    checkpoint: str
    sink: str
    rolled_back: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """The content of a directory: own parts by batch, names of others."""

    own: dict[int, list[str]]
    foreign: list[str]


def writer_of(checkpoint: str, sink: str) -> str:
    """Return the id of a checkpoint's sink in the names of parts."""
    return blake2b(f"{checkpoint}\0{sink}".encode(), digest_size=6).hexdigest()


def part_name(commit: CommitId, sink: str) -> str:
    digest = blake2b(commit.id.encode(), digest_size=6).hexdigest()
    return f"part-{commit.batch:012d}-{writer_of(commit.checkpoint, sink)}-{digest}"


class DirectoryCommitter(FileCommitter):
    """The committer of a directory: one file per batch, published by rename."""

    def __init__(self, place: FileTarget):
        super().__init__(place)
        self._marker = DirectoryMarker("", place.sink)
        self._is_new = True  # whether to write the marker before the first part

    @property
    def _folder(self) -> Path:
        return self._place.target

    def _inspect(self, history: CommitHistory, staged: Sequence[StagedToken]) -> None:
        marker = self._read_marker()
        parts = self._parts(history.checkpoint)
        if parts.foreign:
            raise self._foreign(f"output of another run ({parts.foreign[0]})", history)
        is_ours = marker is not None and marker.checkpoint == history.checkpoint
        if marker is not None and is_ours and marker.sink != self._place.sink:
            raise self._foreign_sink(marker.sink)
        names = {part_name(commit, self._place.sink) for commit in history.retained}
        if marker is not None and is_ours and marker.rolled_back in names:
            raise self._moved_back(history)
        first = history.retained[0].batch if history.retained else 0
        for batch, found in sorted(parts.own.items()):
            if batch > history.last.batch or (batch >= first and not names.issuperset(found)):
                raise self._not_in_history(batch, history)
        self._marker = DirectoryMarker(history.checkpoint, self._place.sink)
        self._is_new = not is_ours

    def _begin(self) -> None:
        make_folder(self._place.target, self._place.is_durable)
        writer = writer_of(self._marker.checkpoint, self._place.sink)
        for unfinished in self._place.target.glob(f".part-*-{writer}-*.tmp"):
            fault_point("file.orphan")
            unfinished.unlink(missing_ok=True)
        if self._is_new:
            self._write_marker(self._marker)
            self._is_new = False

    def _holds(self, commit: CommitId) -> bool:
        return (self._place.target / part_name(commit, self._place.sink)).exists()

    def _publish(self, commit: CommitId, staged: Sequence[StagedToken]) -> None:
        if self._holds(commit):
            return
        bodies = (read_staged(self._place.staging, token).body for token in staged)
        path = self._place.target / part_name(commit, self._place.sink)
        is_durable = self._place.is_durable
        write_whole(path, bodies, is_durable=is_durable, points="file", mode=USER_FILE)

    def _wipe(self) -> None:
        for part in self._place.target.glob("part-*"):
            part.unlink()
            fault_point("file.wiped")
        (self._place.target / MARKER).unlink(missing_ok=True)

    # -- rollback

    def _inspect_rollback(self, to: CommitId) -> None:
        marker = self._read_marker()
        parts = self._parts(to.checkpoint)
        is_other = marker is not None and marker.checkpoint != to.checkpoint
        if parts.foreign or (is_other and parts.own):
            raise CheckpointError(
                f"{self._place.target} holds output that is not of this checkpoint"
            )
        if marker is not None and not is_other and marker.sink != self._place.sink:
            raise CheckpointError(f"{self._place.target} is written by sink '{marker.sink}'")
        if any(name != part_name(to, self._place.sink) for name in parts.own.get(to.batch, ())):
            raise CheckpointError(f"{self._place.target} has another commit {to.batch}")

    def _roll_back(self, to: CommitId) -> None:
        parts = self._parts(to.checkpoint)
        removed = sorted(
            (name for batch, names in parts.own.items() if batch > to.batch for name in names),
            reverse=True,
        )
        if not removed:
            return
        self._write_marker(DirectoryMarker(to.checkpoint, self._place.sink, removed[0]))
        for name in removed:  # newest first: what remains is always the beginning of the output
            fault_point("file.remove_part")
            (self._place.target / name).unlink(missing_ok=True)
        if self._place.is_durable:
            fault_point("file.parts_removed")
            sync_folder(self._place.target)

    # -- the folder

    def _parts(self, checkpoint: str) -> Parts:
        writer = writer_of(checkpoint, self._place.sink)
        ours: dict[int, list[str]] = {}
        foreign = []
        for name in self._names():
            found = PART.fullmatch(name)
            if found is not None and found[2] == writer:
                ours.setdefault(int(found[1]), []).append(name)
            else:
                foreign.append(name)
        return Parts(ours, sorted(foreign))

    def _names(self) -> Iterator[str]:
        try:
            with os.scandir(self._place.target) as entries:
                yield from (entry.name for entry in entries if entry.name.startswith("part-"))
        except FileNotFoundError:
            return

    @property
    def _marker_path(self) -> Path:
        return self._place.target / MARKER

    def _write_marker(self, marker: DirectoryMarker) -> None:
        content = json.dumps({"format": FORMAT, **asdict(marker)}).encode()
        is_durable = self._place.is_durable
        write_whole(
            self._marker_path, content, is_durable=is_durable, points="file.marker", mode=USER_FILE
        )

    def _read_marker(self) -> DirectoryMarker | None:
        try:
            fields: dict[str, Any] = json.loads(self._marker_path.read_text(encoding="utf-8"))
            if fields["format"] != FORMAT:
                raise ValueError("another version of wallaroo wrote it")
            return DirectoryMarker(
                str(fields["checkpoint"]), str(fields["sink"]), str(fields["rolled_back"])
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self._marker_path} cannot be used ({error}), so whose output "
                f"{self._place.target} holds is unknown. Restore it from a backup; or move the "
                f"directory to another place, and this sink begins a new one."
            ) from error
