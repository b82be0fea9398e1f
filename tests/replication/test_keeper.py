"""The replica's answers, one request after the other."""

from __future__ import annotations

import errno
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError, TakenOverError
from wallaroo.network.key_files import read_key
from wallaroo.network.replica import REPLICA_KEY, Replica
from wallaroo.network.replica_link import (
    ReplicaLink,
    Sent,
    Stated,
    UnreadyError,
)
from wallaroo.state.log.owners import adopt_claim, make_claim, owner_words
from wallaroo.state.replication.keeper import COPY, Keeper


def test_what_is_stated_was_sent(replica: Replica, copy: Path) -> None:
    link = ReplicaLink(replica, "run")
    link.write([Sent("commits/1", b"one"), Sent("deltas/a", b"a"), Sent("commits/1", b" two", 3)])

    assert set(link.stated(["commits", "deltas", "snapshots"])) == {"commits/1", "deltas/a"}
    assert (copy / "commits" / "1").read_bytes() == b"one two"
    link.close()


@pytest.mark.parametrize("name", ["../a", "/a", "lock", "owners/000000000009", ""])
def test_a_file_that_is_not_a_checkpoints_is_refused(replica: Replica, name: str) -> None:
    link = ReplicaLink(replica, "run")
    with pytest.raises(CheckpointError, match="is not the name of a checkpoint's file"):
        link.write([Sent(name, b"x")])
    link.close()


def test_a_file_whose_sync_failed_comes_whole_once_more(
    replica: Replica, tmp_path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync, the next one succeeds, and may have written nothing."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "1").write_bytes(b"one two")
    link = ReplicaLink(replica, "run")
    link.write([Sent("commits/1", b"one")])

    def refuse(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", refuse)
        with pytest.raises(UnreadyError, match=r"its disk refuses: .*Input/output error"):
            link.write([Sent("commits/1", b" two", 3)])
    inode = (copy / "commits" / "1").stat().st_ino
    stated = link.stated(["commits"])
    link.bring(tmp_path, ["commits/1"], stated)

    assert stated == {}
    assert (copy / "commits" / "1").stat().st_ino != inode
    assert link.stated(["commits"])["commits/1"] == Stated(7, zlib.crc32(b"one two"))
    link.close()


@pytest.mark.parametrize(("epoch", "owner"), [(4, "r4"), (5, "another")])
def test_a_run_that_is_not_later_is_refused(replica: Replica, epoch: int, owner: str) -> None:
    ReplicaLink(replica, "run").close()
    with pytest.raises(TakenOverError, match="is that of another run"):
        ReplicaLink(replace(replica, epoch=epoch, owner=owner), "run")


def test_a_later_run_ends_the_former(replica: Replica) -> None:
    former = ReplicaLink(replica, "run")
    later = ReplicaLink(replace(replica, epoch=6, owner="r6"), "run")

    with pytest.raises(UnreadyError):
        former.write([Sent("commits/1", b"late")])
    assert later.stated(["commits"]) == {}
    former.close()
    later.close()


def test_who_lacks_the_key_is_not_answered_and_reported_once(
    replica: Replica, copy: Path, reported: list[str]
) -> None:
    """Each link connects several times."""
    with pytest.raises(OSError, match=r"is --replica-key a copy of its replica\.key"):
        ReplicaLink(replace(replica, secret="00" * 32), "run")
    assert reported == [
        "refused a connection from 127.0.0.1, which has another key: --replica-key of its run has "
        f"to be a copy of {copy / REPLICA_KEY}"
    ]


def test_the_key_file_is_this_users_alone(replica: Replica, copy: Path) -> None:
    assert (copy / REPLICA_KEY).stat().st_mode & 0o777 == 0o600
    assert read_key(copy / REPLICA_KEY, "").secret == replica.secret
    assert replica.secret not in repr(replica)


def test_a_copy_that_a_run_continues_from_reports_who_took_it_over(copy: Path) -> None:
    adopt_claim(copy, 5, f"{COPY}r5")
    (copy / REPLICA_KEY).touch()
    lines: list[str] = []
    keeper = Keeper(copy, lines.append)
    make_claim(copy, is_durable=False)
    keeper.look()
    keeper.look()
    (line,) = lines
    assert line.startswith(f"{copy} was taken over by epoch 6, {owner_words()}, since ")
    assert line.endswith(": it is a copy no longer, and its former run is refused.")
