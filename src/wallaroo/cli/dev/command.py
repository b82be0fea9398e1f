"""``wallaroo dev APP``: a run in one process, reloaded when files change.

No Spark and no other process: breakpoints, prints and debuggers work.

It is an ordinary run whose tasks and feeders are threads of this process.  Outputs of all
sinks are printed, not sent; state lives in a temporary folder and starts empty at each reload.  A
reload replaces the process's program (exec), so no old module remains.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import selectors
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from wallaroo.api.application import Application
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.dev.feeders import ThreadFeeders
from wallaroo.cli.dev.trial import trial
from wallaroo.cli.run.arguments import UNTIL_NOW, add_options, check_until_now, status_address
from wallaroo.cli.terminal.call_chain import call_chain
from wallaroo.errors import WallarooError
from wallaroo.options import RunHandle, RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

POLL_S = 0.3  # between two checks of the files
PAUSE_S = 0.01  # between two batches, so that one batch takes what arrived together
STOP_S = 2.0  # for the batch under way, at a reload and Ctrl-C; it may sit at a breakpoint


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "dev",
        help="run an application in one process, without Spark; reload it on save",
        description=(
            "Run an application in one process, without Spark, and again whenever its files "
            "change. Breakpoints work; outputs are printed; state begins empty."
        ),
        epilog=EPILOG,
    )
    add_app(parser, _add_options)
    parser.set_defaults(handler=dev_command)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="end when the input ends; do not reload"
    )
    parser.add_argument("--until-now", action="store_true", help=UNTIL_NOW)
    parser.add_argument(
        "--status",
        type=status_address,
        metavar="HOST:PORT",
        help="serve the dashboard, `wallaroo top` and `wallaroo status` at this address",
    )


def dev_command(arguments: argparse.Namespace) -> int:
    """Run until Ctrl-C, or until the input ends with --once."""
    own = trailing_parser("dev", arguments.app, _add_options)
    options, args = split_args(own, arguments, trailing_parser("run", arguments.app, add_options))
    sys.dont_write_bytecode = True  # two saves within one second would look like one
    watch = FileWatch(Path(options.app))
    try:
        try:
            application = load_application(options.app, args)
            if options.until_now:
                check_until_now(application)
            watch.add_loaded()
            with _log_on_stderr(options):
                serve(begin(application, options), watch)
        except WallarooError as error:
            if options.once:
                raise
            watch.add_failed()
            _say(f"{error}{call_chain(error)}")
        if options.once:
            return 0
        if not watch.has_changed():
            _say("waiting for a change of the application's files (Ctrl-C ends)")
        while not watch.has_changed():
            watch.pause()
    except KeyboardInterrupt:
        return 0
    return _reload()


def begin(application: Application, options: argparse.Namespace) -> RunHandle:
    """Start a run of the application in this process; its outputs are printed."""
    chosen = RunOptions(
        until_now=options.until_now,
        status_address=options.status,
        overdue_s=math.inf,  # a batch may sit at a breakpoint
        stop_s=STOP_S,
        module_paths=(str(Path(options.app).resolve().parent),),
    )
    run = Run(trial(application), chosen, InProcessHost(1, PAUSE_S), feeders=ThreadFeeders())
    run.begin()
    return run


def serve(run: RunHandle, watch: FileWatch) -> None:
    """Wait until the run ends or a file is saved; raise the error that ended it."""
    try:
        run.wait_started()
        for name, (host, port) in run.addresses.items():
            _say(f"source '{name}' listens on {host}:{port}")
        while not run.wait(POLL_S):
            if watch.has_changed():
                return
    finally:
        run.stop()
        run.wait(2 * STOP_S)
    if run.exception is not None:
        raise run.exception
    # explains an application that prints nothing because it filters everything
    for losses in run.status().losses:
        _say(f"left out in {losses.words}")


@contextmanager
def _log_on_stderr(options: argparse.Namespace) -> Iterator[None]:
    """Log the run's warnings and, with a status server, its address."""
    log = logging.getLogger("wallaroo")
    level = log.level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("wallaroo: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.WARNING if options.status is None else logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True


def _reload() -> NoReturn:
    _say("reloading")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class FileWatch:
    """A watch on the application's file and modules from its folder."""

    def __init__(self, app: Path) -> None:
        self._folder = app.resolve().parent
        self._seen = dict(_times([app.resolve()] if app.is_file() else []))
        self._nearby = dict(_times([*self._folder.glob("*.py"), *self._folder.glob("*/*.py")]))
        self._selector = selectors.DefaultSelector()  # for sleeping only

    def add_loaded(self) -> None:
        """Watch all modules imported so far."""
        files = [getattr(module, "__file__", None) for module in sys.modules.values()]
        self._seen.update(
            _times(
                path
                for file in files
                if file and self._folder in (path := Path(file).resolve()).parents
            )
        )

    def add_failed(self) -> None:
        """Watch the modules imported so far, and all in the folder and its packages.

        A module whose import failed is not among those imported.
        """
        self.add_loaded()
        self._seen.update(self._nearby)  # as of before the imports

    def has_changed(self) -> bool:
        """Return whether a file was saved since the watch began."""
        return dict(_times(self._seen)) != self._seen

    def pause(self) -> None:
        """Wait for one polling interval."""
        self._selector.select(POLL_S)


def _times(files: Any) -> Iterator[tuple[Path, int]]:
    for file in files:
        try:
            yield file, file.stat().st_mtime_ns
        except OSError:  # an editor is replacing it
            yield file, 0


def _say(text: str) -> None:
    print(f"wallaroo: {text}", file=sys.stderr, flush=True)
