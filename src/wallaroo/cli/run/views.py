"""Views of a run: nothing, log lines, or a live table.

Where it runs: driver.  The views own the terminal and restore it as they found it.  They write to
stderr; stdout belongs to the application's own output.

Invariant: while the table is on the screen, everything the driver prints to that terminal (outputs
of a StdoutSink, lines of steps, log lines) goes through one console, which puts it above the table.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, Self, TextIO, cast

from rich.console import Console
from rich.live import Live

from wallaroo.cli.run.text import live_table, log_facts, log_line
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.figures import late_words
from wallaroo.processes import console
from wallaroo.processes.log_entry import Entry

LINE_EVERY_S = 5.0
STILL_EVERY = 12  # while nothing changes, only every 12th line is logged: one a minute
_CURSOR_ON = b"\r\n\x1b[?25h"


class RunView(Protocol):
    """A display of one status after the other; a context manager that restores the terminal."""

    def show(self, status: RunStatus) -> None:
        """Show this status now, or soon, or not at all."""

    def say(self, text: str) -> None:
        """Print a line that stays."""

    def close(self) -> None:
        """Restore the terminal; safe to repeat."""

    def abandon(self) -> None:
        """Restore the terminal from a signal handler that ends the process."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class _Closing:
    def close(self) -> None:
        """Do nothing: there is nothing to restore."""

    def abandon(self) -> None:
        """Do nothing: there is nothing to restore."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class QuietView(_Closing):
    """A view that shows nothing."""

    def show(self, status: RunStatus) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Print nothing."""


class LineView(_Closing):
    """A view that logs changes of state and moves of keys at once, else every few seconds.

    While no figure changes, as at night, it logs one line a minute.
    A latency target that is missed, or kept again, is a line of its own.
    While it is entered, lines printed on this process's stderr are entries of the log as well.
    """

    def __init__(self, stream: TextIO, every_s: float = LINE_EVERY_S) -> None:
        self._stream = stream
        self._stderr: tuple[TextIO, LinesAbove] | None = None
        self._every_s = every_s
        self._shown_s = 0.0
        self._state = ""
        self._figures: dict[str, Any] = {}
        self._moved = ""
        self._is_late = False

    def show(self, status: RunStatus) -> None:
        if status.moved != self._moved:
            self._moved = status.moved
            self.say(status.moved)
        # without results there is no sign that the target is met again
        if status.is_late != self._is_late and (status.is_late or status.latency_newest_ms):
            self._is_late = status.is_late
            kept = f"the latency target of {status.latency_target_ms:g} ms is kept again"
            self.say(late_words(status) if status.is_late else kept)
        now_s = time.monotonic()
        waited_s = now_s - self._shown_s
        if status.state == self._state and waited_s < self._every_s:
            return
        facts = log_facts(status)
        figures = {name: value for name, value in facts.items() if name != "elapsed_s"}
        if figures == self._figures and waited_s < self._every_s * STILL_EVERY:
            return
        self._shown_s = now_s
        self._state = status.state
        self._figures = figures
        console.write(Entry(log_line(status), kind="status", facts={"status": facts}))

    def say(self, text: str) -> None:
        console.write(Entry(text))

    def __enter__(self) -> Self:
        console.take_over(self._write)
        above = LinesAbove(sys.stderr, console.write_printed)
        self._stderr = (sys.stderr, above)
        sys.stderr = cast("TextIO", above)
        return self

    def close(self) -> None:
        if self._stderr is not None:
            sys.stderr, above = self._stderr
            self._stderr = None
            above.finish()
            console.give_back()

    def _write(self, lines: str) -> None:
        self._stream.write(lines)
        self._stream.flush()


class LiveView(_Closing):
    """A table below printed lines; ``shares_stdout``: stdout is this terminal."""

    def __init__(self, stream: TextIO, shares_stdout: bool = False) -> None:
        self._stream = stream
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._shares_stdout = shares_stdout
        self._redirected: list[tuple[str, TextIO, LinesAbove]] = []

    def show(self, status: RunStatus) -> None:
        if self._live is None:
            self._redirect("stderr")
            if self._shares_stdout:
                self._redirect("stdout")
            console.take_over(self._print)
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(live_table(status), refresh=True)

    def say(self, text: str) -> None:
        self._print(text + "\n")

    def close(self) -> None:
        for name, original, above in reversed(self._redirected):
            above.finish()
            setattr(sys, name, original)
        self._redirected.clear()
        live = self._live
        self._live = None
        if live is not None:
            live.stop()
            console.give_back()

    def abandon(self) -> None:
        # bypasses rich and the stream's buffer: the signal may have interrupted either of them in
        # mid-write
        if self._live is not None:
            os.write(self._stream.fileno(), _CURSOR_ON)

    def _redirect(self, name: str) -> None:
        original = getattr(sys, name)
        above = LinesAbove(original, self._print)
        self._redirected.append((name, original, above))
        setattr(sys, name, cast("TextIO", above))

    def _print(self, lines: str) -> None:
        # one line of output stays one line when it is copied, however narrow the terminal is
        self._console.print(lines, markup=False, highlight=False, soft_wrap=True, end="")


class LinesAbove(io.TextIOBase):
    """A replacement of a terminal stream that passes whole lines to ``write_above``."""

    def __init__(self, original: TextIO, write_above: Callable[[str], None]) -> None:
        super().__init__()
        self._original = original
        self._write_above = write_above
        self._lines = console.WholeLines()

    def write(self, text: str) -> int:
        if whole := self._lines.add(text):
            self._write_above(whole)
        return len(text)

    def finish(self) -> None:
        """Write a last line that has no newline."""
        if half := self._lines.take_half():
            self._write_above(half)

    def flush(self) -> None:
        """Do nothing: whole lines are already written."""

    def fileno(self) -> int:
        return self._original.fileno()

    def isatty(self) -> bool:
        return self._original.isatty()

    def writable(self) -> bool:
        return True

    @property
    def buffer(self) -> object:
        """Return the stream for bytes; bytes are not kept above the table."""
        return self._original.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase has an attribute
        return self._original.encoding


def choose_view(is_quiet: bool, is_live_allowed: bool) -> RunView:
    """Return the view for the options and the kind of stderr.

    The view writes to a descriptor of its own: stderr itself is redirected while Spark starts.
    """
    if is_quiet:
        return QuietView()
    stream = own_stderr()
    if may_be_live(is_live_allowed):
        return LiveView(stream, shares_stdout=is_same_terminal(sys.stdout, sys.stderr))
    return LineView(stream)


def may_be_live(is_live_allowed: bool) -> bool:
    """Return whether stderr is a terminal that can show a table."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return is_terminal and is_live_allowed


def own_stderr() -> TextIO:
    """Return stderr under a descriptor of its own, stderr itself if it has no descriptor."""
    try:
        return os.fdopen(
            os.dup(sys.stderr.fileno()),
            "w",
            buffering=1,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except (OSError, ValueError, AttributeError):
        return sys.stderr


def is_same_terminal(one: TextIO, other: TextIO) -> bool:
    """Return whether both streams are the same terminal."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if one.isatty() and other.isatty():
            return os.fstat(one.fileno()).st_rdev == os.fstat(other.fileno()).st_rdev
    return False
