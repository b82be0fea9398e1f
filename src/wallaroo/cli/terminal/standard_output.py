"""Standard output of a command, and the error that ended it.

Where it runs: the process of a command.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TypeGuard

STDOUT = 1


class StandardOutput(io.TextIOWrapper):
    """A text stream that keeps its error, so that errors of other files differ from it."""

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.failure = error
            raise


def replace_stdout() -> None:
    """Make ``sys.stdout`` a StandardOutput, whose writes fail if the process began without one."""
    former = sys.stdout
    if former is None:
        os.dup2(os.open(os.devnull, os.O_RDONLY), STDOUT)  # so that no other file gets the number
        sys.stdout = StandardOutput(io.FileIO(STDOUT, "w", closefd=False))
    elif isinstance(former, io.TextIOWrapper):
        sys.stdout = StandardOutput(
            former.buffer,
            former.encoding,
            "backslashreplace",  # a step's name may not be in its encoding
            line_buffering=former.line_buffering,
            write_through=former.write_through,
        )


def is_failure(error: Exception) -> TypeGuard[OSError]:
    """Return whether an error is that of standard output."""
    return isinstance(sys.stdout, StandardOutput) and error is sys.stdout.failure
