"""What tests of a TCP sink share: numbered frames staged as tasks do, committers, and a driver that
is a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.sinks.identities import INLINE_BYTES_MAX, history_to
from wallaroo.connectors.tcp.committer import OutboxCommitter
from wallaroo.connectors.tcp.pipe import EgressConfig
from wallaroo.connectors.tcp.process import EgressTimeouts
from wallaroo.durable.commit_id import NO_BATCH, CommitId
from wallaroo.sinks.interface import WriteContext
from wallaroo.sinks.staging import StagedToken, StagedWriter
from wallaroo.spark.local_cluster.hosts import free_ports

SECONDS = 400.0
ROOT = Path(__file__).parents[3]
DRIVER = """
import json, sys
from pathlib import Path
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.tcp.sink import TCPSinkConfig
committer = TCPSinkConfig("127.0.0.1", int(sys.argv[1])).committer("s", Path(sys.argv[2]), True)
committer.recover(history_to(), ())
print("ready", flush=True)
for line in sys.stdin:
    number, tokens = json.loads(line)
    committer.commit(commit_of(number), tokens)
    committer.retain_from(number)
    print("committed", committer.egress_pid, flush=True)
"""


def frame(number: int, size: int) -> bytes:
    body = struct.pack(">Q", number) * (size // 8)
    return struct.pack(">I", len(body)) + body


class Job:
    """Makes numbered frames, batch by batch, as tasks would; keeps what must arrive."""

    def __init__(self, staging: Path, is_durable: bool = False):
        self.staging = staging
        self.is_durable = is_durable
        self.number = 0
        self.expected: list[bytes] = []

    def tokens(
        self, batch: int, count: int, size: int = 64, tasks: int = 2
    ) -> list[StagedToken | None]:
        made = []
        self.staging.mkdir(parents=True, exist_ok=True)
        for task in range(tasks):
            frames = [frame(self.number + place, size) for place in range(count)]
            self.number += count
            self.expected += [one[4:] for one in frames]
            context = WriteContext(
                "s", batch, task, f"x{batch}", self.staging, self.is_durable, INLINE_BYTES_MAX
            )
            writer = StagedWriter(context)
            writer.write(frames)
            made.append(writer.prepare())
        return made


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


class LastCommitOnly(OutboxCommitter):
    """A committer of a checkpoint that retains its last commit only."""

    def commit(self, commit: CommitId, tokens: Sequence[Any]) -> None:
        super().commit(commit, tokens)
        self.retain_from(commit.batch)


@contextlib.contextmanager
def committing(
    port: int,
    staging: Path,
    *,
    resume: bool = False,
    is_durable: bool = False,
    drain: float = SECONDS,
    last: int = NO_BATCH,
    tokens: Sequence[StagedToken | None] = (),
    retained: Sequence[Sequence[StagedToken | None]] = (),
    timeouts: EgressTimeouts | None = None,
) -> Iterator[OutboxCommitter]:
    """A committer that has recovered from a checkpoint whose last commit is ``last``: with
    ``tokens``, or with those of all commits that it retains.
    """
    config = EgressConfig("127.0.0.1", port, str(staging), is_durable, resume)
    committer = LastCommitOnly(config, timeouts)
    try:
        history = history_to(last, retained=len(retained) or 16)
        own = retained[-1] if retained else tokens
        committer.recover(replace(history, tokens=tuple(retained)), own)
        yield committer
    finally:
        committer.close(drain)


def free_port() -> int:
    return free_ports(1)[0]


def kill(committer: OutboxCommitter) -> None:
    """Kill the egress that runs now; wait for the next one."""
    pid = committer.egress_pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: committer.egress_pid != pid)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Driver:
    """A driver as a process of its own; ``commit`` returns when the committer's commit did."""

    def __init__(self, port: int, staging: Path, fault: str = ""):
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        if fault:
            environment["WALLAROO_FAULT"] = fault
        self.egress_pid = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(port), str(staging)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.is_ready = self._line() == ["ready"]

    def commit(self, batch: int, tokens: list[StagedToken | None]) -> bool:
        """Commit; False where the driver died of it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps([batch, tokens]).encode() + b"\n")
        answer = self._line()
        if answer:
            self.egress_pid = int(answer[1])
        return bool(answer)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _line(self) -> list[str]:
        """A whole line; nothing where the driver died within it."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return line.decode().split() if line.endswith(b"\n") else []

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
