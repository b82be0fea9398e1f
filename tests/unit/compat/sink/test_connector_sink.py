"""The connector sink: each batch once in a sink program's output, whatever dies, however it
votes.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.forks import Forks
from tests.unit.compat.sink.child import CHECKPOINT, config, outputs
from tests.unit.compat.sink.program import Program
from wallaroo.compat.sink.config import SinkConnectorConfig
from wallaroo.durable.commit_id import CommitHistory, CommitId
from wallaroo.errors import CheckpointError, WallarooParameterError
from wallaroo.sinks.interface import SinkCommitter, WriteContext

ROOT = Path(__file__).parents[4]
BATCHES = 5
WANTED = b"".join(b"".join(outputs(batch)) for batch in range(BATCHES))


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.close()
    assert made.failures == []


@pytest.fixture(scope="module")
def child(child_of: Callable[..., Forks]) -> Forks:
    return child_of("tests.unit.compat.sink.child")


def run_child(child: Forks, folder: Path, port: int, fault: str = "") -> int:
    return child.run(folder, port, BATCHES, WALLAROO_FAULT=fault)[0]


@pytest.mark.parametrize(
    "fault",
    [
        "commit.before:2",
        "connector.handed:2",
        "connector.sent:3",
        "connector.phase1:3",
        "connector.ledger.write:3",
        "connector.voted:3",
        "connector.phase2:3",
        "connector.left:3",
        "outbox.left.write:3",
    ],
)
def test_a_killed_driver_loses_and_doubles_nothing(
    child: Forks, tmp_path: Path, program: Program, fault: str
) -> None:
    assert run_child(child, tmp_path, program.port, fault) == -signal.SIGKILL, (
        "the point is not passed"
    )
    assert run_child(child, tmp_path, program.port) == 0
    assert program.committed() == [WANTED]


@pytest.mark.parametrize(
    "plan",
    [
        ["no", "yes", "no", "no"],
        ["no"] * 4,
        ["gone before", "yes", "gone after"],
        ["gone after", "gone before", "no"],
    ],
    ids=" ".join,
)
def test_every_vote_and_every_lost_connection_ends_with_each_batch_once(
    child: Forks, tmp_path: Path, program: Program, plan: list[str]
) -> None:
    program.plan = list(plan)

    assert run_child(child, tmp_path, program.port) == 0

    assert program.committed() == [WANTED]
    assert program.plan == []


def test_both_die_between_the_vote_and_phase_two(
    child: Forks, tmp_path: Path, program: Program
) -> None:
    program.plan = ["yes", "gone after"]
    assert run_child(child, tmp_path, program.port, "connector.voted:2") == -signal.SIGKILL
    assert run_child(child, tmp_path, program.port, "connector.resolve:1") == -signal.SIGKILL
    assert run_child(child, tmp_path, program.port) == 0
    assert program.committed() == [WANTED]


def open_sink(folder: Path, sink: SinkConnectorConfig, *history: CommitId) -> SinkCommitter:
    staging = folder / "staging"
    staging.mkdir(exist_ok=True)
    committer = sink.committer("out", staging, False)
    committer.recover(CommitHistory(CHECKPOINT, history), [])
    return committer


def commit(committer: SinkCommitter, folder: Path, batch: int = 0) -> None:
    writer = config(1).writer(WriteContext("out", batch, 0, f"a{batch}", folder / "staging", False))
    writer.write([b"one", b"two"])
    committer.commit(CommitId(CHECKPOINT, batch, f"id{batch}"), [writer.prepare()])


def test_an_unknown_transaction_that_a_program_lists_is_aborted(
    tmp_path: Path, program: Program, eventually: Callable[..., None]
) -> None:
    program.leftover = b"another:c_id=3"
    committer = open_sink(tmp_path, config(program.port))
    commit(committer, tmp_path)
    eventually(lambda: committer.backlog() == 0, "the batch has left")
    committer.close(180)
    [disk] = program.disk.values()
    assert disk.log[0] == ("abort", b"another:c_id=3")
    assert program.committed() == [b"onetwo"]


def test_a_program_that_refuses_is_waited_for_and_named(
    tmp_path: Path, program: Program, eventually: Callable[..., None]
) -> None:
    committer = open_sink(tmp_path, config(program.port, "another"))
    commit(committer, tmp_path)
    reason = f"sink program 'out' at 127.0.0.1:{program.port} (it reports: wrong cookie)"
    eventually(lambda: committer.status().waiting_for == reason, "the reason is shown")
    program.cookie = b"another"
    program.opened = b"\0"
    eventually(lambda: "does not open" in committer.status().waiting_for, "the reason is shown")
    program.opened = b"\1"
    eventually(lambda: committer.backlog() == 0, "the batch has left")
    committer.close(180)
    assert program.committed() == [b"onetwo"]


def test_a_program_that_always_votes_no_is_reported(
    tmp_path: Path, program: Program, eventually: Callable[..., None]
) -> None:
    program.plan = ["no"] * 1000
    committer = open_sink(tmp_path, config(program.port))
    commit(committer, tmp_path)
    eventually(
        lambda: "votes against batch 0" in committer.status().waiting_for, "the reason is shown"
    )
    committer.close(0)
    assert program.committed() == [b""]


def test_a_checkpoint_that_was_rolled_back_is_refused(
    tmp_path: Path, program: Program, eventually: Callable[..., None]
) -> None:
    committer = open_sink(tmp_path, config(program.port))
    commit(committer, tmp_path)
    eventually(lambda: committer.backlog() == 0, "the batch has left")
    committer.close(180)

    again = open_sink(tmp_path, config(program.port), CommitId(CHECKPOINT, 0, "another"))

    eventually(lambda: "rolled back" in again.status().waiting_for, "the reason is shown")
    with pytest.raises(CheckpointError, match="rolled back or is an older copy"):
        again.close(1)


@pytest.mark.parametrize(("port", "cookie"), [(0, "c"), ("x", "c"), (7200, None)])
def test_a_configuration_that_cannot_work_is_refused(port: object, cookie: object) -> None:
    with pytest.raises(WallarooParameterError, match=r"is not a port|cookie is not text"):
        SinkConnectorConfig("out", None, None, port, cookie)  # type: ignore[arg-type]
