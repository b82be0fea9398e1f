"""A program for the tests: ``wallaroo run`` with its real command line, signals and views, and a
handle that runs nothing.

Its first argument says how the handle behaves: ``obeys``, ``deaf``, ``ends``, ``user-error``,
``peer-error`` or ``slow-start``.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from tests.unit.live.fakes import FakeHandle
from wallaroo.cli import run as command
from wallaroo.cli.main import main
from wallaroo.errors import PeerError, UserCodeError
from wallaroo.options import RunOptions


def run(app: Any, options: RunOptions) -> FakeHandle:
    if behaviour == "slow-start":
        print("SPARK STARTS", file=sys.stderr, flush=True)
        threading.Event().wait(0.5)
    if behaviour == "user-error":
        error = UserCodeError(
            "Count words", "words.py:12", "b'\\x00'", "ValueError: not a word", "Traceback ..."
        )
        return FakeHandle(ends_after=1, fails_with=error)
    if behaviour == "peer-error":
        return FakeHandle(
            ends_after=1,
            fails_with=PeerError("port 7010 is taken. Stop what listens there, or choose another."),
        )
    handle = FakeHandle(ends_after=1 if behaviour == "ends" else None)
    handle.is_deaf = behaviour == "deaf"
    return handle


if __name__ == "__main__":
    behaviour = sys.argv[1]
    vars(command).update(launch=run, load_application=lambda path, args: (path, args), POLL_S=0.05)
    sys.exit(main(["run", *sys.argv[2:]]))
