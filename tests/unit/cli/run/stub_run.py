"""A program for the tests: ``wallaroo run`` with its real command line, signals and views, and a
handle that runs nothing.

Its first argument says how the handle behaves: ``stops``, ``deaf``, ``ends``, ``user-error``,
``peer-error``, ``slow-start`` (until it is stopped), ``takes-signals``, ``prints`` or ``logs``.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from functools import partial
from typing import Any

from tests.unit.cli.run.fakes import FakeHandle
from wallaroo.cli.main import main
from wallaroo.cli.run import command
from wallaroo.errors import PeerError, UserCodeError
from wallaroo.options import RunOptions
from wallaroo.processes import console
from wallaroo.processes.console import Entry
from wallaroo.spark.jvm.stderr import entry_of

LINES = 12  # each redraws the table
LONG = "x" * 200  # wider than any terminal of the tests


def launch(app: Any, options: RunOptions) -> FakeHandle:
    if behaviour == "slow-start":
        return FakeHandle(starts_after=1_000_000)
    if behaviour == "takes-signals":
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
    if behaviour == "prints":
        handle = FakeHandle()
        threading.Thread(target=print_much, args=(handle,), daemon=True).start()
        return handle
    if behaviour == "logs":
        handle = FakeHandle()
        threading.Thread(target=log_everything, args=(handle,), daemon=True).start()
        return handle
    handle = FakeHandle(ends_after=1 if behaviour == "ends" else None)
    handle.is_deaf = behaviour == "deaf"
    return handle


def log_everything(handle: FakeHandle) -> None:
    """Log in every way there is; then end."""
    handle.has_been_seen.wait()
    print("printed by the application", file=sys.stderr)
    logging.getLogger("words").warning("two\nlines")
    logging.getLogger("wallaroo.run").warning("worker process %d was killed", 1)
    console.write(Entry("counted", "error", "app", "Count", 1, exception="ValueError: no count"))
    console.write(entry_of("spark WARN TaskSetManager: Lost task"), 2)
    handle.stop()


def print_much(handle: FakeHandle) -> None:
    """Outputs of a StdoutSink, log lines, and lines of steps, while the table is redrawn; then
    end.
    """
    handle.has_been_seen.wait()
    for number in range(LINES):
        sys.stdout.write(f"output {number}\n")
        sys.stdout.flush()
        print(f"log {number}", file=sys.stderr)
        logging.warning("warning %d", number)
        console.write(Entry(f"step {number} {LONG}"))
    handle.stop()


if __name__ == "__main__":
    behaviour = sys.argv[1]
    vars(command).update(
        launch=launch,
        load_application=lambda path, args: (path, args),
        execute=partial(command.execute, poll_s=0.05),
    )
    sys.exit(main(["run", *sys.argv[2:]]))
