"""A copy that connects during a run: its content once a commit counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from wallaroo.durable.ownership import Ownership
from wallaroo.network.replica import Replica
from wallaroo.network.replica_link import ReplicaLink, Sent
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.staging import StagedToken, StagedWriter, read_staged
from wallaroo.state.log.commits import Commit
from wallaroo.state.log.layout import COMMITS, DELTAS, FORMAT, OUTBOX, SNAPSHOTS, SPOOL
from wallaroo.state.log.owners import Claim
from wallaroo.state.replication.replicator import _Files

PIECE = [b"x" * 1000] * 2000  # more than a writer gathers before it writes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a run before its first commit."""
    root = tmp_path / "root"
    for name in (COMMITS, DELTAS, SNAPSHOTS, f"{OUTBOX}/out", SPOOL):
        (root / name).mkdir(parents=True)
    (root / FORMAT).write_bytes(b"{}")
    (root / "claim").write_bytes(b"r5\nclaim")
    return root


@pytest.fixture
def files(root: Path) -> Iterator[_Files]:
    with open(root / "claim", "rb", buffering=0) as file:
        yield _Files(root, Claim(5, Ownership(str(root / "claim"), 0), file, is_durable=False))


@pytest.fixture
def link(replica: Replica) -> Iterator[ReplicaLink]:
    link = ReplicaLink(replica, "run")
    yield link
    link.close()


def test_output_that_a_task_writes_while_the_copy_connects_is_whole_once_committed(
    root: Path, copy: Path, files: _Files, link: ReplicaLink
) -> None:
    folder = root / OUTBOX / "out"
    writer = StagedWriter(WriteContext("out", 7, 0, "attempt", folder, False, 0))
    writer.write(PIECE)
    files.bring_up(link, is_new=False)
    writer.write(PIECE)
    token = writer.prepare()
    assert token is not None

    files.send(link, Commit(7, {}, sinks={"out": [token]}))

    assert read_staged(copy / OUTBOX / "out", token).body == b"".join(PIECE * 2)


def test_output_that_was_whole_when_the_copy_connected_is_not_sent_again(
    root: Path, files: _Files, link: ReplicaLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = root / OUTBOX / "out"
    writer = StagedWriter(WriteContext("out", 7, 0, "attempt", folder, False, 0))
    writer.write(PIECE)
    token = writer.prepare()
    files.bring_up(link, is_new=False)
    sent: list[Sent] = []
    monkeypatch.setattr(link, "write", sent.extend)

    files.send(link, Commit(7, {}, sinks={"out": [token]}))

    assert sent == []


def test_a_commit_published_while_the_copy_connects_is_not_there_before_its_files(
    root: Path, copy: Path, files: _Files, link: ReplicaLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / COMMITS / "1").write_bytes(b"first;")
    token = StagedToken(file="7.out", inline="", bytes=6, outputs=1, crc=0)

    def publish(files: Iterable[Sent]) -> None:
        write(files)
        (root / OUTBOX / "out" / "7.out").write_bytes(b"output")
        (root / COMMITS / "1").write_bytes(b"first;second;")

    write = link.write
    with monkeypatch.context() as patched:
        patched.setattr(link, "write", publish)
        files.bring_up(link, is_new=False)
    there = copy / OUTBOX / "out" / "7.out"
    assert not there.exists()
    assert (copy / COMMITS / "1").read_bytes() == b"first;"

    files.send(link, Commit(7, {}, sinks={"out": [token]}))

    assert there.read_bytes() == b"output"
    assert (copy / COMMITS / "1").read_bytes() == b"first;second;"
