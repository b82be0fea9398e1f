"""The run under test, restarted with the same command line on death, and its progress."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wallaroo.errors import PeerError
from wallaroo.processes.environment import python_environment
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result

STOP_S_MAX = 180.0
FRUITLESS_MAX = 8  # starts in a row without a batch committed
LOG_LINES = 25  # last lines of the run's log in an error


@dataclass(slots=True)
class Supervised:
    """``wallaroo run`` with these arguments.

    ``log`` collects the output of all starts; ``say`` is called at every restart.
    """

    arguments: Sequence[str]
    log: Path
    say: Callable[[str], None] = print
    # fault points for the first starts, one each, at which they kill themselves
    # (wallaroo.instrumentation.faults)
    faults: Sequence[str] = ()
    starts: int = 0
    ends: list[int] = field(default_factory=list)  # exit codes
    environment: dict[str, str] = field(default_factory=dict)  # added to this process's
    program: Sequence[str] = ("wallaroo", "run")  # the module that runs it, and its first arguments
    _process: subprocess.Popen[bytes] | None = None
    _fruitless: int = 0
    _begin: int = 0  # offset of the last start in the log

    @property
    def pid(self) -> int:
        """Return the driver's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        fault = self.faults[self.starts] if self.starts < len(self.faults) else ""
        self.starts += 1
        environment = python_environment(WALLAROO_FAULT=fault)
        if not fault:
            environment |= self.environment
        with self.log.open("ab") as log:
            self._begin = log.tell()
            log.write(b"--- start %d\n" % self.starts)
            log.flush()
            command = [sys.executable, "-m", *self.program, *self.arguments]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the verifier alone
            )

    def look(self) -> bool:
        """Restart the run if it died; return whether it had.

        Raises PeerError after more than ``FRUITLESS_MAX`` starts in a row without a batch
        committed.
        """
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return False
        self.ends.append(code)
        self._fruitless += 1
        if self._fruitless > FRUITLESS_MAX:
            what = f"The run ended {self._fruitless} times in a row without a batch done."
            raise PeerError(f"{what} Its log ends so:\n{self.tail()}")
        self.say(f"the run ended ({describe(code)}); starting it again")
        self.start()
        return True

    def has_progressed(self) -> None:
        """Note that a batch was committed since the last start."""
        self._fruitless = 0

    def stop(self) -> int:
        """Stop the run at a batch boundary; return its exit code.

        If it does not stop within ``STOP_S_MAX``, it is killed, and PeerError is raised.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(
                f"The run did not stop within {STOP_S_MAX:.0f} s. Its log ends so:\n{self.tail()}"
            ) from None

    def kill(self) -> None:
        """Kill the run, if it is running."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def wait_for_end(self, seconds: float) -> int | None:
        """Wait until the run ends; return its exit code, None if it continues."""
        assert self._process is not None
        until = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        return self._process.poll()

    @property
    def has_ended(self) -> bool:
        """Return whether the last start ended, and no restart has followed yet."""
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """Return the exit code of the last start."""
        assert self._process is not None
        assert self._process.returncode is not None
        return self._process.returncode

    def said(self) -> str:
        """Return the output of the last start so far."""
        with self.log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode("utf-8", "replace")

    def tail(self) -> str:
        """Return the last lines of the log."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            if self.log.exists()
            else ""
        )


def describe(code: int) -> str:
    """Return the name of the signal that ended a process, or its exit code, as text."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


class ReceivedOutputs(Protocol):
    """The receiver, as a verification uses it."""

    @property
    def address(self) -> tuple[str, int]:
        """Return the host and port it listens on."""

    @property
    def count(self) -> int:
        """Return the number of bytes received so far."""


class RunProgress:
    """Progress of ``run``, by its checkpoint and its receiver."""

    def __init__(self, checkpoint: Path, inbox: ReceivedOutputs, run: Supervised, result: Result):
        self._storage = LocalStorage(str(checkpoint), False)
        self._commits = CommitLog(self._storage)
        self._inbox = inbox
        self._run = run
        self._result = result
        self._killed_at: dict[Kind, float] = {}  # kills not recovered from yet
        self.batch = -1  # last commit at the mark
        self._received = 0  # bytes at the mark

    @property
    def received(self) -> int:
        """Return the bytes of output received so far."""
        return self._inbox.count

    def mark(self) -> None:
        """Set the mark, from which progress is measured."""
        self.batch = self._last_batch()
        self._received = self.received

    def note_kill(self, kind: Kind) -> None:
        """Start to measure the recovery from a kill."""
        self._killed_at.setdefault(kind, time.monotonic())

    def is_made(self) -> bool:
        """Return, and note, whether a commit and output arrived since the mark."""
        if self._last_batch() <= self.batch or self.received <= self._received:
            return False
        for kind, at in self._killed_at.items():
            self._result.recoveries[kind].append(time.monotonic() - at)
        self._killed_at.clear()
        self._run.has_progressed()
        return True

    def is_all_committed(self, sent: Mapping[str, int]) -> bool:
        """Return whether commits contain exactly ``sent`` events of each source."""
        last = CommitLog(self._storage).last()  # a new log reads from the start
        offsets = last.offsets if last else {}
        return all(offsets.get(source, [0, 0])[1] == count for source, count in sent.items())

    def _last_batch(self) -> int:
        batches = self._commits.batches()
        return batches[-1] if batches else -1
