"""Views of a run: nothing, log lines, or a live table.

Where it runs: driver.  The views own the terminal and restore its former state.  They write to
stderr; stdout belongs to the application's own output.

Invariant: while the table is on the screen, everything the driver prints to that terminal (outputs
of a StdoutSink, lines of steps, log lines) goes through one console, which puts it above the table.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any, Protocol, Self, TextIO, cast

from wallaroo.cli.run.lines_above import LinesAbove
from wallaroo.cli.run.text import log_facts, log_line
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.figures import late_words
from wallaroo.processes import console
from wallaroo.processes.console import Entry

LINE_EVERY_S = 5.0
STILL_EVERY = 12  # while nothing changes, only every 12th line is logged: one a minute


class RunView(Protocol):
    """A display of successive statuses; a context manager that restores the terminal."""

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
    """A view that logs changes immediately and figures periodically.

    Changes are those of the run's state, and key moves.

    While no figure changes, it logs one line per minute.
    A latency target that is missed, or met again, is a separate line.
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
        # without new results it is unknown whether the target is met again
        is_met = 0 < status.latency_newest_ms <= 2 * status.latency_target_ms
        if status.is_late != self._is_late and (status.is_late or is_met):
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


def choose_view(is_quiet: bool, is_live_allowed: bool) -> RunView:
    """Return the view for the options and the kind of stderr.

    The view writes to a descriptor of its own: stderr itself is redirected while Spark starts.
    """
    if is_quiet:
        return QuietView()
    stream = own_stderr()
    if may_be_live(is_live_allowed):
        from wallaroo.cli.run.live_view import LiveView

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
