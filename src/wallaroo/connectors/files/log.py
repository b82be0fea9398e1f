"""Many files as one log.

Where it runs: the driver lists files, workers read ranges.

A position's place is ``{"files": {name: [done, size]}, "gone": events, "removed": files, "unread":
number, "home": folder}``: how far each file was read, in bytes; about how many events were in files
that were read and no longer exist, and what identifies these (`removed`); the number of files that
were listed and not begun; and, for a relative path, the folder that it was first relative to.

The invariants:

* A file does not change once it exists: one whose size differs from that of the first listing
  ends the run, before anything more of it is read.
* A file that was read to its end may be removed.  Its name remains marked as read, in case it was
  only temporarily missing; the newest `FILES_MAX` of them do.  One removed earlier ends the run.
* A file's name is its absolute path; of a relative path, the one it had in the first such folder.
  So a file stays read if the application's folder, with its files, is moved or copied.
* Each file is a partition, from when it is listed until it is read to its end: so files of one
  period are not late for each other, in whatever order they are read.
* A file that cannot be read in parts (it is compressed) is read in one batch, by one task.
* An object store that does not answer blocks its readers, and ends nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wallaroo.connectors.files import removed
from wallaroo.connectors.files.reading import is_whole, records
from wallaroo.connectors.files.source import FilesSourceConfig
from wallaroo.connectors.files.storage import FileStore, moved
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog

LOOK_S = 1.0  # how long a list of the files remains valid
EVENT_BYTES = 100  # assumed size of an event, to estimate how many are waiting
PIECE_BYTES_MIN = 64 * 1024  # a smaller part of a file is not worth a task
PATIENCE_S = 30.0  # how long the start of a run waits for a store that does not answer
RETRY_S = 1.0
_log = logging.getLogger("wallaroo.run")

Files = dict[str, list[int]]  # name -> [done, size]


@dataclass(slots=True)
class _Seen:
    """The last list of files, in this process."""

    sizes: dict[str, int]
    at: float
    error: str = ""


class FilesLog(SourceLog):
    """The log of many files; see the module's docstring."""

    counts_events = False  # a plan estimates them from bytes

    def __init__(
        self,
        source: str,
        storage: FileStore,
        form: str,
        is_watching: bool,
        bound: dict[str, int] | None = None,
        home: str = "",
    ):
        """Create a log; ``bound``: the files of the first listing, without ``watch``.

        ``home``: the folder that a relative path was relative to at first.
        """
        self._source = source
        self._storage = storage
        self._form = form
        self._is_watching = is_watching
        self._bound = bound
        self._folder = storage.relative_to
        self._home = home or self._folder
        self._seen: _Seen | None = None
        self._gone = 0  # events of files that were forgotten, as far as this process knows

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self._source, self._storage, self._form, self._is_watching, self._bound)
        return FilesLog, (*fields, self._home)

    # -- planning ---------------------------------------------------------------------------------

    def beginning(self) -> Position:
        self._find_bound()
        return self._position({}, 0)

    def require(self, position: Position) -> None:
        """Raise PeerError if the place cannot be listed, or a file has changed or is missing."""
        if self._folder:
            self._home = position.place.get("home", self._folder)
        self._find_bound()
        files = self._checked(position, self._sizes())
        unread = sum(not done for done, _ in files.values())
        expected = position.place.get("unread", 0)
        if unread < expected and not self._is_watching:
            raise PeerError(
                f"Source '{self._source}': {expected} files of {self._storage.path} waited to be "
                f"read, and {unread} are there. Put them back (is the disk mounted?), or start "
                f"over with an empty checkpoint directory."
            )
        self._gone = int(position.place["gone"])

    def head(self) -> Head:
        sizes = self._sizes()
        error = self._seen.error if self._seen is not None else ""
        files = {name: [size, size] for name, size in sizes.items()}
        return Head(self._position(files, self._gone), is_ended=not self._is_watching, error=error)

    def backlog_events(self, position: Position, head: Head) -> int:
        files: Files = head.position.place["files"]
        done = _read(position, {name: size for name, (_, size) in files.items()})
        return sum(
            max(0, _events(*state) - _events(*done.get(name, (0, state[1]))))
            for name, state in files.items()
        )

    def committed(self, position: Position, released: Position | None) -> None:
        self._gone = int(position.place["gone"])

    def advance(self, start: Position, events_max: int) -> Position:
        """Advance file by file, in the order of their names."""
        files = self._checked(start, self._sizes())
        before: Files = start.place["files"]
        lost = {name: state for name, state in before.items() if name not in files}
        back = {name: files[name] for name in _read(start, self._sizes()) if name not in before}
        gone = int(start.place["gone"]) + _sum(lost) - _sum(back)
        missing = removed.with_changes(
            start.place.get("removed", ""), {name: size for name, (_, size) in lost.items()}, back
        )
        left = max(PIECE_BYTES_MIN, events_max * EVENT_BYTES)
        for name in sorted(files):
            done, size = files[name]
            if left <= 0:
                break
            step = size - done if is_whole(name) else min(left, size - done)
            if step:
                files[name] = [done + step, size]
                left -= step
        started = {name: state for name, state in files.items() if state[0]}
        reached = self._position(started, max(0, gone), missing, len(files) - len(started))
        counted = int(start.place["gone"]) + _sum(before)
        return replace(reached, events=start.events + max(0, reached.events - counted))

    def _position(self, files: Files, gone: int, missing: str = "", unread: int = 0) -> Position:
        place: dict[str, Any] = {"files": dict(sorted(files.items())), "gone": gone}
        if missing:
            place["removed"] = missing
        if unread:
            place["unread"] = unread
        if self._home:
            place["home"] = self._home
        return Position(place, gone + _sum(files))

    def split(self, start: Position, end: Position, pieces: int) -> list[list[Range]]:
        """Cut at bytes; a record that crosses a cut belongs to the range in which it begins."""
        files: Files = end.place["files"]
        before = _read(start, {name: size for name, (_, size) in files.items()})
        parts = [
            (name, before.get(name, [0, 0])[0], done) for name, (done, _) in sorted(files.items())
        ]
        parts = [part for part in parts if part[1] < part[2]]
        total = sum(high - low for _, low, high in parts)
        size = max(PIECE_BYTES_MIN, -(-total // pieces))
        lists: list[list[Range]] = []
        room = 0
        for name, start_at, high in parts:
            low = start_at
            while low < high:
                if room <= 0:
                    lists.append([])
                    room = size
                middle = high if is_whole(name) else min(high, low + room)
                place = (low, self._path(name))
                lists[-1].append(Range(name, place, middle, (middle - low) // EVENT_BYTES + 1))
                room -= middle - low
                low = middle
        return lists

    def backlog_bytes(self, position: Position, head: Head) -> int:
        files: Files = head.position.place["files"]
        done = _read(position, {name: size for name, (_, size) in files.items()})
        return sum(size - done.get(name, [0, 0])[0] for name, (_, size) in files.items())

    def partitions(self, position: Position) -> frozenset[str]:
        """Return the unfinished files, each of which holds time back until it is read."""
        sizes = self._sizes()
        done = _read(position, sizes)
        return frozenset(name for name, size in sizes.items() if done.get(name, (0, 0))[0] < size)

    # -- reading ----------------------------------------------------------------------------------

    def read(self, part: Range) -> Iterator[Records]:
        """Yield a range's records; wait for an object store that does not answer.

        Raises CheckpointError if the file was removed, PeerError if it cannot be read.
        """
        passed_on = 0
        is_reported = False
        path = part.start[1]
        while True:
            try:
                for block in self._records_after(part, passed_on):
                    passed_on += len(block)
                    origin = partial(_origin, path)
                    yield Records(part.partition, time.time_ns(), block, origin=origin)
                return
            except FileNotFoundError as error:
                raise CheckpointError(
                    f"source '{self._source}': {path} is gone and was not processed to its end. "
                    f"Put it back, then run again."
                ) from error
            except (OSError, ValueError) as error:  # Arrow's errors of files are ValueErrors
                if not self._may_pass(error):
                    raise PeerError(
                        f"source '{self._source}': {path} cannot be read: "
                        f"{_words(error)}. Nothing is lost: correct it, then run again."
                    ) from error
                if not is_reported:
                    what = "source '%s': %s cannot be read at the moment (%s); trying on"
                    _log.warning(what, self._source, path, _words(error))
                    is_reported = True
            time.sleep(RETRY_S)

    def _records_after(self, part: Range, count: int) -> Iterator[list[Any]]:
        """Read the range without its first ``count`` records; files never change."""
        left_out = 0
        low, path = part.start
        for block in records(self._storage, self._form, path, low, part.end):
            skipped = min(len(block), count - left_out)
            left_out += skipped
            if skipped < len(block):
                yield block[skipped:] if skipped else block

    def _may_pass(self, error: Exception) -> bool:
        if not self._storage.is_s3 or not isinstance(error, OSError):
            return False
        return self._storage.is_transient(error)

    # -- the list of files ------------------------------------------------------------------------

    def _find_bound(self) -> None:
        """List the files for the first time, with retries.  Raises PeerError."""
        until = time.monotonic() + (PATIENCE_S if self._storage.is_s3 else 0.0)
        while self._bound is None:
            sizes = self._sizes()
            assert self._seen is not None
            if not self._seen.error:
                self._bound = sizes
            elif time.monotonic() >= until:
                raise PeerError(
                    f"Source '{self._source}': {self._seen.error}. Is the path right, and may it "
                    f"be read?"
                )
            else:
                time.sleep(RETRY_S)
                self._seen = None

    def _sizes(self) -> dict[str, int]:
        if self._bound is not None and not self._is_watching:
            return self._bound
        seen = self._seen
        now = time.monotonic()
        if seen is not None and now - seen.at < LOOK_S:
            return seen.sizes
        try:
            latest = _Seen(self._named(self._listed()), now)
        except OSError as error:
            known = seen.sizes if seen is not None else {}
            latest = _Seen(known, now, f"{self._storage.path} cannot be listed: {_words(error)}")
        self._seen = latest
        return latest.sizes

    def _listed(self) -> dict[str, int]:
        """Return the files; with ``watch`` none if the prefix of an object store has no objects."""
        try:
            return self._storage.sizes()
        except FileNotFoundError:  # a bucket that is missing is another error
            if self._is_watching and self._storage.is_s3:
                return {}
            raise

    def _named(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return a list of files by the names that positions have."""
        if self._home == self._folder:
            return sizes
        return {moved(path, self._folder, self._home): size for path, size in sizes.items()}

    def _checked(self, position: Position, sizes: dict[str, int]) -> Files:
        """Return the readable files, with how far each was read.

        Raises PeerError if a file has changed, or was removed too early.
        """
        files: Files = {name: [0, size] for name, size in sizes.items()}
        before: Files = position.place["files"]
        is_same = removed.returned(position.place.get("removed", ""), sizes, before)
        for name, is_same_size in is_same.items():
            if not is_same_size:
                raise self._changed(name, "another size", sizes[name])
            files[name] = [sizes[name], sizes[name]]
        for name, (done, size) in before.items():
            if name in sizes and sizes[name] != size:
                raise self._changed(name, f"{size:,} bytes", sizes[name])
            if name in sizes:
                files[name] = [done, size]
            elif done < size:
                raise PeerError(
                    f"Source '{self._source}': {self._path(name)} is gone after {done:,} of "
                    f"{size:,} bytes were read. Put it back, then run again."
                )
        return files

    def _path(self, name: str) -> str:
        """Return the path of a file by its name in a position."""
        return moved(name, self._home, self._folder)

    def _changed(self, name: str, before: str, size: int) -> PeerError:
        return PeerError(
            f"Source '{self._source}': {self._path(name)} had {before} when it was found and has "
            f"{size:,} now. A file has to be complete when it appears: write it under another "
            f"name, such as .{name.rpartition('/')[2]}, and rename it. A name is read once: a new "
            f"file needs a name of its own, also if an earlier one was removed."
        )


def _read(position: Position, sizes: dict[str, int]) -> Files:
    """Return how far files were read, with removed ones that are there again."""
    files: Files = position.place["files"]
    back = removed.returned(position.place.get("removed", ""), sizes, files)
    return {**files, **{name: [sizes[name], sizes[name]] for name in back}} if back else files


def _origin(file: str, number: int) -> dict[str, str]:
    return {"file": file}


def _sum(files: Files) -> int:
    return sum(_events(*state) for state in files.values())


def _events(done: int, size: int) -> int:
    """Return the approximate number of events read from a file, which never decreases."""
    return done // EVENT_BYTES + (done > 0) + (done == size)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())


def open_log(config: FilesSourceConfig[Any], context: LogContext) -> FilesLog:
    storage = FileStore(config.path, tuple(sorted(config.options.items())))
    is_watching = config.watch and not context.until_now
    return FilesLog(config.name, storage, config.form, is_watching)
