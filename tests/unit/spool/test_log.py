"""The spool's invariants, on real files: what is appended and published is read, whole or not."""

from __future__ import annotations

import os
import pickle
from contextlib import closing
from pathlib import Path

import pytest

from wallaroo.durable.slots import FILE_BYTES, SLOT_BYTES
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.spool import (
    Boundary,
    SpoolFullError,
    SpoolHead,
    SpoolReader,
    folder_of,
    read_tail,
    write_tail,
)
from wallaroo.spool.tail import read_released
from wallaroo.spool.writer import SpoolWriter


def filled(folder: Path, sizes: list[int], segment_bytes_max: int = 1 << 26) -> SpoolWriter:
    """Append one chunk per size; chunk i holds ``size`` events and as many bytes."""
    writer = SpoolWriter(folder, is_durable=False, segment_bytes_max=segment_bytes_max)
    for number, size in enumerate(sizes):
        writer.append(
            bytes([number % 251]) * size,
            size,
            receipt_ns=number,
            connection=number % 7,
            resume=str(number).encode(),
        )
    writer.publish()
    return writer


def everything(folder: Path) -> list[tuple[int, bytes]]:
    reader = SpoolReader(folder)
    return [
        (chunk.receipt_ns, chunk.frames)
        for chunk in reader.chunks(first_of(folder), reader.head().position)
    ]


def first_of(folder: Path) -> Boundary:
    byte, events = min(path.stem for path in folder.glob("*.chunks")).split("-")
    return Boundary(int(byte), int(events))


def test_what_is_published_is_read_back_in_order(tmp_path: Path) -> None:
    filled(tmp_path, [3, 1, 5]).close()
    reader = pickle.loads(pickle.dumps(SpoolReader(tmp_path)))
    chunks = list(reader.chunks(Boundary(), reader.head().position))
    assert [chunk.frames for chunk in chunks] == [b"\0" * 3, b"\1", b"\2" * 5]
    assert chunks[2] == (2, 2, 5, b"\2" * 5, b"2")
    assert reader.head().position.events == 9


def test_what_is_not_published_is_not_seen(tmp_path: Path) -> None:
    writer = filled(tmp_path, [3])
    published = SpoolReader(tmp_path).head()
    writer.append(b"later", 1, 0)
    assert SpoolReader(tmp_path).head() == published
    writer.close()


def test_a_new_spool_has_an_empty_head(tmp_path: Path) -> None:
    assert SpoolReader(tmp_path).head() == SpoolHead()


def test_the_head_has_what_the_writer_said(tmp_path: Path) -> None:
    writer = filled(tmp_path, [1])
    writer.publish(
        is_ended=True, is_paused=True, connections=4, rejected=2, error="é" * 1000, as_of_ns=1 << 62
    )
    head = SpoolReader(tmp_path).head()
    assert head.as_of_ns == 1 << 62
    assert (head.is_ended, head.is_paused, head.connections, head.rejected) == (True, True, 4, 2)
    assert head.error == "é" * 400
    writer.close()


def test_a_writer_continues_where_the_last_one_stopped(tmp_path: Path) -> None:
    filled(tmp_path, [3, 4], segment_bytes_max=1).close()
    writer = SpoolWriter(tmp_path, is_durable=True)
    assert (writer.position.events, writer.last_resume) == (7, b"1")
    writer.append(b"xyz", 3, 9, resume=b"next")
    writer.publish()
    writer.close()
    assert [frames for _, frames in everything(tmp_path)] == [b"\0\0\0", b"\1\1\1\1", b"xyz"]


def test_a_tail_torn_at_any_byte_is_cut_off_and_whole_chunks_behind_the_head_are_kept(
    tmp_path: Path,
) -> None:
    writer = filled(tmp_path / "whole", [3])
    published = writer.position
    writer.append(b"second", 6, 1, resume=b"kept")
    kept = writer.position
    writer.append(b"third", 5, 2)
    last = writer.position
    writer.close()
    source = next((tmp_path / "whole").glob("*.chunks"))
    header = source.stat().st_size - last.byte
    for cut in range(published.byte, last.byte + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / "head").write_bytes((tmp_path / "whole" / "head").read_bytes())
        (folder / source.name).write_bytes(source.read_bytes()[: header + cut])
        writer = SpoolWriter(folder, is_durable=False)
        assert writer.position == (
            last if cut == last.byte else kept if cut >= kept.byte else published
        )
        assert writer.last_resume == (
            b"" if cut == last.byte else b"kept" if cut >= kept.byte else b"0"
        )
        writer.append(b"after", 1, 3)
        writer.publish()
        writer.close()
        assert everything(folder)[-1] == (3, b"after")


@pytest.mark.parametrize("offset", [0, 5, 33, 60, 70])
def test_a_changed_byte_below_the_head_is_an_error_that_names_file_and_byte(
    tmp_path: Path, offset: int
) -> None:
    filled(tmp_path, [20, 20]).close()
    path = next(tmp_path.glob("*.chunks"))
    content = bytearray(path.read_bytes())
    content[offset] ^= 64
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=rf"{path.name} is corrupt at byte {0 if offset < 32 else 32}"
    ):
        everything(tmp_path)


def test_a_file_that_ends_below_the_head_is_an_error_for_reader_and_writer(tmp_path: Path) -> None:
    filled(tmp_path, [20, 20]).close()
    path = next(tmp_path.glob("*.chunks"))
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match="corrupt at byte 81"):
        everything(tmp_path)
    with pytest.raises(CheckpointError, match="ends below the published head"):
        SpoolWriter(tmp_path, is_durable=False)


def test_vanished_segments_are_an_error(tmp_path: Path) -> None:
    filled(tmp_path, [20, 20], segment_bytes_max=1).close()
    for path in tmp_path.glob("*.chunks"):
        path.unlink()
    with pytest.raises(CheckpointError, match="their files are gone"):
        SpoolWriter(tmp_path, is_durable=False)


@pytest.mark.parametrize("name", ["head", "*.chunks"])
def test_a_newer_format_is_refused_in_words(tmp_path: Path, name: str) -> None:
    filled(tmp_path, [1]).close()
    path = next(tmp_path.glob(name))
    content = bytearray(path.read_bytes())
    for at in (0, 1024) if name == "head" else (0,):
        content[at + (17 if name == "head" else 11)] = 9
    path.write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"format version 9; this version of wallaroo reads up to \d"
    ):
        SpoolWriter(tmp_path, is_durable=False)


def test_a_damaged_head_slot_leaves_the_other_one(tmp_path: Path) -> None:
    writer = filled(tmp_path, [1])
    writer.publish(connections=1)
    writer.publish(connections=2)
    writer.close()
    content = bytearray((tmp_path / "head").read_bytes())
    for at in range(0, FILE_BYTES, SLOT_BYTES):
        damaged = bytearray(content)
        damaged[at] ^= 1
        (tmp_path / "head").write_bytes(damaged)
        assert SpoolReader(tmp_path).head().connections in (1, 2)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    writer = filled(tmp_path, [1])
    with pytest.raises(PeerError, match="being written by another process"):
        SpoolWriter(tmp_path, is_durable=False)
    writer.close()
    SpoolWriter(tmp_path, is_durable=False).close()


def test_only_whole_segments_below_the_tail_are_removed(tmp_path: Path) -> None:
    writer = filled(tmp_path, [10] * 6, segment_bytes_max=70)
    ends = [chunk * (10 + 28 + 1) for chunk in range(7)]
    before = len(list(tmp_path.glob("*.chunks")))
    assert writer.backlog_bytes() == ends[6]
    write_tail(tmp_path, Boundary(ends[3], 30))
    writer.remove_consumed()
    assert read_tail(tmp_path) == Boundary(ends[3], 30)
    assert (before, len(list(tmp_path.glob("*.chunks")))) == (3, 2)
    assert writer.backlog_bytes() == ends[3]
    with pytest.raises(CheckpointError, match="no longer holds byte 0"):
        list(SpoolReader(tmp_path).chunks(Boundary(), writer.position))
    write_tail(tmp_path, writer.position)
    writer.remove_consumed()
    writer.close()
    assert SpoolWriter(tmp_path, is_durable=False).last_resume == b"5"


def test_what_a_retained_commit_would_read_again_stays_and_is_no_backlog(tmp_path: Path) -> None:
    writer = filled(tmp_path, [10] * 6, segment_bytes_max=70)
    ends = [chunk * (10 + 28 + 1) for chunk in range(7)]
    write_tail(tmp_path, Boundary(ends[5], 50), Boundary(ends[1], 10))
    writer.remove_consumed()
    assert read_tail(tmp_path) == Boundary(ends[5], 50)
    assert read_released(tmp_path) == Boundary(ends[1], 10)
    assert writer.backlog_bytes() == ends[1]
    assert len(list(SpoolReader(tmp_path).chunks(Boundary(ends[1], 10), writer.position))) == 5
    writer.close()


def test_a_full_disk_stores_nothing_and_the_same_append_succeeds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(tmp_path, [3])

    def half(fd: int, parts: list[bytes], offset: int) -> int:
        return os.pwrite(fd, b"".join(parts)[:20], offset)

    def full(fd: int, content: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("wallaroo.spool.segment_file.os.pwritev", half)
        patch.setattr(
            "wallaroo.spool.segment_file._write_rest",
            lambda fd, record, written, offset: full(fd, record, offset),
        )
        with pytest.raises(SpoolFullError, match="Free disk space"):
            writer.append(b"next", 1, 1)
    writer.append(b"next", 1, 1)
    writer.publish()
    writer.close()
    assert everything(tmp_path)[-1] == (1, b"next")


def test_a_source_name_makes_one_safe_folder(tmp_path: Path) -> None:
    names = ["Split and Count", "a/b", "..", "ä", "x" * 300, "x" * 301]
    folders = [folder_of(tmp_path, name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert folder.parent == tmp_path
        folder.mkdir()


def test_the_head_carries_the_number_of_skipped_events_beside_an_error(tmp_path: Path) -> None:
    """A feeder that skips what was lost reports it to the driver by the head."""
    with closing(SpoolWriter(tmp_path, is_durable=False)) as writer:
        writer.publish(error="6 entries are lost", as_of_ns=7, skipped=6)
        head = SpoolReader(tmp_path).head()
        assert (head.skipped, head.error, head.as_of_ns) == (6, "6 entries are lost", 7)
        writer.report("no room", skipped=6)
        head = SpoolReader(tmp_path).head()
        assert (head.skipped, head.error) == (6, "no room")
