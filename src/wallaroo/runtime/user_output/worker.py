"""The stdout, stderr and logging of user code in a worker.

They become whole lines, each with its step's name.

Where it runs: worker.  Attached once per process and run; while nothing is printed it costs
nothing.  The step that prints is read from the stack, when it prints.

C code and subprocesses bypass Python and write to the descriptors 1 and 2. These are a separate
socket to the driver: the kernel keeps the bytes when the worker dies, so even a crash's last lines
arrive. They carry the worker's number but no step, which only a Python stack shows.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from types import CodeType, FrameType
from typing import Any, TextIO, cast

from wallaroo.processes.console import Entry, WholeLines, as_json, of_record, plain
from wallaroo.runtime.user_output.settings import LEVELS, STRUCTURED, UserOutput
from wallaroo.steps.kinds import Step

Steps = Callable[[], Iterable[Step]]


class NoTerminalError(RuntimeError):
    """A call of ``breakpoint()`` in a worker, which has no terminal."""


class NoInput(io.TextIOBase):
    """A stdin without input: ``input()`` and ``pdb.set_trace()`` raise with the remedy."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as in TextIOBase
        raise NoTerminalError(no_terminal_text())

    def read(self, size: int | None = -1, /) -> str:
        raise NoTerminalError(no_terminal_text())

    def readable(self) -> bool:
        return True


class LineSender:
    """A sender of log entries to the driver, or else to stderr."""

    def __init__(self, output: UserOutput, plan_id: str, steps: Steps, stderr: TextIO) -> None:
        self.output = output
        self.plan_id = plan_id
        self.stderr = stderr
        self._steps = steps
        self._names: dict[CodeType, str] = {}
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def send(self, lines: str, frame: FrameType | None) -> None:
        """Send whole lines that code of ``frame`` printed."""
        step = self.step_of(frame)
        self.send_entries([Entry(line, step=step) for line in lines.splitlines()])

    def send_entries(self, entries: Sequence[Entry]) -> None:
        """Send entries, all or none of them to the driver."""
        with self._lock:
            try:
                self._connected().sendall(b"".join(map(_packed, entries)))
            except OSError:
                self._socket = None
                form = as_json if self.output.is_json else plain
                self.stderr.write("".join(f"{form(entry)}\n" for entry in entries))
                self.stderr.flush()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            if not self.output.address:
                raise OSError("no driver on this host")
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.output.address)
            self._socket = connection
        return self._socket

    def step_of(self, frame: FrameType | None) -> str:
        """Return the name of the step whose function is on the stack, if any."""
        if not self._names:
            self._names = codes_of(self._steps())
        while frame is not None:
            if frame.f_code in self._names:
                return self._names[frame.f_code]
            frame = frame.f_back
        return ""


class StepOutput(io.TextIOBase):
    """A replacement of stdout or stderr.

    A partial line waits for its end or ``flush``. The stream stays when the next run attaches, as
    logging handlers of the application may hold it.
    """

    def __init__(self, original: TextIO) -> None:
        super().__init__()
        self.original = original
        self._lines = WholeLines()

    def write(self, text: str) -> int:
        if whole := self._lines.add(text):
            _send(whole, sys._getframe(1))
        return len(text)

    def flush(self) -> None:
        if halves := self._lines.take_halves():
            _send(halves, sys._getframe(1))

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.original.fileno()

    @property
    def buffer(self) -> object:
        """Return the worker's stream for bytes."""
        return self.original.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has an attribute
        return "utf-8"


_attached: LineSender | None = None


def attach(output: UserOutput, plan_id: str, steps: Steps) -> None:
    """Redirect stdout, stderr and logging of this worker to ``output``.

    It does nothing when called again for the same run, or in the driver itself.

    ``steps`` is called when something is printed; it returns none while the application is being
    imported.
    """
    global _attached
    if output.driver_pid == os.getpid():
        return
    if _attached is not None and (_attached.output, _attached.plan_id) == (output, plan_id):
        return
    if not isinstance(sys.stdout, StepOutput):
        sys.stdout = cast("TextIO", StepOutput(sys.stdout))
    if not isinstance(sys.stderr, StepOutput):
        sys.stderr = cast("TextIO", StepOutput(sys.stderr))
    own_stderr = _attached.stderr if _attached is not None else _copy_of_stderr()
    _attached = LineSender(output, plan_id, steps, own_stderr)
    _redirect_descriptors(output.address)
    _log_by_default(LEVELS[output.log_level])
    sys.breakpointhook = _no_terminal
    sys.stdin = cast("TextIO", NoInput())


def _copy_of_stderr() -> TextIO:
    """Redirect output that bypasses Python's streams to the driver, if it is on this host."""
    return os.fdopen(os.dup(2), "w", errors="backslashreplace")


def _redirect_descriptors(address: str) -> None:
    """Redirect output that bypasses Python's streams to the driver, if that is on this host."""
    if not address:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except OSError:  # the run is over
            return
        for descriptor in (1, 2):
            os.dup2(connection.fileno(), descriptor)


def _send(lines: str, frame: FrameType) -> None:
    if _attached is not None:
        _attached.send(lines, frame)


def codes_of(steps: Iterable[Step]) -> dict[CodeType, str]:
    """Return the step's name by its function's code."""
    codes: dict[CodeType, str] = {}
    for step in steps:
        called: Any = step.function
        if not hasattr(called, "__code__"):  # a bound method, or an object that can be called
            called = getattr(called, "__func__", type(called).__call__)
        code = getattr(called, "__code__", None)
        if isinstance(code, CodeType):
            codes[code] = step.step_name
    return codes


def _packed(entry: Entry) -> bytes:
    members = {name: value for name, value in asdict(entry).items() if value}
    return STRUCTURED + json.dumps({"message": "", **members}).encode() + b"\n"


def _log_by_default(level: int) -> None:
    """Let records reach the log unless the application ever configures logging."""
    logging.lastResort = _Records()
    root = logging.getLogger()
    if not root.handlers:
        root.setLevel(level)


class _Records(logging.Handler):
    """A handler that sends records with the step that logged them."""

    def emit(self, record: logging.LogRecord) -> None:
        if _attached is not None:
            step = _attached.step_of(sys._getframe(1))
            _attached.send_entries([of_record(record, step)])


def _no_terminal(*_: object, **__: object) -> None:
    raise NoTerminalError(no_terminal_text())


def no_terminal_text() -> str:
    """Return why a worker has no terminal, and where to find one."""
    return (
        "breakpoint(), pdb and input() need a terminal, and steps run in worker processes, which "
        f"have none (this is process {os.getpid()}). Run the application with `wallaroo dev APP`, "
        "or test it with wallaroo.testing.run_local: there they work."
    )
