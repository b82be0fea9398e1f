"""Parent side of the protocol between parent and child.

Where it runs: driver.

The protocol is described in ``processes.child``.

A child gets a session of its own, so that Ctrl-C reaches the driver only.  Lines of its stdout that
are not part of the protocol come from user code, and go to this process's stdout; its stderr goes
to the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import IO, Any

import msgspec

from wallaroo.processes.child import CONFIGURATION, HEARTBEAT
from wallaroo.processes.environment import python_environment

WORDS = ("READY", "ACKS", "ERROR")
BODY = "BODY"  # the rest of the line is passed on unchanged
END = "END"  # end of a child's output
LAST_WORD_S = 5.0  # from a child's end to that of its output

Log = Callable[[str], None]


class Child:
    """A child process: ``python -m`` with ``command``; ``environment`` is added to ours.

    ``configuration`` is a value of JSON, or a dataclass of them, which may hold secrets.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Log,
        environment: Mapping[str, str] = MappingProxyType({}),
        configuration: object = None,
    ):
        self.name = name
        self.command = list(command)
        self.configuration = configuration
        self.is_done = False  # whether it has ended as expected
        self.lines: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._heartbeat, beats = os.pipe()
        os.set_blocking(self._heartbeat, False)
        os.set_blocking(beats, False)
        try:
            with _unnamed(msgspec.json.encode(configuration)) as file:
                self.process = _started(self.command, beats, file.fileno(), environment)
        finally:
            os.close(beats)
        self._alive_at = time.monotonic()
        threading.Thread(target=_read_words, args=(self,), daemon=True).start()
        self._logging = threading.Thread(target=_log_stderr, args=(self.process, log), daemon=True)
        self._logging.start()

    @property
    def module(self) -> str:
        """Return the module that the child runs; unlike its name, the user does not choose it."""
        return self.command[0]

    @property
    def silent_s(self) -> float:
        """Return the seconds since the child's last heartbeat."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._heartbeat, 4096):
                self._alive_at = time.monotonic()
        return time.monotonic() - self._alive_at

    def last_line(self, seconds: float = LAST_WORD_S) -> tuple[str, Any]:
        """Return an ended process's error report, or ``END`` if it sent none.

        A process that it started may hold its stdout open, so it is waited for ``seconds`` only.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                word, content = self.lines.get(timeout=seconds)
                if word == "ERROR":
                    return word, content
                if word == END:
                    break
        return END, None

    def wait_for_log(self) -> None:
        """Wait until the log contains everything that an ended process wrote to its stderr."""
        self._logging.join(LAST_WORD_S)

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()

    def release(self) -> None:
        """Release the resources of an ended process."""
        os.close(self._heartbeat)


def stop(children: Iterable[Child], seconds: float) -> None:
    """Let processes publish what they have and exit; kill those that do not in time."""
    children = list(children)
    for child in children:
        if child.process.stdin is not None:
            child.process.stdin.close()
    until = time.monotonic() + seconds
    for child in children:
        try:
            child.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
        child.release()


def how_it_ended(code: int) -> str:
    """Describe how a process ended.

    >>> how_it_ended(-9), how_it_ended(0)
    ('was killed (SIGKILL)', 'ended')
    """
    return f"was killed ({signal.Signals(-code).name})" if code < 0 else "ended"


def _unnamed(content: bytes) -> IO[bytes]:
    """Return an unnamed file, to be read from its beginning."""
    if sys.platform == "linux":
        file: IO[bytes] = os.fdopen(os.memfd_create("configuration"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    file.write(content)
    file.seek(0)
    return file


def _started(
    command: Sequence[str], beats: int, configuration: int, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    descriptors = {HEARTBEAT: str(beats), CONFIGURATION: str(configuration)}
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=python_environment(**environment, **descriptors),
        pass_fds=(beats, configuration),
        start_new_session=True,
    )


def _read_words(child: Child) -> None:
    assert child.process.stdout is not None
    for line in child.process.stdout:
        word, _, content = line.partition(" ")
        if word in WORDS:
            child.lines.put((word, json.loads(content)))
        elif word == BODY:
            child.lines.put((word, content.rstrip("\n")))
        else:  # user code prints, too
            print(line, end="", flush=True)
    child.lines.put((END, None))


def _log_stderr(process: subprocess.Popen[str], log: Log) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        log(line.rstrip("\n"))
