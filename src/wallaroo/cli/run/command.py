"""``wallaroo run APP``: a run of an application, watched until it ends.

It starts the application, shows its status, stops it at a batch boundary and prints a summary.

Where it runs: driver, main thread.

The exit code is 0 if the run stopped on request or its sources ended.  Every error is raised,
after the summary, to the command line's one error boundary, which determines its exit code and
prints it last.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Self

from wallaroo.api.application import Application
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.run.arguments import add_options, check_until_now, run_options
from wallaroo.cli.run.text import summary
from wallaroo.cli.run.views import RunView, choose_view, may_be_live
from wallaroo.cli.terminal.formatting import duration
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.monitoring.metrics.status import RunState, RunStatus
from wallaroo.options import RunHandle
from wallaroo.processes import console
from wallaroo.processes.console import Entry, Form, as_json, dated, of_record, plain
from wallaroo.processes.environment import load_packages
from wallaroo.runner import launch

_INTERRUPTED = 130  # the exit code by shell convention for a process that Ctrl-C ended


class StopSignals:
    """A counter of SIGINT and SIGTERM.

    The second signal calls ``at_second`` and ends the process.

    A handler only counts. The watching loop acts on the first signal, outside of the handler, so
    that ``stop`` never waits for a lock the interrupted code holds. The second ends the process at
    once with 130; commits stay as they are.
    """

    def __init__(self, at_second: Callable[[], None]) -> None:
        self.count = 0
        self._at_second = at_second
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Install the handler, or reinstall it if it was replaced."""
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.signal(number, self._handle)
            self._previous.setdefault(number, previous)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *exception: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= 2:
            try:
                self._at_second()
            finally:
                os._exit(_INTERRUPTED)


POLL_S = 0.5  # between two updates of the table and checks for signals
STARTING_POLL_S = 0.1  # while the run starts: phases are timed by polling
PHASE_SHOWN_S = 0.5  # shorter phases are not worth a line
LAST_STOP_S = 30.0  # how long a run may take to stop after the watching loop itself has failed

Start = Callable[[Application, argparse.Namespace], RunHandle]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run", help="run an application", description="Run an application on Spark.", epilog=EPILOG
    )
    add_app(parser, add_options)
    parser.set_defaults(handler=run_command)


def parse(arguments: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Split the arguments after APP into this command's options and the application's."""
    return split_args(trailing_parser("run", arguments.app, add_options), arguments)


# -- the command


def run_command(arguments: argparse.Namespace) -> int:
    """Run the application until it ends or is stopped; return the exit code, or raise its error."""
    return run_with(_start, arguments)


def run_with(start: Start, arguments: argparse.Namespace) -> int:
    """Run an application that ``start`` starts; return the exit code, or raise its error."""
    options, application_args = parse(arguments)
    console.use_form(_form(options))
    _check_summary(options.summary)
    if options.packages is not None:
        load_packages(options.packages)
    application = load_application(options.app, application_args)
    if options.until_now:
        check_until_now(application)
    if options.dead_letters is not None:
        application = application.with_dead_letters(FileSinkConfig(options.dead_letters))
    confirm_fresh(options)
    execute(lambda: start(application, options), options)
    return 0


def execute(
    start: Callable[[], RunHandle], options: argparse.Namespace, poll_s: float = POLL_S
) -> None:
    """Start a run, watch it and print its summary; raise the error that ended it."""
    view = choose_view(options.quiet, not options.no_live and not console.is_json())
    with log_on_stderr(options.quiet), StopSignals(view.abandon) as signals:
        if not options.quiet:
            console.write(Entry(_beginning(options), kind="start"))
        handle = start()
        with view:
            status = watch(handle, view, signals, poll_s)
        if not options.quiet:
            _print_summary(status)
    try:
        if options.summary is not None:
            _write_summary(options.summary, status)
    finally:
        if handle.exception is not None:
            raise handle.exception  # rather than an error about the summary


def _form(options: argparse.Namespace) -> Form:
    """Return the form of log entries: with a time unless a table is on the screen."""
    if options.log == "json":
        return as_json
    return plain if may_be_live(not options.no_live and not options.quiet) else dated


def _print_summary(status: RunStatus) -> None:
    """Print the summary as plain lines, whose table needs no time, or as one entry."""
    if console.is_json():
        console.write(Entry(summary(status), kind="summary", facts={"status": asdict(status)}))
    else:
        print(summary(status), file=sys.stderr, flush=True)


class _Records(logging.Handler):
    """A handler that writes records of Python's logging to the run's log."""

    def emit(self, record: logging.LogRecord) -> None:
        console.write(of_record(record))


@contextmanager
def log_on_stderr(is_quiet: bool) -> Iterator[None]:
    """Print the run's log on stderr, errors only if quiet; restore its settings afterwards.

    Records of the application's own loggers join it where nothing else handles them.
    """
    log = logging.getLogger("wallaroo")
    level = log.level
    is_propagating = log.propagate
    last_resort = logging.lastResort
    handler = _Records()
    logging.lastResort = _Records(logging.WARNING)
    log.addHandler(handler)
    log.setLevel(logging.ERROR if is_quiet else logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        logging.lastResort = last_resort
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = is_propagating


def watch(
    handle: RunHandle, view: RunView, signals: StopSignals, poll_s: float = POLL_S
) -> RunStatus:
    """Show the run until it ends, stopping it at a first signal; return its last status."""
    is_asked = False
    phases = Phases(view.say)
    try:
        while not handle.wait(STARTING_POLL_S if phases.is_starting else poll_s):
            signals.install()  # reinstalled: Spark installs its own SIGINT handler
            status = handle.status()
            phases.look(status)
            if signals.count and not is_asked:
                is_asked = True
                view.say(_stopping(status))
                handle.stop()
            view.show(status)
    except BaseException:
        handle.stop()
        handle.wait(LAST_STOP_S)
        raise
    return handle.status()


class Phases:
    """The phases of the start, each reported with its duration when over."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._phase = ""
        self._since_s = time.monotonic()
        self.is_starting = True

    def look(self, status: RunStatus) -> None:
        """Note the run's current phase; report the previous one when it is over."""
        self.is_starting = status.state is RunState.STARTING
        if status.doing == self._phase:
            return
        now_s = time.monotonic()
        took_s = now_s - self._since_s
        if self._phase and took_s >= PHASE_SHOWN_S:
            self._say(f"{self._phase}: {duration(took_s)}")
        self._phase = status.doing
        self._since_s = now_s


def _stopping(status: RunStatus) -> str:
    if status.state is RunState.STARTING:
        doing = f" while {status.doing}" if status.doing else ""
        return f"stopping{doing}, before the first batch... (once more to end at once)"
    return "stopping at the batch boundary... (once more to end at once)"


def confirm_fresh(options: argparse.Namespace) -> None:
    """Ask before --fresh deletes anything.  Raises CheckpointError: refused, or no terminal."""
    directory: Path | str | None = options.checkpoint
    if not options.fresh or options.yes or directory is None:
        return
    if isinstance(directory, Path) and (not directory.is_dir() or not any(directory.iterdir())):
        return
    if not sys.stdin.isatty():
        raise CheckpointError(
            f"--fresh would delete the contents of the checkpoint {directory}. "
            f"Add --yes to confirm."
        )
    print(
        f"Delete the contents of the checkpoint {directory}? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CheckpointError(
            f"The checkpoint {directory} is unchanged; nothing was run. Omit --fresh to "
            f"continue it."
        )


# -- beginning and end


def _start(application: Application, options: argparse.Namespace) -> RunHandle:
    return launch(application, run_options(options))


def _beginning(options: argparse.Namespace) -> str:
    kept = (
        f"checkpoint {options.checkpoint}"
        if options.checkpoint
        else "temporary checkpoint (keep one with --checkpoint DIR)"
    )
    return f"starting {options.app} on {options.master}, {kept}"


def _check_summary(file: Path | None) -> None:
    if file is not None and not file.absolute().parent.is_dir():
        raise PeerError(
            f"--summary {file}: there is no directory {file.absolute().parent}. Create it, or name "
            f"another file."
        )


def _write_summary(file: Path, status: RunStatus) -> None:
    try:
        file.write_text(json.dumps(asdict(status), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise PeerError(
            f"--summary {file} cannot be written: {error.strerror}. Name another file."
        ) from error
