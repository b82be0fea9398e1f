"""Errors for users; the class determines who has to act.

Where it runs: everywhere.  Facts ride in ``args``, so that every error survives pickling on its way
from a worker to the driver.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class WallarooError(Exception):
    """Base of all errors that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A pipeline's fault: step, place in the code, problem, and fix."""

    step: str
    place: str
    what: str
    fix: str

    def __str__(self) -> str:
        at = f" ({self.place})" if self.place else ""
        return f"{self.step}{at}: {self.what} {self.fix}".rstrip()


class PipelineError(WallarooError):
    """A graph that cannot run.

    ``problems`` lists everything that is wrong, not just the first.
    """

    def __init__(self, *problems: Problem):
        super().__init__(*problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self.args)

    def __str__(self) -> str:
        if len(self.args) == 1:
            return str(self.args[0])
        lines = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.args, 1))
        return f"{len(self.args)} problems in this application:\n{lines}"


class WallarooParameterError(PipelineError):
    """An argument that a builder or decorator cannot use (Wallaroo's name)."""


class NotYetError(PipelineError):
    """A feature of Wallaroo that this version does not have yet."""


CORRECT_IT = "Correct the function and run again."


LAYOUT = "\n\t"  # an error may have lines; a log's message has one


def printable(text: str, kept: str = "") -> str:
    """Return a text without characters that would end a line or control a terminal.

    They are escaped, except for those ``kept``.

    >>> printable("red\\x1b[31m\\n")
    'red\\\\x1b[31m\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )


class UserCodeError(WallarooError):
    """An exception of a user's function.

    It holds the step, ``file:line``, the shortened event, the exception's text, its traceback as
    text, and the way out.
    """

    def __init__(
        self, step: str, place: str, event: str, cause: str, trace: str = "", fix: str = CORRECT_IT
    ):
        super().__init__(step, place, event, cause, trace, fix)
        self.step = step
        self.place = place
        self.event = event
        self.cause = cause
        self.trace = trace
        self.fix = fix

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""  # functions of this package have none
        return (
            f"step '{self.step}' failed{where}: {printable(self.cause, LAYOUT)}\n"
            f"  event: {self.event}\n"
            f"  The batch was not committed. {self.fix}"
        )


class PeerError(WallarooError):
    """A fault outside of the application.

    Examples are a port that is missing, busy or wrong, and a full disk.
    """


def install_command(library: str) -> str:
    """Return the command that installs a library, named as in its registry, for this Python."""
    return f"{sys.executable} -m pip install {shlex.quote(library)}"


@contextmanager
def optional_library(
    user: str, library: str, where: str = "where the driver runs"
) -> Iterator[None]:
    """Import what needs an optional library; raise PeerError if it cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise PeerError(
            f"{user} needs {library}, which cannot be imported: {error}. Install it {where}: "
            f"{install_command(library)}"
        ) from error


class CheckpointError(WallarooError):
    """A checkpoint that cannot be used as it is.

    The text names the file and the ways out.
    """


class InUseError(CheckpointError):
    """A checkpoint that another run uses, or claimed first."""


class TakenOverError(CheckpointError):
    """End of a run whose checkpoint another run took over."""


class InternalError(WallarooError):
    """A fault of this package.

    It holds what happened, and the traceback of another process as text.  The command line asks for
    a report.
    """

    def __init__(self, what: str, trace: str = ""):
        super().__init__(what, trace)
        self.what = what
        self.trace = trace

    def __str__(self) -> str:
        return self.what
