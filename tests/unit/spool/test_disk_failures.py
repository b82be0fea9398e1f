"""Disks that refuse: a failed sync, a full disk, a power cut.  What was published is never lost."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wallaroo.errors import CheckpointError, PeerError
from wallaroo.spool import Boundary, SpoolDiskError, SpoolFullError, SpoolReader, write_tail
from wallaroo.spool.check import check_spool
from wallaroo.spool.format import folder_of
from wallaroo.spool.writer import SpoolWriter

SRC = str(Path(__file__).parents[3] / "src")


class FailingSync:
    """Fails the next syncs with these errors; the kernel takes the later ones for done."""

    def __init__(self, *errors: int):
        self.errors = list(errors)

    def __call__(self, fd: int) -> None:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))


def frames_of(folder: Path, start: Boundary = Boundary()) -> list[bytes]:  # noqa: B008  # frozen
    reader = SpoolReader(folder)
    return [chunk.frames for chunk in reader.chunks(start, reader.head().position)]


def drop_pages(folder: Path, position: Boundary) -> None:
    """Do what a kernel may do after a failed sync: the bytes never reach the disk."""
    segment = min(folder.glob("*.chunks"))
    content = segment.read_bytes()
    kept = 32 + position.byte
    segment.write_bytes(content[:kept] + bytes(len(content) - kept))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_bytes_whose_sync_failed_are_published_only_after_they_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    writer = SpoolWriter(tmp_path, is_durable=True)
    writer.append(b"first", 1, 1)
    published = writer.publish()
    writer.append(b"second", 1, 2)
    monkeypatch.setattr(os, "fdatasync", FailingSync(number))
    with pytest.raises(SpoolFullError if number == errno.ENOSPC else SpoolDiskError):
        writer.publish()
    assert SpoolReader(tmp_path).head().position == published
    writer.append(b"third", 1, 3)
    writer.publish()
    drop_pages(tmp_path, published)
    assert frames_of(tmp_path) == [b"first", b"second", b"third"]
    writer.append(b"fourth", 1, 4)
    writer.publish()
    writer.close()
    assert frames_of(tmp_path) == [b"first", b"second", b"third", b"fourth"]


def test_while_the_copy_fails_too_nothing_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(tmp_path, is_durable=True)
    writer.append(b"first", 1, 1)
    monkeypatch.setattr(os, "fdatasync", FailingSync(errno.EIO))
    monkeypatch.setattr(os, "fsync", FailingSync(errno.ENOSPC, errno.ENOSPC))
    for _ in range(3):
        with pytest.raises(PeerError):
            writer.publish()
        assert SpoolReader(tmp_path).head().position == Boundary()
    writer.report("no room")
    head = SpoolReader(tmp_path).head()
    assert (head.position, head.error) == (Boundary(), "no room")
    writer.publish()
    writer.close()
    assert frames_of(tmp_path) == [b"first"]
    assert list(tmp_path.glob("*.rewritten")) == []


def test_a_segment_that_cannot_be_synced_at_its_end_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(tmp_path, is_durable=True, segment_bytes_max=1)
    writer.append(b"first", 1, 1)
    monkeypatch.setattr(os, "fdatasync", FailingSync(errno.EIO))
    with pytest.raises(SpoolDiskError):
        writer.append(b"second", 1, 2)
    monkeypatch.setattr(os, "fsync", FailingSync(errno.ENOSPC))
    with pytest.raises(SpoolFullError):
        writer.append(b"second", 1, 2)
    writer.append(b"second", 1, 2)
    writer.publish()
    writer.close()
    assert frames_of(tmp_path) == [b"first", b"second"]


def test_a_segment_that_cannot_be_made_leaves_the_old_one_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(tmp_path, is_durable=True, segment_bytes_max=1)
    writer.append(b"first", 1, 1)
    writer.publish()
    for failures in (1, 2):  # the segment's own sync, then its folder's
        monkeypatch.setattr(os, "fsync", FailingAt(failures, errno.ENOSPC))
        with pytest.raises(SpoolFullError):
            writer.append(b"second", 1, 2)
    writer.append(b"second", 1, 2)
    writer.publish()
    writer.close()
    assert frames_of(tmp_path) == [b"first", b"second"]


class FailingAt:
    """Fails the nth call only."""

    def __init__(self, nth: int, number: int):
        self.left, self.number = nth, number

    def __call__(self, fd: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.number, os.strerror(self.number))


KILLED = """
import errno, os, signal, sys
from pathlib import Path
from wallaroo.spool.writer import SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]), is_durable=True)
writer.append(b"first", 1, 1)
writer.publish()
writer.append(b"second", 1, 2)
def refuse(fd):
    raise OSError(errno.EIO, "Input/output error")
os.fdatasync = refuse
try:
    writer.publish()
except Exception as error:
    print(error, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_failed_sync_and_a_kill_the_next_writer_does_not_trust_the_page_cache(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "PYTHONPATH": SRC}
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    killed = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert "the disk refused to store the spool" in killed.stdout
    published = SpoolReader(tmp_path).head().position
    writer = SpoolWriter(tmp_path, is_durable=True)
    assert writer.position.events == 2
    drop_pages(tmp_path, published)
    writer.append(b"third", 1, 3)
    writer.publish()
    writer.close()
    assert frames_of(tmp_path) == [b"first", b"second", b"third"]


class Disk:
    """What is on the disk of a folder: bytes synced once; those of a failed sync never come."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._stored: dict[int, bytes] = {}
        self._lost: dict[int, list[tuple[int, int]]] = {}
        self._held: dict[int, int] = {}  # open, so that no inode number is used again
        self.fails = False

    def sync(self, fd: int) -> None:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            return
        if found.st_ino not in self._held:
            self._held[found.st_ino] = os.dup(fd)
        content = bytearray(Path(f"/proc/self/fd/{fd}").read_bytes())
        before = len(self._stored.get(found.st_ino, b""))
        if self.fails:
            # the file has its new size, and nothing in it
            self._stored[found.st_ino] = bytes(content[:before]) + bytes(len(content) - before)
            self._lost.setdefault(found.st_ino, []).append((before, len(content)))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for low, high in self._lost.get(found.st_ino, []):
            content[low:high] = bytes(max(0, min(high, len(content)) - low))
        self._stored[found.st_ino] = bytes(content)

    def write_back_head(self) -> None:
        """Store the head, as the kernel does now and then."""
        path = self.folder / "head"
        self._stored[path.stat().st_ino] = path.read_bytes()

    def cut_power(self, has_old_head: bool) -> None:
        """Leave in the folder what the disk has; what is written from then on is new."""
        self._lost.clear()
        for path in self.folder.iterdir():
            if path.name != "head" or has_old_head:
                path.write_bytes(self._stored.get(path.stat().st_ino, b""))

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        patch = pytest.MonkeyPatch()
        patch.setattr(os, "fsync", self.sync)
        patch.setattr(os, "fdatasync", self.sync)
        try:
            yield self
        finally:
            patch.undo()
            for held in self._held.values():
                os.close(held)


WORDS = [
    "append",
    "append",
    "publish",
    "refuse",
    "consume",
    "head",
    "fail",
    "kill",
    "power",
    "old-power",
]
STEPS = st.lists(st.sampled_from(WORDS), max_size=25)
OVERLAP = "append publish append refuse publish append publish old-power"
OLD_HEAD = "append head append append publish consume old-power"


@settings(max_examples=400, deadline=None)
@given(steps=STEPS, segment_bytes_max=st.sampled_from([1, 90, 1 << 20]))
@example(steps=OVERLAP.split(), segment_bytes_max=1 << 20)
@example(steps=OLD_HEAD.split(), segment_bytes_max=1)
def test_whatever_fails_what_was_published_is_there_afterwards(
    steps: list[str], segment_bytes_max: int
) -> None:
    """Any order of appends, publications, failed syncs, kills and power cuts: a published event is
    never lost and never changed.
    """
    with tempfile.TemporaryDirectory() as name, Disk(Path(name)).mounted() as disk:

        def opened() -> SpoolWriter:
            disk.fails = False
            return SpoolWriter(disk.folder, is_durable=True, segment_bytes_max=segment_bytes_max)

        writer, number, safe = opened(), 0, 0
        for step in steps:
            if step == "fail":
                disk.fails = not disk.fails
            elif step == "head":
                disk.write_back_head()
            elif step == "consume":
                with suppress(PeerError):
                    position = writer.publish()
                    safe = position.events
                    write_tail(disk.folder, position)
                    writer.remove_consumed()
            elif step == "refuse":
                disk.fails = True
                with suppress(PeerError):
                    writer.publish()
                disk.fails = False
            elif step in ("append", "publish"):
                try:
                    if step == "publish":
                        safe = writer.publish().events
                    else:
                        writer.append(b"%d" % number, 1, number)
                        number += 1
                except PeerError:
                    assert disk.fails
            else:
                writer.close()
                if step != "kill":
                    disk.cut_power(has_old_head=step == "old-power")
                writer = opened()
                assert safe <= writer.position.events <= number
                safe = number = writer.position.events
        first = writer.first
        writer.close()
        wanted = [b"%d" % event for event in range(first.events, safe)]
        assert frames_of(disk.folder, first)[: len(wanted)] == wanted


def test_everything_of_a_spool_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer = SpoolWriter(tmp_path / "new" / "A.spool", is_durable=True, segment_bytes_max=1)
        for number in range(3):
            writer.append(b"x", 1, number)
            writer.publish()
        writer.close()
        SpoolWriter(tmp_path / "new" / "A.spool", is_durable=True).close()
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")} | {
        tmp_path / "new": stat.S_IMODE((tmp_path / "new").stat().st_mode)
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def filled(root: Path, events: int, checkpoint: str = "") -> Boundary:
    folder = folder_of(root, "A")
    writer = SpoolWriter(folder, is_durable=True, checkpoint=checkpoint)
    for number in range(events):
        writer.append(b"x", 1, number)
    position = writer.publish()
    writer.close()
    return position


def test_a_spool_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    position = filled(tmp_path, 3, "one")
    check_spool(folder_of(tmp_path, "A"), "A", "one", position)
    with pytest.raises(CheckpointError, match=r"belongs to another checkpoint.*--fresh"):
        check_spool(folder_of(tmp_path, "A"), "A", "two", position)
    with pytest.raises(CheckpointError, match="belongs to another checkpoint"):
        filled(tmp_path, 1, "two")
    assert SpoolReader(folder_of(tmp_path, "A")).head().position == position


def remove_all(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@pytest.mark.parametrize(
    ("harm", "words"),
    [(remove_all, "is missing"), (lambda folder: None, r"ends after 3")],
)
def test_a_spool_that_is_missing_or_behind_its_commit_is_refused(
    tmp_path: Path, harm: Callable[[Path], None], words: str
) -> None:
    position = filled(tmp_path, 3, "one")
    harm(folder_of(tmp_path, "A"))
    committed = Boundary(position.byte + 29, 4)
    with pytest.raises(
        CheckpointError, match=f"source 'A' has committed 4 events.*{words}.*backup"
    ):
        check_spool(folder_of(tmp_path, "A"), "A", "one", committed)


def test_a_head_older_than_the_commit_is_accepted_if_the_log_reaches_far_enough(
    tmp_path: Path,
) -> None:
    """A power cut may bring an older head back; what was committed is in the log all the same."""
    filled(tmp_path, 1, "one")
    head = folder_of(tmp_path, "A") / "head"
    old = head.read_bytes()
    position = filled(tmp_path, 2, "one")
    head.write_bytes(old)
    check_spool(folder_of(tmp_path, "A"), "A", "one", position)
    assert head.read_bytes() == old


def test_a_source_that_never_committed_needs_no_spool(tmp_path: Path) -> None:
    check_spool(folder_of(tmp_path, "A"), "A", "one", Boundary())
