"""Input that was accepted and not processed is part of a savepoint."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import wallaroo
from tests.savepoints.test_saving import quiet, read_upto
from tests.unit.runtime.applications import GATE, ROOT, Numbers, text, until
from wallaroo.checkpoints.maintenance.verification import verify
from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources.interface import SourceConfig
from wallaroo.spool.format import folder_of
from wallaroo.spool.reader import SpoolReader

FIRST = 50
EVENTS = 500
GENERATED = 1000
SLOWLY = Tuning(pace=Pace(events_first=20, events_max=20))  # so that much waits
TCP = wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, text)


@wallaroo.encoder
def held_line(event: str) -> bytes:
    """Hold what comes once half has come."""
    if int(event) >= GENERATED // 2:
        GATE.wait(400)
    return event.encode() + b"\n"


def copying(source: SourceConfig[str], folder: Path, out: str, **options: object) -> Run:
    sink = wallaroo.FileSinkConfig(folder / out, encoder=held_line, name="file")
    application = wallaroo.build_application("copy", wallaroo.source("in", source).to_sink(sink))
    chosen = RunOptions(status_address=None, module_paths=(ROOT,), **options)  # type: ignore[arg-type]
    run = Run(application, chosen, InProcessHost())
    run.begin()
    return run


def ended(run: Run) -> None:
    run.stop()
    assert run.wait(400)
    assert run.exception is None


def sent(run: Run, numbers: range) -> None:
    with socket.create_connection(run.addresses["in"]) as client:
        for number in numbers:
            payload = str(number).encode()
            client.sendall(struct.pack(">I", len(payload)) + payload)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_what_clients_of_a_port_have_sent_is_processed_by_who_starts_from_a_savepoint(
    tmp_path: Path,
) -> None:
    """Saved while a batch is under way; the fork listens to clients of its own."""
    state = tmp_path / "state"
    run = copying(TCP, tmp_path, "out.txt", checkpoint=state)
    assert run.wait_started(120)
    sent(run, range(FIRST))
    until(lambda: len(lines(tmp_path / "out.txt")) == FIRST)
    GATE.clear()
    try:
        sent(run, range(FIRST, EVENTS))
        spool = SpoolReader(folder_of(state / "spool", "in"))
        until(lambda: spool.head().position.events == EVENTS)
        save(str(state), str(tmp_path / "saved"), quiet)
    finally:
        GATE.set()
    until(lambda: len(lines(tmp_path / "out.txt")) == EVENTS)
    ended(run)

    begun = copying(
        TCP,
        tmp_path,
        "other.txt",
        checkpoint=tmp_path / "new",
        from_savepoint=tmp_path / "saved",
        is_fork=True,
    )
    assert begun.wait_started(120)
    until(lambda: len(lines(tmp_path / "other.txt")) == EVENTS - FIRST)
    sent(begun, range(EVENTS, EVENTS + FIRST))
    until(lambda: len(lines(tmp_path / "other.txt")) == EVENTS)
    ended(begun)

    assert read_upto(tmp_path / "saved") == FIRST
    assert lines(tmp_path / "out.txt") == [str(number) for number in range(EVENTS)]
    rest = [str(number) for number in range(FIRST, EVENTS + FIRST)]
    assert lines(tmp_path / "other.txt") == rest
    assert not verify(tmp_path / "saved").damages
    assert not verify(tmp_path / "new").damages


def test_a_feeders_source_resumes_where_its_saved_input_ends(tmp_path: Path) -> None:
    source = wallaroo.GenSourceConfig("in", Numbers(GENERATED))
    GATE.clear()
    try:
        run = copying(source, tmp_path, "out.txt", checkpoint=tmp_path / "state", tuning=SLOWLY)
        until(lambda: lines(tmp_path / "out.txt"))
        save(str(tmp_path / "state"), str(tmp_path / "saved"), quiet)
    finally:
        GATE.set()
    assert run.wait(400)
    saved = {"from_savepoint": tmp_path / "saved", "is_fork": True}

    fork = copying(source, tmp_path, "fork.txt", checkpoint=tmp_path / "fork", **saved)
    assert fork.wait(400)

    assert (run.exception, fork.exception) == (None, None)
    after = read_upto(tmp_path / "saved")
    assert 0 < after <= GENERATED // 2
    assert lines(tmp_path / "out.txt") == [str(number) for number in range(GENERATED)]
    assert lines(tmp_path / "fork.txt") == [str(number) for number in range(after, GENERATED)]
