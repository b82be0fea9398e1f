"""A checkpoint folder as cache of a log in an object store.

The invariants:

* A commit counts once the store has confirmed it and every file that it names.  The folder is ahead
  by one commit at most, on which the next batch is computed meanwhile; a start uses the store's
  commits, regardless of the folder's.
* The folder's files are used only if the last fence of the log is of a run that used this folder;
  `CACHE` notes these runs before they fence.  Otherwise another run has sent output unknown to this
  folder: everything but the spools is cleared and read from the store.
* A commit carries the sinks' notes of sent output, and the new lists of waiting output, as of
  before its own output is sent. An image has all of the sinks' files, in an order that stays
  complete while a sink sends: staged output first, then the lists, then the notes.  Lists are not
  withdrawn: the notes state which of them have left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallaroo.durable.folders import is_store_url, make_private, user_folder
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import CheckpointError, WallarooError
from wallaroo.instrumentation.tuning import DEFAULT, Tuning
from wallaroo.state.log import layout
from wallaroo.state.log.background import begun
from wallaroo.state.log.commit_record import Commit, body_of, commit_of
from wallaroo.state.log.commit_segments import encode_segment
from wallaroo.state.log.line import CommitFile
from wallaroo.state.log.storage import LocalStorage
from wallaroo.state.store.objects import READERS
from wallaroo.state.store.records import APART_BYTES, Head, Kind, Record, checked, encode, packed
from wallaroo.state.store.store_log import Listed, Past, StoreLog

CACHE = "cache.json"  # in a folder that is a cache: its URL and its runs
IMAGE_FILE = ".image.tmp"
IMAGE_BYTES_MIN = 64 << 20
STAGED = ".out"
LISTS = "pending"
CLAIM_TRIES = 20
NOTE_BYTES_MAX = 64 * 1024


def cache_folder(url: str) -> Path:
    """Return the folder on this machine that is the cache of a URL.

    It is below ``WALLAROO_CACHE``, by default ``wallaroo`` in the user's folder for caches.
    """
    own = os.environ.get("WALLAROO_CACHE")
    folder = Path(own) if own else user_folder("XDG_CACHE_HOME", ".cache") / "wallaroo"
    words = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-.")
    return folder / f"{words[-64:]}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def checkpoint_folder(place: str) -> Path:
    """Return the folder on this machine of a checkpoint that a user names by folder or URL.

    >>> checkpoint_folder("counts")
    PosixPath('counts')
    """
    return cache_folder(place.rstrip("/")) if is_store_url(place) else Path(place)


class StoredCheckpoint:
    """One run's use of a checkpoint in an object store.

    Call its methods in order.
    """

    def __init__(self, log: StoreLog, root: Path, tuning: Tuning = DEFAULT):
        self._log = log
        self._root = root
        self._past: Past | None = None
        self.identity = ""
        self.is_current = False  # whether the folder's files may be used
        self.commits: tuple[Commit, ...] = ()  # those of the log
        self._before: Commit | None = None
        self._noted: dict[str, bytes] = {}  # the plan and the sinks' notes, as last sent
        self._listed: set[Path] = set()  # lists of waiting output that were sent
        self._apart: dict[str, int] = {}  # large files, by the number of the object that holds them
        self._images = _Images(log, root, tuning.image_every)
        self._owner = _OwnerQuestion(tuning.owner_check_s)

    @property
    def url(self) -> str:
        return self._log.url

    @property
    def epoch(self) -> int:
        """Return the number of this run among all that owned the log."""
        return self._log.last.epoch

    @property
    def positions(self) -> frozenset[str]:
        """Return the names of the sources that have a position."""
        return frozenset(self.commits[-1].offsets) if self.commits else frozenset()

    # -- the start

    def look(self) -> bool:
        """Read the log; return whether it holds commits.  Raises PeerError or CheckpointError.

        A store that is used for the first time is probed.
        """
        self._past = self._log.past()
        if self._past is None:
            self._log.probe()
            return False
        self.commits = tuple(_commits_of(self._past))
        return bool(self.commits)

    @property
    def last_owner(self) -> str:
        """Describe the run that owned the log last, after `look`."""
        return self._past.newest.head.owner if self._past else ""

    @property
    def is_cached(self) -> bool:
        """Return whether the folder is that of the run that owned the log last, after `look`."""
        note = self._noted_runs()
        return bool(self._past and note["is_whole"] and self._past.newest.head.run in note["runs"])

    @property
    def origin(self) -> bytes:
        """Return the note of the savepoint that the log began from, after `look`."""
        for record in reversed(self._past.all if self._past else ()):
            for file, content in record.contents():
                if file.name == layout.ORIGIN:
                    return content
        return b""

    def rebuild(self, storage: LocalStorage) -> None:
        """Make an empty folder a checkpoint of its own, after `look`, with all but the spools."""
        assert self._past is not None
        identity = {"version": layout.VERSION, "id": self._past.newest.head.checkpoint}
        self.fill(storage)
        (self._root / CACHE).unlink()
        first = CommitFile(self.commits[0].batch, 0, is_segment=True)
        make_private(self._root / layout.COMMITS)
        storage.publish(first.name, self.segment())
        storage.publish(layout.FORMAT, layout.with_checksum(json.dumps(identity)))

    def begin(self, identity: str, commits: Sequence[Commit]) -> None:
        """Let an empty log, after `look`, begin with commits and the folder's content.

        The run that claims the log next finds it as if another run had ended in order.
        """
        head = self._past.newest.head if self._past else None
        if not self._log.fence(head, identity, is_fresh=True):
            raise CheckpointError(
                f"another run began with the checkpoint {self.url} a moment ago. Give this one a "
                f"place of its own."
            )
        for path in self._root.glob(f"{layout.SNAPSHOTS}/*"):
            if path.stat().st_size >= APART_BYTES:
                name = f"{layout.SNAPSHOTS}/{path.name}"
                self._log.put_file(name, path)
                self._apart[name] = self._log.last.number
        image = self._images.store(commits, self._apart)
        self._log.append(Kind.END, image=image)

    def claim(self, *, is_fresh: bool, is_taking_over: bool) -> None:
        """Own the log from here on.

        Raises CheckpointError if a run on another machine may still use it.
        """
        for attempt in range(CLAIM_TRIES):
            if attempt or self._past is None:
                self.look()
            head = self._past.newest.head if self._past else None
            note = self._noted_runs()
            is_ours = head is None or head.run in note["runs"]
            if head and not is_ours and head.kind is not Kind.END and not is_taking_over:
                raise CheckpointError(
                    f"checkpoint {self.url} is in use by {head.owner}, or that run was killed. If "
                    f"it is gone, or is to end, `wallaroo run --take-over` continues in its place."
                )
            self.is_current = bool(head) and is_ours and note["is_whole"] and not is_fresh
            before = [head.run] if head and is_ours else []
            self._note([*before, self._log.run], is_whole=self.is_current)
            identity = head.checkpoint if head and not is_fresh else uuid.uuid4().hex
            if self._log.fence(head, identity, is_fresh=is_fresh):
                self.identity = identity
                if is_fresh:
                    self._past = None
                    self.commits = ()
                self._before = self.commits[-1] if self.commits else None
                return
        raise CheckpointError(
            f"several runs take the checkpoint {self.url} over from each other. Leave one of them, "
            f"then try again."
        )

    def _noted_runs(self) -> dict[str, Any]:
        """Return the runs that used this folder, and whether it is a complete cache."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            note: dict[str, Any] = json.loads((self._root / CACHE).read_bytes())
            if note["url"] == self.url:
                return note
        return {"runs": [], "is_whole": False}

    def _note(self, runs: Sequence[str], *, is_whole: bool) -> None:
        note = {"url": self.url, "runs": runs, "is_whole": is_whole}
        content = json.dumps(note).encode()
        write_whole(self._root / CACHE, content, is_durable=True, points="store.note")

    def fill(self, storage: LocalStorage) -> None:
        """Copy missing files into the folder."""
        needed: dict[str, int] = {}
        for commit in self.commits:
            needed.update((delta.file, delta.size) for delta in commit.deltas if not delta.inline)
            needed.update((snapshot.file, snapshot.size) for snapshot in commit.snapshots)
        for record in self._past.all if self._past else ():
            head = record.head
            self._apart.update((file.name, head.number) for file in head.files if file.is_apart)
            for name, content in self._contents(record, needed):
                path = self._root / name
                make_private(path.parent, is_durable=storage.is_durable)
                storage.publish(name, content)
        if not self.is_current:
            self._note([self._log.run], is_whole=True)
        if self._past is not None:
            self._images.begin_after(self._past)
        self._past = None

    def _contents(self, record: Record, needed: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield the files of an object that the folder lacks."""

        def is_wanted(name: str) -> bool:
            path = self._root / name
            if name in needed:
                return not path.exists() or path.stat().st_size != needed[name]
            return not self.is_current and name.startswith(
                (layout.PLAN, layout.ORIGIN, f"{layout.OUTBOX}/")
            )

        for file, content in record.contents():
            if is_wanted(file.name):
                yield file.name, content
        for file in record.head.files:
            if file.is_apart and is_wanted(file.name):
                stored = self._log.file(file.name)
                # a run that took over deletes what it no longer needs
                if stored is None and self._log.is_fenced:
                    self.ask()
                yield file.name, checked(file, stored)

    def segment(self) -> bytes:
        """Return the commits as one segment of the folder."""
        return encode_segment(self.commits)

    # -- the run

    def append(self, commit: Commit) -> None:
        """Add a commit with its files to the log; return once the store has answered.

        Raises TakenOverError if another run owns the log, PeerError if the store does not answer.
        """
        before = self._before
        contents = {name: (self._root / name).read_bytes() for name in files_of(commit, before)}
        noted = _notes(self._root)
        contents.update(noted.items() - self._noted.items())
        listed = set(self._root.glob(f"{layout.OUTBOX}/*/{LISTS}/*.json"))
        contents.update(_contents_of(self._root, listed - self._listed))
        apart = [name for name, content in contents.items() if len(content) >= APART_BYTES]
        files, payload = packed(contents, apart)
        if apart:
            with ThreadPoolExecutor(READERS) as writers:
                list(writers.map(lambda name: self._log.put_file(name, contents[name]), apart))
        head = replace(self._log.last, commits=(_text(commit, before),), files=files)
        number = self._log.append(Kind.COMMITS, Record(head, payload), self._images.ready()).number
        self._before = commit
        self._noted = noted
        self._listed = listed
        self._apart.update((name, number) for name in apart)
        self._owner.answered()
        self._images.appended(len(payload), self._apart)

    def housekeep(self, commits: Iterable[Commit]) -> None:
        """Begin an image if one is due; ``commits`` are those that the folder retains."""
        if self._images.is_due:
            retained = tuple(commits)
            self._images.begin(retained, self._apart)

    @property
    def waiting_for(self) -> str:
        """Return a message that the store does not answer; empty if it does."""
        return self._log.waiting_for

    def require(self) -> None:
        """Raise TakenOverError if another run owns the log, as it answered last.

        The store is asked at intervals, and in another thread: it may be silent for long.
        """
        self._owner.require(self.ask)

    def ask(self) -> None:
        """Raise TakenOverError if another run owns the log."""
        self._owner.answered()
        number = self._log.last.number + 1
        while (other := self._log.read(number)) is not None:
            if other.head.run != self._log.run:
                raise self._log.taken_over(other)
            number += 1  # the answer to it is in flight

    def close(self) -> None:
        """Note in the log that this run has ended normally, if it still owns it.

        A run that ends while a commit is under way, for lack of an answer, has not.
        """
        self._images.close()
        if not self._log.is_fenced or self._log.is_appending:
            return
        with contextlib.suppress(WallarooError):
            self._log.append(Kind.END, image=self._images.ready(), tries=3)


def cached_url(root: Path) -> str:
    """Return the URL of which a folder is the cache; empty if it is none."""
    try:
        note = json.loads((root / CACHE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    return str(note["url"])


def place_of(root: Path) -> str:
    """Return what users call a checkpoint: the URL of which its folder is the cache, or that."""
    return cached_url(root) or str(root)


class _OwnerQuestion:
    """Periodic check, in its own thread, that this run owns the log."""

    def __init__(self, every_s: float):
        self._every_s = every_s
        self._asked_s = time.monotonic()
        self._asking: Future[None] | None = None

    def answered(self) -> None:
        """Record an equivalent answer."""
        self._asked_s = time.monotonic()

    def require(self, ask: Callable[[], None]) -> None:
        """Raise the last check's error; start the next check if it is due."""
        asked = self._asking
        if asked is not None:
            if not asked.done():
                return
            self._asking = None
            asked.result()
        if time.monotonic() - self._asked_s >= self._every_s:
            self._asking = begun(ask, "wallaroo-owner")


class _Images:
    """The images of a run.

    They are begun periodically, stored by a thread, announced by the next commit.
    """

    def __init__(self, log: StoreLog, root: Path, every: int):
        self._log = log
        self._root = root
        self._every = every
        self._objects = 0  # since the last image
        self._bytes = 0
        self._image_bytes = 0
        self._begun: Head | None = None
        self._listed: Listed | None = None  # set by the thread, once the image is stored
        self._thread: threading.Thread | None = None

    def begin_after(self, past: Past) -> None:
        """Note the content of the log since its image."""
        self._objects = len(past.records)
        self._bytes = sum(len(record.payload) for record in past.records)
        self._image_bytes = len(past.image.payload) if past.image else 0

    @property
    def is_due(self) -> bool:
        if self._begun is not None or (self._thread and self._thread.is_alive()):
            return False
        bytes_max = max(IMAGE_BYTES_MIN, self._image_bytes)
        return self._objects >= self._every or self._bytes >= bytes_max

    def begin(self, commits: Sequence[Commit], apart: Mapping[str, int]) -> None:
        """Copy the folder's content into an image, and begin to store it."""
        head, file = self._written(commits, apart)
        self._start(lambda: self._store(head, file))

    def store(self, commits: Sequence[Commit], apart: Mapping[str, int]) -> Head:
        """Store the folder's content as an image; return its head."""
        head, file = self._written(commits, apart)
        self._store(head, file)
        return head

    def _written(self, commits: Sequence[Commit], apart: Mapping[str, int]) -> tuple[Head, Path]:
        contents = {
            name: (self._root / name).read_bytes()
            for commit, before in zip(commits, (None, *commits), strict=False)
            for name in files_of(commit, before)
            if (self._root / name).exists()  # output that was sent has no file
        }
        contents.update(_outbox(self._root))
        contents.update(_notes(self._root))
        files, payload = packed(contents, apart)
        head = replace(
            self._log.last,
            kind=Kind.IMAGE,
            commits=tuple(
                _text(commit, before)
                for commit, before in zip(commits, (None, *commits), strict=False)
            ),
            files=files,
        )
        file = self._root / IMAGE_FILE
        file.write_bytes(encode(Record(head, payload)))
        self._begun = head
        self._objects = 0
        self._bytes = 0
        self._image_bytes = len(payload)
        return head, file

    def _store(self, head: Head, file: Path) -> None:
        self._listed = self._log.put_image(head, file)
        file.unlink(missing_ok=True)

    def ready(self) -> Head | None:
        """Return the image that the next object may announce."""
        return self._begun if self._listed is not None else None

    def appended(self, size: int, apart: dict[str, int]) -> None:
        """Count an object; if it announced an image, delete everything that the image replaces."""
        self._objects += 1
        self._bytes += size
        image = self._begun
        listed = self._listed
        if image is None or listed is None or self._log.last.since != image.number:
            return
        self._begun = None
        self._listed = None
        kept = {file.name for file in image.files if file.is_apart}
        for name in [each for each, at in apart.items() if at <= image.number]:
            if name not in kept:
                del apart[name]
        needed = tuple(apart)
        self._start(lambda: self._log.sweep(listed, image, needed))

    def _start(self, work: object) -> None:
        def run() -> None:
            with contextlib.suppress(WallarooError):  # the next image tries again
                work()  # type: ignore[operator]  # see the callers

        self._thread = threading.Thread(target=run, name="wallaroo-store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(10.0)


def _commits_of(past: Past) -> Iterator[Commit]:
    """Yield the commits of a log, oldest first."""
    before: Commit | None = None
    for record in past.all:
        for text in record.head.commits:
            raw = json.loads(text)
            known = before.snapshots if before and raw["snapshots"] is None else None
            before = commit_of(raw, known)
            yield before


def _text(commit: Commit, before: Commit | None) -> str:
    is_same = before is not None and before.snapshots == commit.snapshots
    return body_of(commit, has_snapshots=not is_same).decode()


def files_of(commit: Commit, before: Commit | None) -> Iterator[str]:
    """Yield the names of the files that a commit adds to the folder."""
    yield from (delta.file for delta in commit.deltas if not delta.inline)
    if before is None or before.snapshots is not commit.snapshots:
        known = {ref.file for ref in before.snapshots} if before else set()
        yield from (ref.file for ref in commit.snapshots if ref.file not in known)
    for sink, tokens in commit.sinks.items():
        for token in tokens:
            if isinstance(token, dict) and token.get("file"):
                yield f"{layout.OUTBOX}/{sink}/{token['file']}"


def _notes(root: Path) -> dict[str, bytes]:
    """Return the plan, the note of the savepoint, and the sinks' notes."""
    paths = (path for path in outbox_files(root) if rank_of(path) == 2)
    contents = _contents_of(root, (root / layout.PLAN, root / layout.ORIGIN, *paths))
    return {name: each for name, each in contents.items() if len(each) <= NOTE_BYTES_MAX}


def _outbox(root: Path) -> dict[str, bytes]:
    """Return the sinks' files in the order of this module's invariants."""
    return _contents_of(root, sorted(outbox_files(root), key=lambda path: (rank_of(path), path)))


def rank_of(path: Path) -> int:
    """Return 0 for staged output, 1 for a pending list, 2 for a sink's note.

    >>> [rank_of(Path("sink", name)) for name in ("7.out", "pending/7.json", "left.json")]
    [0, 1, 2]
    """
    return 0 if path.suffix == STAGED else 1 if path.parent.name == LISTS else 2


def outbox_files(root: Path) -> Iterator[Path]:
    """Yield the files of the sinks that a later run needs."""
    for folder, _, names in os.walk(root / layout.OUTBOX):
        for name in names:
            if not name.endswith((".tmp", ".log", "lock")):
                yield Path(folder, name)


def _contents_of(root: Path, paths: Iterable[Path]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # its output was sent
            contents[str(path.relative_to(root))] = path.read_bytes()
    return contents
