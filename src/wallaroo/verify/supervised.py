"""The run under test: started with one command line, started again with the same one whenever it
died.

Where it runs: the verifier.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.processes.environment import python_environment

STOP_S_MAX = 60.0
FRUITLESS_MAX = 8  # starts in a row without a batch committed
LOG_LINES = 25  # of the run's log, in an error


@dataclass(slots=True)
class Supervised:
    """``wallaroo run`` with these arguments.  ``log`` collects what all starts print; ``say`` is
    called at every start.
    """

    arguments: Sequence[str]
    log: Path
    say: Callable[[str], None] = print
    # of the first starts, one each: where that start is to kill itself (see wallaroo.faults)
    faults: Sequence[str] = ()
    starts: int = 0
    ends: list[int] = field(default_factory=list)  # exit codes
    environment: dict[str, str] = field(default_factory=dict)  # of the run, besides this process's
    program: Sequence[str] = ("wallaroo", "run")  # the module that runs it, and what comes first
    _process: subprocess.Popen[bytes] | None = None
    _fruitless: int = 0
    _begin: int = 0  # where in the log the last start begins

    @property
    def pid(self) -> int:
        """The driver's process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the run."""
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
        """Start the run again if it died; return whether it had.  Raises PeerError where starting
        it leads nowhere.
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
        """Ask the run to stop at a batch boundary; return its exit code.  Kills it where it does
        not stop within a minute.
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
        """End the run at once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def wait_for_end(self, seconds: float) -> int | None:
        """Wait until the run ends by itself; return its exit code, None where it goes on."""
        assert self._process is not None
        until = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        return self._process.poll()

    @property
    def has_ended(self) -> bool:
        """Whether the last start ended, and was not followed by another one yet."""
        assert self._process is not None
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """How the last start ended."""
        assert self._process is not None
        assert self._process.returncode is not None
        return self._process.returncode

    def said(self) -> str:
        """What the last start printed so far."""
        with self.log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode("utf-8", "replace")

    def tail(self) -> str:
        """The last lines of the log."""
        return (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            if self.log.exists()
            else ""
        )


def describe(code: int) -> str:
    """Say how a process ended."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
