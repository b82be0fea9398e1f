"""A replacement of stdout or stderr while a view owns the terminal.

Where it runs: driver.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TextIO

from wallaroo.processes import console


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
        """Write last lines that have no newline."""
        if halves := self._lines.take_halves(of_all=True):
            self._write_above(halves)

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
