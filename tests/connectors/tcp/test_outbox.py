"""Whose outbox it is: another checkpoint's, a removed commit's or one with a gap is refused before
anything in it is touched; what cannot be sent is skipped by a command.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.connectors.tcp.outbox import (
    ROOT,
    SECONDS,
    Driver,
    Job,
    committing,
    frame,
    free_port,
    until,
)
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.connectors.tcp.committer import OutboxCommitter
from wallaroo.connectors.tcp.outbox import look_into
from wallaroo.connectors.tcp.pipe import GREETING, OFFSET, EgressConfig
from wallaroo.connectors.tcp.progress import NAME, OutputProgress, read_progress
from wallaroo.connectors.tcp.skip import skip_batch
from wallaroo.durable.commit_id import CommitHistory
from wallaroo.errors import CheckpointError
from wallaroo.sinks.queued.pending import PendingList
from wallaroo.sinks.staging import StagedToken

Tokens = list[StagedToken | None]
BATCHES = 5
SIZE = 2 * 300 * 68  # bytes of a batch's output


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    """An outbox at its place in a checkpoint."""
    return tmp_path / "checkpoint" / "outbox" / "s"


def record_of(staging: Path) -> OutputProgress:
    record = read_progress(staging)
    assert record is not None
    return record


def filled(staging: Path, port: int, resume: bool = False) -> list[Tokens]:
    """Commit batches for a receiver that is away; return their tokens."""
    job = Job(staging)
    with committing(port, staging, drain=0, resume=resume) as committer:
        made = []
        for batch in range(BATCHES):
            made.append(job.tokens(batch, 300))
            committer.commit(commit_of(batch), made[-1])
        committer.retain_from(BATCHES)  # all are listed
        until(lambda: record_of(staging).last_batch == BATCHES - 1)
    return made


def refusal(staging: Path, history: CommitHistory, tokens: Tokens) -> str:
    """The error with which a run is refused; checks that nothing was touched."""

    def content() -> dict[str, bytes]:
        files = (path for path in staging.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files}

    before = content()
    committer = OutboxCommitter(EgressConfig("127.0.0.1", free_port(), str(staging), False, False))
    with pytest.raises(CheckpointError) as raised:
        committer.recover(history, tokens)
    committer.close(0)
    assert content() == before
    assert "\n" not in str(raised.value)
    return str(raised.value)


def remove_all(staging: Path) -> None:
    shutil.rmtree(staging)


def remove_record(staging: Path) -> None:
    (staging / NAME).unlink()


def test_a_missing_outbox_under_commits_is_refused(staging: Path) -> None:
    last = filled(staging, free_port())[-1]
    remove_all(staging)
    text = refusal(staging, history_to(BATCHES - 1), last)
    assert f"{staging / NAME} is missing" in text
    assert "from a copy of the checkpoint" in text


def test_a_missing_record_is_refused(staging: Path) -> None:
    last = filled(staging, free_port())[-1]
    remove_record(staging)
    assert "is missing" in refusal(staging, history_to(BATCHES - 1), last)


def test_a_sink_that_is_new_in_the_application_begins(staging: Path) -> None:
    with committing(free_port(), staging, last=3, drain=0) as committer:
        assert committer.status().committed_batch == 3


def test_the_outbox_of_another_checkpoint_is_refused(staging: Path) -> None:
    last = filled(staging, free_port())[-1]
    other = history_to(BATCHES - 1, checkpoint="f" * 32)
    text = refusal(staging, other, last)
    assert CHECKPOINT in text
    assert "f" * 32 in text


@pytest.mark.parametrize(
    "history",
    [
        history_to(BATCHES - 2),  # the newest commit was removed
        history_to(BATCHES - 1, line="b"),  # and its number is used again
        history_to(BATCHES + 3, line="b"),
    ],
)
def test_commits_that_were_removed_or_replaced_are_noticed(
    staging: Path, history: CommitHistory
) -> None:
    last = filled(staging, free_port())[-1]
    text = refusal(staging, history, last)
    assert "this checkpoint does not have" in text


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_pending_file_that_was_removed_is_a_gap_or_made_again(staging: Path, batch: int) -> None:
    made = filled(staging, free_port())
    (staging / "pending" / f"{batch:012d}.json").unlink()
    if batch < BATCHES - 1:
        text = refusal(staging, history_to(BATCHES - 1), made[-1])
        assert f"{SIZE} bytes of committed output" in text
        assert text.endswith(
            f"wallaroo sink skip {staging.parent.parent} {staging.name} --batch {batch}"
        )
    else:  # the last commit still says where it is
        with committing(free_port(), staging, last=batch, tokens=made[-1], drain=0) as committer:
            assert committer.backlog() == BATCHES * SIZE


def test_everything_in_an_outbox_is_private(staging: Path) -> None:
    filled(staging, free_port())
    # staged files are the writers' (test_staging)
    made = [staging, *(path for path in staging.rglob("*") if path.suffix != ".out")]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


# -- skipping ------------------------------------------------------------------------------------


def damage_staged(staging: Path, token: StagedToken, batch: int) -> None:
    path = staging / token["file"]
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)


def damage_listed(staging: Path, token: StagedToken, batch: int) -> None:
    path = staging / "pending" / f"{batch:012d}.json"
    path.write_text(path.read_text().replace("outputs", "outputz"))


def remove_listed(staging: Path, token: StagedToken | None, batch: int) -> None:
    (staging / "pending" / f"{batch:012d}.json").unlink()


Damage = Callable[[Path, StagedToken, int], None]


@pytest.mark.parametrize("damage", [damage_staged, damage_listed, remove_listed])
@pytest.mark.parametrize("resume", [False, True])
def test_after_a_skip_everything_else_is_sent(
    staging: Path, tmp_path: Path, damage: Damage, resume: bool
) -> None:
    port = free_port()
    made = filled(staging, port, resume)
    token = made[2][0]
    assert token is not None
    damage(staging, token, 2)
    skipped = skip_batch(staging, commit_of(2), (), is_durable=False)
    assert (skipped.bytes, skipped.at, skipped.may_have_begun) == (SIZE, 2 * SIZE, False)
    expected = b"".join(
        frame(number, 64) for number in range(BATCHES * 600) if not 1200 <= number < 1800
    )
    saved = tmp_path / "saved"
    with saved.open("ab") as out:
        with (
            Receiver(port=port, out=out, is_resuming=resume) as receiver,
            committing(port, staging, resume=resume, last=4, tokens=made[-1]) as committer,
        ):
            assert receiver.wait_for(len(expected), SECONDS)
            until(lambda: committer.backlog() == 0)
    assert saved.read_bytes() == expected
    record = record_of(staging)
    assert (record.skipped, record.released_batch) == (SIZE, 4)
    job = Job(staging)
    with (
        Receiver(port=port, is_resuming=resume, resume_at=len(expected)) as receiver,
        committing(port, staging, resume=resume, last=4, tokens=made[-1]) as committer,
    ):
        committer.commit(commit_of(5), job.tokens(5, 10))
        assert receiver.wait_for(20 * 68, SECONDS)


def test_a_resuming_receiver_that_holds_a_part_of_a_skipped_batch_is_cut_back(
    staging: Path,
) -> None:
    port = free_port()
    made = filled(staging, port, resume=True)
    token = made[2][0]
    assert token is not None
    damage_staged(staging, token, 2)
    skip_batch(staging, commit_of(2), (), is_durable=False)
    # no receiver is left at the end that could confirm what it got
    with committing(port, staging, resume=True, last=4, tokens=made[-1], drain=0.0) as committer:
        with Receiver(port=port, is_resuming=True, resume_at=2 * SIZE + 5) as receiver:
            until(lambda: f"cut what it holds to {2 * SIZE}" in committer.status().waiting_for)
            assert receiver.payloads == []
        with socket.create_server(("127.0.0.1", port)) as listener:  # it confirms nothing
            peer, _ = listener.accept()
            with peer:
                peer.sendall(GREETING + OFFSET.pack(2 * SIZE))
                assert peer.recv(1)
        # from now on such a count means output after the skipped one
        with Receiver(port=port, is_resuming=True, resume_at=2 * SIZE + 100) as receiver:
            assert receiver.wait_for(2 * SIZE - 100, SECONDS)


def test_what_can_be_sent_is_not_skipped(staging: Path) -> None:
    filled(staging, free_port())
    with pytest.raises(CheckpointError, match="is whole"):
        skip_batch(staging, commit_of(2), (), is_durable=False)
    with pytest.raises(CheckpointError, match="No output of batch 5 is missing"):
        skip_batch(staging, commit_of(5), (), is_durable=False)


@pytest.mark.parametrize(
    ("unreadable", "reason"),
    [
        ([1], "Skip that batch first: wallaroo sink skip .* --batch 1"),
        ([2, 3], "batches 2 and 3 .* are both unreadable.*from a copy of the checkpoint"),
    ],
)
def test_a_skip_that_other_damage_prevents_says_what_to_do_first(
    staging: Path, unreadable: list[int], reason: str
) -> None:
    filled(staging, free_port())
    for batch in unreadable:
        (staging / "pending" / f"{batch:012d}.json").write_text("{}")
    with pytest.raises(CheckpointError, match=reason):
        skip_batch(staging, commit_of(2), (), is_durable=False)


def test_what_a_retained_commit_still_lists_is_restored_from_it(staging: Path) -> None:
    port = free_port()
    made = filled(staging, port)
    (staging / "pending" / f"{2:012d}.json").unlink()
    skipped = skip_batch(staging, commit_of(2), made[2], is_durable=False)
    assert skipped.is_restored
    with (
        Receiver(port=port) as receiver,
        committing(port, staging, last=4, tokens=made[-1]),
    ):
        assert receiver.wait_for(BATCHES * SIZE, SECONDS)


SKIP = """
import sys
from pathlib import Path
from tests.unit.sinks.identities import commit_of
from wallaroo.connectors.tcp.skip import skip_batch
print(skip_batch(Path(sys.argv[1]), commit_of(2), ()).bytes)
"""


def test_a_skip_that_was_killed_is_done_by_the_same_command_again(staging: Path) -> None:
    port = free_port()
    made = filled(staging, port)
    remove_listed(staging, made[2][0], 2)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    printed = [
        subprocess.run(
            [sys.executable, "-c", SKIP, str(staging)],
            env={**environment, "WALLAROO_FAULT": fault},
            capture_output=True,
            check=False,
            timeout=SECONDS,
        ).stdout
        for fault in ("outbox.skip:1", "")
    ]
    assert printed == [b"", b"%d\n" % SIZE]
    with (
        Receiver(port=port) as receiver,
        committing(port, staging, last=4, tokens=made[-1]),
    ):
        assert receiver.wait_for((BATCHES - 1) * SIZE, SECONDS)


@pytest.mark.parametrize("fault", ["outbox.progress:1", "outbox.progress.fsync:1"])
def test_a_first_start_that_was_killed_is_done_again(staging: Path, fault: str) -> None:
    staging.mkdir(parents=True)
    with Driver(free_port(), staging, fault) as driver:
        assert not driver.is_ready
    job = Job(staging)
    with Receiver() as receiver, committing(receiver.address[1], staging) as committer:
        committer.commit(commit_of(0), job.tokens(0, 300))
        assert receiver.wait_for(SIZE, SECONDS)


# -- rolling back --------------------------------------------------------------------------------


def committer_of(staging: Path) -> OutboxCommitter:
    return OutboxCommitter(EgressConfig("127.0.0.1", free_port(), str(staging), False, False))


def test_a_rollback_is_followed_where_nothing_after_it_has_left(staging: Path) -> None:
    port = free_port()
    made = filled(staging, port)
    for _ in range(2):  # again does nothing
        committer_of(staging).rollback(commit_of(2), made[2])
    history = CommitHistory(CHECKPOINT, tuple(commit_of(batch) for batch in range(3)))
    job = Job(staging)
    job.number = 3 * 600
    with (
        Receiver(port=port) as receiver,
        committing(port, staging, last=2, tokens=made[2]) as committer,
    ):
        assert history.last == commit_of(2)
        committer.commit(commit_of(3, line="b"), job.tokens(3, 300))
        assert receiver.wait_for(4 * SIZE, SECONDS)
        assert b"".join(receiver.payloads) == b"".join(frame(n, 64) for n in range(4 * 600))


def test_a_rollback_to_before_what_has_left_is_refused(staging: Path) -> None:
    port = free_port()
    job = Job(staging)
    with Receiver(port=port) as receiver, committing(port, staging) as committer:
        for batch in range(2):
            committer.commit(commit_of(batch), job.tokens(batch, 300))
        assert receiver.wait_for(2 * SIZE, SECONDS)
    with pytest.raises(CheckpointError, match="up to batch 1 has left"):
        committer_of(staging).check_rollback(commit_of(0), ())
    committer_of(staging).check_rollback(commit_of(1), ())


def retained(made: list[Tokens], first: int = 0) -> CommitHistory:
    """The history of a checkpoint that retains the commits from ``first`` on, with their tokens."""
    history = history_to(len(made) - 1, retained=len(made) - first)
    return replace(history, tokens=tuple(made[first:]))


def unlisted(staging: Path, job: Job) -> list[Tokens]:
    """Commit batches for a receiver that is away, with a checkpoint that retains them all."""
    config = EgressConfig("127.0.0.1", free_port(), str(staging), False, False)
    committer = OutboxCommitter(config)
    committer.recover(history_to(), ())
    made = [job.tokens(batch, 300) for batch in range(BATCHES)]
    for batch, tokens in enumerate(made):
        committer.commit(commit_of(batch), tokens)
        committer.retain_from(0)
    until(lambda: record_of(staging).last_batch == BATCHES - 1)
    committer.close(0)
    assert not PendingList(staging, is_durable=False).numbers()
    return made


def test_output_that_only_retained_commits_name_is_sent_by_the_next_run(staging: Path) -> None:
    job = Job(staging)
    made = unlisted(staging, job)

    with Receiver(form="frames") as receiver:
        config = EgressConfig("127.0.0.1", receiver.address[1], str(staging), False, False)
        committer = OutboxCommitter(config)
        committer.recover(retained(made), made[-1])
        assert receiver.wait_for(job.number, SECONDS)
        committer.close(SECONDS)

        assert receiver.payloads == job.expected
    assert not PendingList(staging, is_durable=False).numbers()


def test_output_whose_commit_is_about_to_be_forgotten_is_listed(staging: Path) -> None:
    job = Job(staging)
    config = EgressConfig("127.0.0.1", free_port(), str(staging), False, False)
    committer = OutboxCommitter(config)
    committer.recover(history_to(), ())
    made = [job.tokens(batch, 300) for batch in range(BATCHES)]
    pending = PendingList(staging, is_durable=False)
    for batch, tokens in enumerate(made):
        committer.commit(commit_of(batch), tokens)
        committer.retain_from(max(0, batch - 1))
        assert pending.numbers() == [*range(batch - 1)]
    until(lambda: record_of(staging).last_batch == BATCHES - 1)
    committer.close(0)

    with Receiver(form="frames") as receiver:
        config = replace(config, port=receiver.address[1])
        committer = OutboxCommitter(config)
        committer.recover(retained(made, BATCHES - 2), made[-1])
        assert receiver.wait_for(job.number, SECONDS)
        committer.close(SECONDS)
        assert receiver.payloads == job.expected


def test_output_that_neither_a_file_nor_a_commit_names_is_a_gap(staging: Path) -> None:
    made = unlisted(staging, Job(staging))
    text = refusal(staging, retained(made, 2), made[-1])
    assert "lacks batch" in text


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_skip_leaves_what_only_commits_name_to_the_next_run(
    staging: Path, is_damaged: bool
) -> None:
    """Batch 1 has lost its file of output; the ones after it are not listed, or batch 1's own
    pending file is damaged.
    """
    job = Job(staging)
    made = unlisted(staging, job)
    per_batch = job.number // BATCHES
    (staging / str(made[1][0]["file"])).unlink()  # type: ignore[index]  # there is a token
    if is_damaged:
        pending = PendingList(staging, is_durable=False)
        first, second, *_ = look_into(staging, pending, retained(made), made[-1]).unlisted
        pending.add(first)
        pending.add(second)
        (staging / "pending" / f"{1:012d}.json").write_text("{}")

    skipped = skip_batch(staging, commit_of(1), made[1], is_durable=False, history=retained(made))

    assert skipped.outputs == per_batch
    with Receiver(form="frames") as receiver:
        config = EgressConfig("127.0.0.1", receiver.address[1], str(staging), False, False)
        committer = OutboxCommitter(config)
        committer.recover(retained(made), made[-1])
        assert receiver.wait_for(job.number - per_batch, SECONDS)
        committer.close(SECONDS)
        expected = job.expected[:per_batch] + job.expected[2 * per_batch :]
        assert receiver.payloads == expected


def test_output_that_a_lost_machine_took_is_skipped_and_the_stream_continues(
    staging: Path,
) -> None:
    """Batch 0 is on disk; the commits after it were lost, and the outbox knows of them."""
    job = Job(staging)
    made = unlisted(staging, job)
    per_batch = job.number // BATCHES
    filler = commit_of(BATCHES + 10)
    history = CommitHistory(
        CHECKPOINT, (commit_of(0), filler), (made[0], ()), recovered=filler.batch
    )
    with Receiver(form="frames") as receiver:
        config = EgressConfig("127.0.0.1", receiver.address[1], str(staging), False, False)
        committer = OutboxCommitter(config)
        committer.recover(history, ())
        committer.commit(commit_of(filler.batch + 1), job.tokens(filler.batch + 1, 300))
        assert receiver.wait_for(2 * per_batch, SECONDS)
        committer.close(SECONDS)
        assert receiver.payloads == job.expected[:per_batch] + job.expected[-per_batch:]
