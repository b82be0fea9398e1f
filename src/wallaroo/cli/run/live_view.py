"""The view of a run that keeps a table on the screen.

Where it runs: driver.
"""

from __future__ import annotations

import os
import sys
from typing import Self, TextIO, cast

from rich.console import Console
from rich.live import Live

from wallaroo.cli.run.lines_above import LinesAbove
from wallaroo.cli.run.table import live_table
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.processes import console

_CURSOR_ON = b"\r\n\x1b[?25h"


class LiveView:
    """A table below printed lines; ``shares_stdout``: stdout is this terminal."""

    def __init__(self, stream: TextIO, shares_stdout: bool = False) -> None:
        self._stream = stream
        self._console = Console(file=stream)
        self._live: Live | None = None
        self._shares_stdout = shares_stdout
        self._redirected: list[tuple[str, TextIO, LinesAbove]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

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
