"""``wallaroo run APP``: start an application, show what it does, stop it at a batch boundary, say
how it ended.

Where it runs: driver, main thread.

The law of signals: a handler only counts.  The first SIGINT or SIGTERM is acted upon by the
watching loop, outside of the handler, so that `stop` never meets a lock the interrupted code holds.
The second ends the process at once with 130; what was committed stays so.

The exit code is 0 where the run stopped as asked or its sources ended.  Every error is raised,
after the summary, to the command line's one gate, which gives it its code and prints it as the last
word.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from wallaroo.api.application import Application
from wallaroo.cli.app_args import EPILOG, add_app, parser_behind, part
from wallaroo.cli.live import LineView, LiveView, QuietView, View, summary
from wallaroo.cli.loading import load_application
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.metrics.status import RunStatus
from wallaroo.options import RunHandle, RunOptions
from wallaroo.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.runner import run
from wallaroo.sinks.file.config import FileSinkConfig
from wallaroo.status_api.access import TOKEN_VARIABLE

POLL_S = 0.5  # how often the table is drawn and signals are looked for
LAST_STOP_S = 30.0  # how long a run may take to stop after the watching loop itself failed

_INTERRUPTED = 130  # the exit code shells give a process that Ctrl-C ended


# -- the command line
# --------------------------------------------------------------------------------------------------


def add_parser(subparsers: Any) -> None:
    """Add ``run`` to the commands."""
    parser = subparsers.add_parser(
        "run",
        allow_abbrev=False,
        help="run an application",
        description="Run an application on Spark.",
        epilog=EPILOG,
    )
    add_app(parser, _add_options)
    parser.set_defaults(handler=run_command)


def parse(arguments: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Part what stands behind APP into this command's options and the application's."""
    return part(parser_behind("run", arguments.app, _add_options), arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--master", default="local[*]",
        help=(
            "Spark's master: local[N], spark://HOST:PORT, yarn, k8s://... (default: %(default)s, "
            "all cores of this machine)"
        ))  # fmt: skip
    add(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be repeated",
    )
    add(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="where state and progress are kept (default: a temporary directory)",
    )
    add("--fresh", action="store_true", help="delete what the checkpoint holds and begin empty")
    add(
        "--allow-incompatible",
        action="store_true",
        help="go on with a changed application, dropping state that no longer fits",
    )
    add(
        "--retain-commits",
        type=_whole(1),
        default=16,
        metavar="N",
        help="newest commits kept as starting points (default: %(default)s)",
    )
    add("--yes", action="store_true", help="with --fresh: do not ask")
    add("--acknowledged", type=_source_port, action="append", default=[], metavar="NAME=PORT",
        help=(
            "TCP source NAME listens at PORT too, for senders that want acknowledgements; may be "
            "repeated"
        ))  # fmt: skip
    add("--tasks", type=_whole(1), metavar="N", help="tasks per stage (default: one per core)")
    add(
        "--batch-time",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="how long a batch should take (default: %(default)s)",
    )
    add(
        "--key-groups",
        type=_whole(1),
        default=KEY_GROUPS_DEFAULT,
        metavar="N",
        help="shares of state (default: %(default)s)",
    )
    levels = ("debug", "info", "warning", "error", "off")
    add("--log-level", choices=levels, default="error", help="of Spark (default: %(default)s)")
    add("--status", type=_status_address, default=("127.0.0.1", 0), metavar="HOST:PORT",
        help=(
            "where `wallaroo status` and HTTP clients may ask; 'off': nowhere (default: any free "
            "port of 127.0.0.1)"
        ))  # fmt: skip
    add(
        "--status-token",
        default=os.environ.get(TOKEN_VARIABLE, ""),
        metavar="TOKEN",
        help=(
            f"what clients of --status must present (default: ${TOKEN_VARIABLE}, which other users "
            "of this machine cannot see; without both, a fresh one where the address is not "
            "loopback)"
        ),
    )
    add(
        "--dead-letters",
        type=Path,
        metavar="PATH",
        help="where events go that failed in steps with on_error='dead-letter'",
    )
    add("--quiet", action="store_true", help="print errors only")
    add("--no-live", action="store_true", help="print log lines, on a terminal too")
    add("--summary", type=Path, metavar="FILE", help="write the last status there, as JSON")


def _whole(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small: at least {least}")
        return number

    return whole_number


def _source_port(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition("=")
    if not name or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=PORT, such as Orders=7110"
        )
    return name, int(port)


def _setting(text: str) -> tuple[str, str]:
    key, is_there, value = text.partition("=")
    if not key or not is_there:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form KEY=VALUE, such as spark.executor.memory=2g"
        )
    return key, value


def _status_address(text: str) -> tuple[str, int] | None:
    host, _, port = text.rpartition(":")
    if text == "off":
        return None
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither HOST:PORT, such as 127.0.0.1:7200, nor 'off'"
        )
    return host, int(port)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds above 0")
    return seconds


# -- the command
# --------------------------------------------------------------------------------------------------


def run_command(arguments: argparse.Namespace) -> int:
    """Run the application until it ends or is stopped; return the exit code, or raise its error."""
    options, application_args = parse(arguments)
    _check_summary(options.summary)
    application = load_application(options.app, application_args)
    if options.dead_letters is not None:
        application = application.with_dead_letters(FileSinkConfig(options.dead_letters))
    confirm_fresh(options)
    execute(lambda: _start(application, options), options)
    return 0


def execute(start: Callable[[], RunHandle], options: argparse.Namespace) -> None:
    """Start, watch, say how it ended; raise what the run failed with."""
    view: View = QuietView()
    with StopSignals(lambda: view.abandon()) as signals:
        if not options.quiet:
            print(_beginning(options), file=sys.stderr, flush=True)
        handle = start()
        signals.install()  # again: Spark puts a SIGINT handler of its own in place when it starts
        view = _view(options, handle.status())
        with view:
            status = watch(handle, view, signals)
        if not options.quiet:
            print(summary(status), file=sys.stderr, flush=True)
    try:
        if options.summary is not None:
            _write_summary(options.summary, status)
    finally:
        if handle.exception is not None:
            raise handle.exception  # rather than a complaint about the summary


def watch(handle: RunHandle, view: View, signals: StopSignals) -> RunStatus:
    """Show the run until it ends, asking it to stop after the first signal; return its last
    status.
    """
    is_asked = False
    try:
        while not handle.wait(POLL_S):
            if signals.count and not is_asked:
                is_asked = True
                view.say("stopping at the batch boundary... (once more to end at once)")
                handle.stop()
            view.show(handle.status())
    except BaseException:
        handle.stop()
        handle.wait(LAST_STOP_S)
        raise
    return handle.status()


class StopSignals:
    """Counts SIGINT and SIGTERM while it is entered; the second ends the process, after
    ``at_second`` gave the terminal back.
    """

    def __init__(self, at_second: Callable[[], None]) -> None:
        self.count = 0
        self._at_second = at_second
        self._previous: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Put the handler in place, again if someone replaced it."""
        for number in (signal.SIGINT, signal.SIGTERM):
            previous = signal.signal(number, self._handle)
            self._previous.setdefault(number, previous)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= 2:
            try:
                self._at_second()
            finally:
                os._exit(_INTERRUPTED)


def confirm_fresh(options: argparse.Namespace) -> None:
    """Ask before --fresh deletes anything; a CheckpointError where the answer is not yes, or nobody
    is there to ask.
    """
    directory: Path | None = options.checkpoint
    if (
        not options.fresh
        or options.yes
        or directory is None
        or not directory.is_dir()
        or not any(directory.iterdir())
    ):
        return
    if not sys.stdin.isatty():
        raise CheckpointError(
            f"--fresh would delete what the checkpoint {directory} holds. Add --yes if that is "
            f"meant."
        )
    print(
        f"Delete what the checkpoint {directory} holds? [y/N] ", end="", file=sys.stderr, flush=True
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CheckpointError(
            f"The checkpoint {directory} stays as it is; nothing was run. Leave out --fresh to "
            f"continue it."
        )


# -- beginning and end
# --------------------------------------------------------------------------------------------------


def _start(application: Application, options: argparse.Namespace) -> RunHandle:
    return run(
        application,
        RunOptions(
            master=options.master,
            checkpoint=options.checkpoint,
            is_fresh=options.fresh,
            tasks=options.tasks,
            batch_time_s=options.batch_time,
            log_level=options.log_level,
            key_groups=options.key_groups,
            retain_commits=options.retain_commits,
            allow_incompatible=options.allow_incompatible,
            ack_ports=tuple(options.acknowledged),
            spark_conf=tuple(options.conf),
            status_address=options.status,
            status_token=options.status_token,
            module_paths=(str(Path(options.app).resolve().parent),),
        ),
    )


def _beginning(options: argparse.Namespace) -> str:
    kept = (
        f"checkpoint {options.checkpoint}"
        if options.checkpoint
        else "temporary checkpoint (keep one with --checkpoint DIR)"
    )
    return f"starting {options.app} on {options.master}, {kept}"


def _view(options: argparse.Namespace, status: RunStatus) -> View:
    """Choose how to show the run.  A table and output lines on one terminal would overwrite each
    other.
    """
    if options.quiet:
        return QuietView()
    has_output_here = sys.stdout.isatty() and any(
        sink.label.startswith("stdout") for sink in status.sinks
    )
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return (
        LiveView(sys.stderr)
        if is_terminal and not has_output_here and not options.no_live
        else LineView(sys.stderr)
    )


def _check_summary(file: Path | None) -> None:
    if file is not None and not file.absolute().parent.is_dir():
        raise PeerError(
            f"--summary {file}: there is no directory {file.absolute().parent}. Make it, or name "
            f"another file."
        )


def _write_summary(file: Path, status: RunStatus) -> None:
    try:
        file.write_text(json.dumps(asdict(status), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise PeerError(
            f"--summary {file} cannot be written: {error.strerror}. Name another file."
        ) from error
