"""The ``wallaroo`` command: parsing, dispatch and error reporting.

It calls the subcommand's handler, and converts every error into one message and an exit code.

Exit codes: 0 done; 1 an external resource is missing or wrong; 2 the command line or the pipeline
is wrong; 3 a function of the application failed; 4 another run took the checkpoint over; 70 a bug
in this package; 130 Ctrl-C.  Python's traceback is shown only if WALLAROO_TRACE is set.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from wallaroo.cli.terminal.call_chain import call_chain
from wallaroo.cli.terminal.parser import CommandParser
from wallaroo.cli.terminal.standard_output import is_failure, replace_stdout
from wallaroo.errors import (
    InternalError,
    PipelineError,
    TakenOverError,
    UserCodeError,
    WallarooError,
)
from wallaroo.processes import console
from wallaroo.processes.console import Entry, as_json, plain

EXIT_FAILED = 1
EXIT_PIPELINE = 2
EXIT_USER_CODE = 3
EXIT_TAKEN_OVER = 4
EXIT_OUR_MISTAKE = 70
EXIT_INTERRUPTED = 130
NO_TEMPORARY_FOLDER = (
    "there is no folder for temporary files that this user can write. Set TMPDIR to one."
)
# A command's module is imported only when that command runs: importing all would slow each one
# down.
COMMANDS = {
    "new": "wallaroo.cli.new",
    "dev": "wallaroo.cli.dev.command",
    "run": "wallaroo.cli.run.command",
    "replica": "wallaroo.cli.replica",
    "ingress": "wallaroo.cli.ingress",
    "send": "wallaroo.cli.send.command",
    "receive": "wallaroo.cli.receive.command",
    "graph": "wallaroo.cli.show",
    "explain": "wallaroo.cli.show",
    "sink": "wallaroo.cli.sink",
    "plan": "wallaroo.cli.plan",
    "state": "wallaroo.cli.state.command",
    "sql": "wallaroo.cli.sql",
    "status": "wallaroo.cli.status",
    "top": "wallaroo.cli.top",
    "profile": "wallaroo.cli.profile.command",
    "cluster": "wallaroo.cli.cluster",
    "verify": "wallaroo.cli.verify.command",
    "doctor": "wallaroo.cli.doctor.command",
    "completion": "wallaroo.cli.completion",
}
NEED_ALL = ("completion",)


def entry() -> None:
    """Run the command line of this process; the console script's entry point."""
    replace_stdout()
    try:
        try:
            code = main(sys.argv[1:])
        finally:  # at its exit, Python would report an error of buffered text in its own words
            sys.stdout.flush()
    except OSError as error:
        code = _output_failed(error)
    # A Ctrl-C during process exit would replace the known exit code.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def main(arguments: Sequence[str]) -> int:
    """Run ``wallaroo`` and return its exit code; only argparse raises SystemExit."""
    parser = build_parser(_asked_for(arguments))
    try:
        options = parser.parse_args(arguments)
    except WallarooError as error:  # an option's value needs what is not there
        _say(f"wallaroo: error: {error}")
        return exit_code(error)
    return run_command(options, arguments)


def _asked_for(arguments: Sequence[str]) -> Iterable[str]:
    """Return the command of a command line, or all of them if it needs several."""
    word = arguments[0] if arguments else ""
    return (word,) if word in COMMANDS and word not in NEED_ALL else COMMANDS


def run_command(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Call the handler of a command line, print any error and return the exit code."""
    try:
        return int(options.handler(options) or 0)
    except KeyboardInterrupt:
        _say("wallaroo: interrupted")
        return EXIT_INTERRUPTED
    except WallarooError as error:
        _show_trace_if_asked()
        is_ours = isinstance(error, InternalError)
        text = internal_error_text(error, arguments) if is_ours else str(error) + call_chain(error)
        _say(f"wallaroo: error: {text}")
        return exit_code(error)
    except Exception as error:  # noqa: BLE001  # this command's one error boundary
        if isinstance(error, BrokenPipeError) or is_failure(error):
            return _output_failed(error)
        _show_trace_if_asked()
        if "No usable temporary directory" in str(error):  # Python's own words
            _say(f"wallaroo: error: {NO_TEMPORARY_FOLDER}")
            return EXIT_FAILED
        _say(f"wallaroo: error: {internal_error_text(error, arguments)}")
        return EXIT_OUR_MISTAKE
    finally:
        console.use_form(plain)


def _output_failed(error: OSError) -> int:
    """Discard all further output; report the error unless the reader of a pipe has exited."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        _say(f"wallaroo: error: standard output cannot be written: {error.strerror}")
    return EXIT_FAILED


def _say(text: str) -> None:
    """Print the last message of a command, as JSON if its log has that form."""
    form = as_json if console.is_json() else plain
    print(form(Entry(text, "error", kind="error")), file=sys.stderr)


def build_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Build the parser of some commands, by default of all."""
    parser = CommandParser(
        prog="wallaroo",
        allow_abbrev=True,
        description=(
            "Run stream processing applications written against Wallaroo's Python API on "
            "Apache Spark."
        ),
        epilog="wallaroo COMMAND --help shows a command's options.",
    )
    parser.add_argument(
        "--version",
        action=_ShowVersion,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show program's version number and exit",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in dict.fromkeys(COMMANDS[command] for command in commands):
        importlib.import_module(module).add_parser(subparsers)
    return parser


class _ShowVersion(argparse.Action):
    """The option ``--version``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"wallaroo-spark {version()}")
        parser.exit()


def version() -> str:
    """Return the installed version, ``unknown`` if the package is on the path but not installed."""
    from importlib import metadata

    try:
        return metadata.version("wallaroo-spark")
    except metadata.PackageNotFoundError:
        return "unknown"


def exit_code(error: WallarooError) -> int:
    """Return the exit code for an error, by who can fix it."""
    if isinstance(error, UserCodeError):
        return EXIT_USER_CODE
    if isinstance(error, PipelineError):
        return EXIT_PIPELINE
    if isinstance(error, TakenOverError):
        return EXIT_TAKEN_OVER
    return EXIT_OUR_MISTAKE if isinstance(error, InternalError) else EXIT_FAILED


def internal_error_text(error: Exception, arguments: Sequence[str]) -> str:
    """Write the traceback to a file and return a sentence that asks for a report."""
    what, trace = (
        (error.what, error.trace) if isinstance(error, InternalError) else (_named(error), "")
    )
    machine = (
        f"wallaroo-spark {version()}, Python {platform.python_version()}, {platform.platform()}"
    )
    report = (
        f"{machine}\nwallaroo "
        f"{' '.join(arguments)}\n\n{''.join(traceback.format_exception(error))}\n{trace}"
    )
    try:
        with tempfile.NamedTemporaryFile(
            "w",
            prefix="wallaroo-error-",
            suffix=".txt",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",  # an argument may not be text in the terminal's encoding
        ) as file:
            file.write(report)
    except OSError:
        return (
            f"This is a mistake in wallaroo, not in your application ({what}). Please report "
            f"it with this text:\n{report}"
        )
    return (
        f"This is a mistake in wallaroo, not in your application ({what}). Please report it "
        f"and attach {file.name}"
    )


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _show_trace_if_asked() -> None:
    if os.environ.get("WALLAROO_TRACE"):
        traceback.print_exc()


if __name__ == "__main__":
    entry()
