"""What all sinks have in common whose system commits by transaction."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import CHECKPOINT, commit_of, history_to
from wallaroo.durable.commit_id import CommitId
from wallaroo.durable.ownership import Ownership
from wallaroo.errors import PeerError, TakenOverError, WallarooError
from wallaroo.sinks import RollingSinkConfig
from wallaroo.sinks.queued.delivery_queue import WaitingBatches
from wallaroo.sinks.queued.group_committer import GroupCommitter, GroupSystem
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.queued_committer import QueuedCommitter
from wallaroo.sinks.queued.system import CommitContext, ExternalSystem, Session
from wallaroo.sinks.staging import Staged

SPACING_S = 0.05
BATCHES = 5


class Spaced(Session):
    """Notes when writes begin."""

    def __init__(self, begun: list[float]):
        self._begun = begun

    def last(self) -> CommitId:
        return CommitId(CHECKPOINT)

    def write(self, batch: PendingBatch, parts: Iterator[Staged]) -> bool:
        self._begun.append(time.monotonic())
        return True

    def pause_s(self) -> float:
        return max(0.0, self._begun[-1] + SPACING_S - time.monotonic()) if self._begun else 0.0

    def close(self) -> None:
        pass


class Anything(ExternalSystem[Any]):
    """Takes all."""

    errors: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    target = "nothing"

    def __init__(self) -> None:
        self.begun: list[float] = []

    def connect(self, checkpoint: str) -> Session:
        return Spaced(self.begun)

    def waiting_for(self, error: Exception) -> str:
        return ""

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        return PeerError(str(error))


def test_writes_to_a_system_to_which_each_is_costly_are_spaced(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    config: Any = RollingSinkConfig(str(tmp_path / "out"))  # whose outputs are staged as any
    system = Anything()
    context = CommitContext("s", tmp_path / "staging", is_durable=False)
    committer = QueuedCommitter(system, context, points="p")
    committer.recover(history_to(), [])
    began = time.monotonic()
    for batch in range(BATCHES):
        committer.commit(commit_of(batch), staged(config, tmp_path / "staging", batch, [b"a"]))
        eventually(lambda: committer.backlog() == 0, "the output has left")
    committer.close(60.0)
    assert len(system.begun) == BATCHES
    assert system.begun[-1] - began >= (BATCHES - 1) * SPACING_S


def test_a_list_that_returns_after_its_output_was_sent_is_dropped(tmp_path: Path) -> None:
    """A power cut undid its removal, or it is from an older image; the system keeps no ledger."""
    config: Any = RollingSinkConfig(str(tmp_path / "out"))
    staging = tmp_path / "staging"
    system = Anything()

    def opened(last: int) -> QueuedCommitter:
        committer = QueuedCommitter(system, CommitContext("s", staging, False), points="p")
        committer.recover(history_to(last), [])
        return committer

    outbox = WaitingBatches(staging, is_durable=False)
    outbox.take_up([], history_to(), [])
    for batch in range(BATCHES):
        found = PendingBatch.of(commit_of(batch), 0, staged(config, staging, batch, [b"a"]))
        assert found is not None
        outbox.add(found)
        outbox.record(found)
    shutil.copytree(staging / "pending", tmp_path / "pending")
    outbox.remove(commit_of(BATCHES - 2))
    shutil.copytree(tmp_path / "pending", staging / "pending", dirs_exist_ok=True)

    opened(BATCHES - 1).close(60.0)

    assert len(system.begun) == 1  # the newest one
    assert list((staging / "pending").iterdir()) == []


class Grouping(Anything, GroupSystem[Any]):
    """Takes all, group by group."""

    group_bytes = 1
    group_s = 0.0


def claimed(folder: Path) -> tuple[Ownership, Path]:
    """Return what is asked, and the claim, whose name another run takes away."""
    claim = folder / "owners" / "1"
    claim.parent.mkdir()
    claim.touch()
    return Ownership(str(claim), claim.stat().st_ino), claim


@pytest.mark.parametrize(
    ("committer_type", "system"), [(QueuedCommitter, Anything()), (GroupCommitter, Grouping())]
)
def test_nothing_is_written_once_another_run_took_over(
    tmp_path: Path, committer_type: type[QueuedCommitter], system: Any
) -> None:
    """The output was committed before; the other run has it in its outbox, too."""
    config: Any = RollingSinkConfig(str(tmp_path / "out"))
    owner, claim = claimed(tmp_path)
    context = CommitContext("s", tmp_path / "staging", is_durable=False)
    committer = committer_type(system, context, points="p")
    committer.recover(replace(history_to(), owner=owner), [])
    claim.rename(claim.with_name("1.over"))
    with contextlib.suppress(TakenOverError):  # its thread may have noticed that before
        committer.commit(commit_of(0), staged(config, tmp_path / "staging", 0, [b"a"]))
    committer._thread.join(400.0)
    with pytest.raises(TakenOverError):
        committer.close(0.0)
    assert system.begun == []
    assert committer.status().waiting_for == ""  # the run's error is no wait of the sink


def test_no_session_is_opened_once_another_run_took_over(tmp_path: Path) -> None:
    """Opening one ends the other run's, in systems that fence."""
    owner, claim = claimed(tmp_path)
    system = mock.Mock(spec=Anything, errors=(OSError,), target="nothing", stalled_s=60.0)
    system.pause_s.return_value = 0.0

    def connect(checkpoint: str) -> Session:
        claim.rename(claim.with_name("1.over"))
        raise ConnectionRefusedError

    system.connect.side_effect = connect
    context = CommitContext("s", tmp_path / "staging", is_durable=False)
    committer = QueuedCommitter(system, context, points="p")
    committer.recover(replace(history_to(), owner=owner), [])
    committer._thread.join(400.0)
    with pytest.raises(TakenOverError):
        committer.close(60.0)
    assert system.connect.call_count == 1
