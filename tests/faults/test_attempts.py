"""Single attempts to lose, double or destroy something, on whole runs without Spark."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.errors import CheckpointError, TakenOverError
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.commits import Commit

LINES = 200
# what a hash, an encoding or a comparison may take for another key
KEYS: tuple[Any, ...] = (
    "",
    b"",
    "\0",
    b"\0",
    "0",
    b"0",
    0,
    -1,
    10**50,
    "\ud800",
    "k" * 100_000,
)


class Total:
    """How often a key came, and something large."""

    def __init__(self) -> None:
        self.count = 0
        self.filling = b""


@wallaroo.decoder(header_length=4, length_fmt=">I")
def number(payload: bytes) -> int:
    return int(payload)


@wallaroo.key_extractor
def awkward(event: int) -> Any:
    return KEYS[event % len(KEYS)]


@wallaroo.state_computation(name="total", state=Total)
def total(event: int, state: Total) -> tuple[int, int]:
    state.count += 1
    if event == 0:
        state.filling = bytes(2 << 20)
    return event, state.count


@wallaroo.encoder
def line(answer: tuple[int, int]) -> bytes:
    return b"%d %d\n" % answer


def run_of(folder: Path, sources: tuple[str, ...], **options: Any) -> Run:
    """Return a run that numbers the events of each key; a source's file is ``NAME.txt``."""
    made = [
        wallaroo.source(name, wallaroo.FileSourceConfig(name, str(folder / f"{name}.txt"), number))
        for name in sources
    ]
    merged = made[0]
    for other in made[1:]:
        merged = merged.merge(other)
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encoder=line)
    application = wallaroo.build_application(
        "attempts", merged.key_by(awkward).to(total).to_sink(sink)
    )
    chosen = RunOptions(status_address=None, checkpoint=folder / "state", **options)
    return Run(application, chosen, InProcessHost())


def finish(run: Run) -> None:
    run.start()
    assert run.wait(400)
    assert run.exception is None, run.exception


def write(folder: Path, name: str, first: int, count: int) -> None:
    with (folder / f"{name}.txt").open("a") as file:
        file.writelines(f"{value}\n" for value in range(first, first + count))


def counts(folder: Path) -> dict[Any, int]:
    entries = CheckpointReader(folder / "state").at().entries()
    return {entry.key: pickle.loads(entry.raw).count for entry in entries}


def expected(*ranges: range) -> dict[Any, int]:
    return dict(Counter(KEYS[event % len(KEYS)] for values in ranges for event in values))


def test_awkward_keys_are_kept_apart_in_deltas_snapshots_and_views(tmp_path: Path) -> None:
    """Also where the view is built again from the log, with a large value among them."""
    tuning = Tuning(snapshot_every=2)
    write(tmp_path, "A", 0, LINES)
    finish(run_of(tmp_path, ("A",), tuning=tuning))
    assert counts(tmp_path) == expected(range(LINES))
    shutil.rmtree(tmp_path / "state" / "view")
    write(tmp_path, "A", LINES, LINES)
    finish(run_of(tmp_path, ("A",), tuning=tuning))
    assert counts(tmp_path) == expected(range(2 * LINES))
    answers = [tuple(map(int, text.split())) for text in (tmp_path / "out.txt").open()]
    assert sorted(event for event, _ in answers) == list(range(2 * LINES))
    for key in range(len(KEYS)):
        numbers = [count for event, count in answers if event % len(KEYS) == key]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_source_that_was_dropped_and_put_back_goes_on_where_it_was(tmp_path: Path) -> None:
    """Nothing of it is processed twice, and what came meanwhile is not lost."""
    write(tmp_path, "A", 0, LINES)
    write(tmp_path, "B", 1000, LINES)
    finish(run_of(tmp_path, ("A", "B")))
    write(tmp_path, "A", LINES, LINES)
    finish(run_of(tmp_path, ("A",), allow_incompatible=True))
    write(tmp_path, "B", 1000 + LINES, LINES)
    finish(run_of(tmp_path, ("A", "B"), allow_incompatible=True))
    wanted = (range(2 * LINES), range(1000, 1000 + 2 * LINES))
    assert counts(tmp_path) == expected(*wanted)
    events = [int(text.split()[0]) for text in (tmp_path / "out.txt").open()]
    assert sorted(events) == [event for values in wanted for event in values]


def test_a_run_whose_lock_was_removed_commits_nothing_more(tmp_path: Path) -> None:
    """Another run may have locked the file that took its place."""
    held = open_checkpoint(tmp_path / "state", is_durable=False)
    held.owner.require()
    (tmp_path / "state" / "lock").unlink()
    held.owner.require()
    second = open_checkpoint(tmp_path / "state", is_durable=False)
    second.owner.require()
    second.commits.publish(Commit(0, {}, checkpoint=second.id, id="a"))
    with pytest.raises(TakenOverError, match=r"was taken over by epoch 2, process \d+ on "):
        held.owner.require()
    held.release()
    second.release()


def test_two_runs_on_one_checkpoint_are_one_run_and_a_refusal(tmp_path: Path) -> None:
    """The second one changes nothing."""
    write(tmp_path, "A", 0, LINES)
    held = open_checkpoint(tmp_path / "state", is_durable=False)
    second = run_of(tmp_path, ("A",))
    second.begin()
    assert second.wait(400)
    assert isinstance(second.exception, CheckpointError)
    assert "is in use by process" in str(second.exception)
    assert not (tmp_path / "out.txt").exists()
    held.release()
    finish(run_of(tmp_path, ("A",)))
    assert counts(tmp_path) == expected(range(LINES))


def test_garbage_and_idle_connections_on_a_source_harm_no_client(tmp_path: Path) -> None:
    """Claims of absurd lengths, noise, hundreds of silent connections; and descriptors come
    back.
    """
    from tests.unit.ingress.conftest import Running, tcp, wait_until
    from wallaroo.protocols.framing import frame

    running = Running(tmp_path)
    running.start(tcp("In", max_size=1000))
    try:
        idle = [running.connect() for _ in range(300)]
        for noise in (b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0" * 3):
            with running.connect() as client:
                client.sendall(noise)
                with contextlib.suppress(OSError):  # it was refused, and reset, before that
                    client.shutdown(socket.SHUT_WR)
        with running.connect() as client:
            client.sendall(b"".join(frame(b"%d" % value) for value in range(100)))
        wait_until(lambda: running.source().reader.head().position.events >= 100)
        assert running.source().payloads() == [b"%d" % value for value in range(100)]
        for connection in idle:
            connection.close()
        wait_until(lambda: running.source().reader.head().connections == 0)
    finally:
        running.feeders.stop()
