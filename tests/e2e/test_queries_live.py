"""Queries that are held in the middle while the application that they look at commits, emits and
deletes old files: neither waits for the other.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import wallaroo
from tests.unit.sources.own import Numbers
from wallaroo.errors import CheckpointError
from wallaroo.monitoring.status_api.discovery import RUN_FILE
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.tables.checkpoint import CheckpointSource
from wallaroo.state.log.layout import DELTAS, SNAPSHOTS

KEYS = 8
GROUPS = 4
COMMITS = 48  # three searches for old files, each after 16 batches
LIMIT_S = 400.0
QUERY = 'select count(*) as keys, min("count") as low, max("count") as high from state."count"'
Eventually = Callable[..., None]


class Total:
    """How often a key came."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.key_extractor
def key_of(event: str) -> str:
    return str(int(event[1:]) % KEYS)


@wallaroo.state_computation(name="count", state=Total)
def count(event: str, total: Total) -> str:
    total.count += 1
    return f"{event}\n"


@wallaroo.encoder
def as_it_is(line: str) -> bytes:
    return line.encode()


class Live:
    """A running application; each commit has one event of every key."""

    def __init__(self, folder: Path, eventually: Eventually, **options: Any):
        self.root = folder / "state"
        self._limit = folder / "in" / "a"
        self._limit.parent.mkdir(exist_ok=True)
        self._out = folder / "out.txt"
        self._eventually = eventually
        numbers = wallaroo.source("numbers", Numbers("numbers", self._limit.parent, False))
        counts = numbers.key_by(key_of).to(count)
        sink = wallaroo.FileSinkConfig(self._out, encoder=as_it_is)
        application = wallaroo.build_application("counts", counts.to_sink(sink))
        chosen = RunOptions(checkpoint=self.root, key_groups=GROUPS, retain_commits=2, **options)
        self.events = int(self._limit.read_text()) if self._limit.exists() else 0
        self._allow(self.events)
        self._run = Run(application, chosen, InProcessHost(2))
        self._run.begin()

    def _allow(self, events: int) -> None:
        partial = self._limit.parent.parent / "limit"
        partial.write_text(str(events))
        partial.rename(self._limit)

    @property
    def rounds(self) -> int:
        return self.events // KEYS

    def commit(self, commits: int) -> None:
        """Wait until so many more commits were made, each with its output emitted."""
        for _ in range(commits):
            self.events += KEYS
            self._allow(self.events)
            self._eventually(self._has_emitted, f"{self.events} outputs")

    def _has_emitted(self) -> bool:
        assert self._run.exception is None
        return self._out.exists() and self._out.read_bytes().count(b"\n") == self.events

    def files(self) -> set[str]:
        """The files of state."""
        return {file for each in (DELTAS, SNAPSHOTS) for file in os.listdir(self.root / each)}

    def stop(self) -> None:
        self._run.stop()
        assert self._run.wait(LIMIT_S)
        assert self._run.exception is None


@pytest.fixture
def live(tmp_path: Path, eventually: Eventually) -> Iterator[Live]:
    made = Live(tmp_path, eventually)
    try:
        made.commit(COMMITS)
        yield made
    finally:
        made.stop()


def held(live: Live, point: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Begin a query; return when it has stopped itself."""
    command = [sys.executable, "-m", "tests.e2e.held_query", point, "sql", QUERY, "--json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*command, "--checkpoint", str(live.root), *arguments], stdout=pipe, stderr=pipe
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), process.communicate()
    return process


def released(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(("point", "is_older"), [("reading", True), ("chosen", False)])
def test_a_query_that_is_held_holds_nothing_up_and_answers_for_one_commit(
    live: Live, point: str, is_older: bool
) -> None:
    """Held while it reads it answers for its commit, whose files are deleted; before, for a new."""
    before, files = live.rounds, live.files()
    process = held(live, point)
    live.commit(COMMITS)
    assert not files & live.files(), "old files were not deleted"
    code, out, err = released(process)
    assert code == 0, err
    rounds = before if is_older else live.rounds
    assert json.loads(out) == {"keys": KEYS, "low": rounds, "high": rounds}


def test_a_query_of_a_commit_that_was_deleted_while_it_was_held_ends_with_a_sentence(
    live: Live,
) -> None:
    newest = max(int(name.partition(".")[0]) for name in os.listdir(live.root / "commits"))
    process = held(live, "chosen", "--commit", str(newest))
    live.commit(COMMITS)
    code, out, err = released(process)
    assert (code, out) == (1, "")
    assert f"commit {newest} is no longer retained in {live.root}. Retained: " in err
    assert "Traceback" not in err


def _stopped(parent: psutil.Process) -> list[psutil.Process]:
    found = []
    for process in parent.children(recursive=True):
        try:
            if process.status() == psutil.STATUS_STOPPED:
                found.append(process)
        except psutil.Error:  # it has ended
            continue
    return found


@pytest.mark.spark
@pytest.mark.java
def test_a_query_of_spark_that_is_held_holds_nothing_up_and_answers_for_one_commit(
    live: Live, spark_session: Any, eventually: Eventually
) -> None:
    class Held(CheckpointSource):
        """Stops Spark's Python process when the state's files are open, at the planned query."""

        @classmethod
        def name(cls) -> str:
            return "held"

        def state(self, commit: int | None = None) -> Any:
            state = super().state(commit)
            if not self.is_sampled:
                os.kill(os.getpid(), signal.SIGSTOP)
            return state

    spark_session.dataSource.register(Held)
    reader = spark_session.read.format("held").option("checkpoint", str(live.root))
    frame = reader.schema("key STRING, count BIGINT").load()
    before, files = live.rounds, live.files()
    found: list[Any] = []
    query = threading.Thread(target=lambda: found.extend(frame.collect()))
    query.start()
    this = psutil.Process()
    eventually(lambda: _stopped(this), "Spark's Python process has stopped")
    live.commit(COMMITS)
    assert not files & live.files(), "old files were not deleted"
    for process in _stopped(this):
        process.resume()
    query.join(LIMIT_S)
    assert {row["key"]: row["count"] for row in found} == {str(n): before for n in range(KEYS)}


def test_partitions_of_a_query_planned_before_a_run_began_end_with_a_sentence(
    tmp_path: Path, eventually: Eventually
) -> None:
    """They are read where Spark reads them, from files that the run deletes."""
    first = Live(tmp_path, eventually)
    first.commit(COMMITS)
    first.stop()
    assert not (first.root / RUN_FILE).exists()
    source = CheckpointSource({"checkpoint": str(first.root)})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    counts = [batch for part in parts for batch in reader.read(part)]
    assert pa.Table.from_batches(counts)["count"].to_pylist() == [COMMITS] * KEYS
    again = Live(tmp_path, eventually)
    try:
        again.commit(COMMITS)
        with pytest.raises(CheckpointError, match=r"is no longer retained in .* Retained: "):
            list(reader.read(parts[0]))
    finally:
        again.stop()
