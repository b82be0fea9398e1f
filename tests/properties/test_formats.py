"""Files of the checkpoint: what was written is read back, and no damaged byte goes unnoticed where
it matters.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.errors import CheckpointError
from wallaroo.state.log import commits
from wallaroo.state.log.commits import Commit, DeltaRef, SnapshotRef
from wallaroo.state.log.delta import (
    DeltaFile,
    Entry,
    Origin,
    latest,
)
from wallaroo.state.log.delta import encode as encode_file

entry = st.builds(
    Entry,
    st.integers(min_value=0, max_value=9),
    st.binary(min_size=1, max_size=6),
    st.one_of(st.none(), st.binary(max_size=6)),
)
by_group = st.dictionaries(
    st.integers(min_value=0, max_value=127),
    st.lists(entry, min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
name = st.text(max_size=8)
number = st.integers(min_value=0, max_value=2**53)
commit = st.builds(
    Commit,
    batch=number,
    offsets=st.dictionaries(name, st.lists(number, min_size=2, max_size=2), max_size=2),
    deltas=st.lists(
        st.builds(DeltaRef, name, number, number, number, number, name), max_size=3
    ).map(tuple),
    snapshots=st.lists(
        st.builds(SnapshotRef, name, number, number, number, number, name), max_size=3
    ).map(tuple),
    sinks=st.dictionaries(
        name, st.lists(st.dictionaries(name, number, max_size=2), max_size=2), max_size=2
    ),
    outputs=st.dictionaries(name, number, max_size=2),
    steps=st.lists(name, max_size=3).map(tuple),
    time_ms=number,
    checkpoint=name,
    id=name,
    parent=name,
    edit=name,
    edits=st.one_of(st.none(), st.tuples(number, name)),
)


ORIGIN = Origin("checkpoint", 7, "deltas/7.1.0.a.delta")


def encode(entries: dict[int, list[Entry]]) -> bytes:
    return encode_file(ORIGIN, entries).content


def read(content: bytes) -> dict[int, list[Entry]]:
    file = DeltaFile(content, "some.delta")
    return {group: list(file.entries(group)) for group in file.groups()}


@given(by_group)
def test_a_delta_file_gives_back_its_entries(entries: dict[int, list[Entry]]) -> None:
    assert read(encode(entries)) == entries


def test_a_delta_file_without_entries_is_legal() -> None:
    assert read(encode({})) == {}
    assert list(DeltaFile(encode({}), "empty").entries(7)) == []


@given(by_group, st.data(), st.integers(min_value=1, max_value=255))
def test_a_delta_file_with_one_damaged_byte_is_refused(
    entries: dict[int, list[Entry]], data: st.DataObject, flip: int
) -> None:
    content = bytearray(encode(entries))
    at = data.draw(st.integers(min_value=0, max_value=len(content) - 1))
    content[at] ^= flip
    with pytest.raises(CheckpointError, match=r"some\.delta"):
        read(bytes(content))


@given(by_group, st.data())
def test_a_truncated_delta_file_is_refused(
    entries: dict[int, list[Entry]], data: st.DataObject
) -> None:
    content = encode(entries)
    with pytest.raises(CheckpointError, match=r"some\.delta"):
        read(content[: data.draw(st.integers(min_value=0, max_value=len(content) - 1))])


@given(by_group, st.binary(min_size=1, max_size=9))
def test_a_delta_file_with_bytes_behind_its_end_is_refused(
    entries: dict[int, list[Entry]], more: bytes
) -> None:
    with pytest.raises(CheckpointError, match=r"some\.delta"):
        read(encode(entries) + more)


@given(st.lists(entry, max_size=12))
def test_the_latest_of_some_entries_is_what_a_dict_would_hold(entries: list[Entry]) -> None:
    expected: dict[tuple[int, bytes], bytes] = {}
    for step, key, value in entries:
        expected.pop((step, key), None)
        if value is not None:
            expected[step, key] = value
    assert latest(entries) == expected


@given(commit)
def test_a_commit_is_read_back_as_it_was(written: Commit) -> None:
    assert commits.decode(commits.encode(written), "commits/1") == written


@given(commit, st.data(), st.integers(min_value=1, max_value=255))
def test_a_commit_with_one_damaged_byte_is_refused_or_reads_the_same(
    written: Commit, data: st.DataObject, flip: int
) -> None:
    """The body is under a checksum; a head that says the same in another spelling (``0A`` for
    ``0a``) does no harm.
    """
    content = bytearray(commits.encode(written))
    head = content.index(b"\n")
    at = data.draw(
        st.one_of(
            st.integers(min_value=0, max_value=head),
            st.integers(min_value=0, max_value=len(content) - 1),
        )
    )
    content[at] ^= flip
    if at < head and _says_the_same(bytes(content[:head]), commits.encode(written)[:head]):
        assert commits.decode(bytes(content), "commits/1") == written
        return
    with pytest.raises(CheckpointError, match="commits/1"):
        commits.decode(bytes(content), "commits/1")


def _says_the_same(head: bytes, written: bytes) -> bool:
    """Whether a damaged head still has the right length and checksum, and no newer version."""
    fields, right = head.split(b" "), written.split(b" ")
    try:
        version, length, crc = int(fields[0]), int(fields[1]), int(fields[2], 16)
    except (ValueError, IndexError):
        return False
    return len(fields) == 3 and version == 2 and (length, crc) == (int(right[1]), int(right[2], 16))


@given(commit, st.data())
def test_a_truncated_commit_is_refused(written: Commit, data: st.DataObject) -> None:
    content = commits.encode(written)
    with pytest.raises(CheckpointError, match="commits/1 is corrupt or truncated"):
        commits.decode(
            content[: data.draw(st.integers(min_value=0, max_value=len(content) - 1))], "commits/1"
        )


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (3, "format version 3; this program reads version 2. Use a newer wallaroo-spark"),
        (1, "format version 1, of an earlier wallaroo-spark; this program reads version 2"),
    ],
)
def test_files_of_another_version_are_refused_with_what_to_do(version: int, message: str) -> None:
    other = bytearray(encode({1: [Entry(0, b"sx", b"1")]}))
    other[5] = version
    with pytest.raises(CheckpointError, match=message):
        DeltaFile(bytes(other), "some.delta")
    with pytest.raises(CheckpointError, match=message):
        commits.decode(b"%d" % version + commits.encode(Commit(1, {}))[1:], "commits/1")


@given(by_group, by_group)
def test_the_digest_of_a_file_is_that_of_its_content_and_of_its_origin(
    entries: dict[int, list[Entry]], others: dict[int, list[Entry]]
) -> None:
    written = encode_file(ORIGIN, entries)
    assert DeltaFile(written.content, "some.delta").digest == written.digest
    assert (encode_file(ORIGIN, others).digest == written.digest) == (entries == others)
    elsewhere = Origin("another", ORIGIN.batch, ORIGIN.file)
    assert encode_file(elsewhere, entries).digest != written.digest
