"""The ``wallaroo`` command: parsing, dispatch and error reporting.

It calls the subcommand's handler, and turns every error into one clear text and an exit code.

Where it runs: driver, or a terminal beside it.

Exit codes: 0 done; 1 something outside is missing or wrong; 2 the command line or the pipeline is
wrong; 3 a function of the application failed; 4 another run took the checkpoint over; 70 a bug in
this package; 130 Ctrl-C.  Python's traceback is shown only if WALLAROO_TRACE is set.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from wallaroo.cli import (
    cluster,
    completion,
    dev,
    new,
    plan,
    show,
    sink,
    status,
)
from wallaroo.cli.application.arguments import CommandParser
from wallaroo.cli.application.hints import call_chain
from wallaroo.cli.doctor import command as doctor
from wallaroo.cli.profile import command as profile
from wallaroo.cli.receive import command as receive
from wallaroo.cli.run import command as run
from wallaroo.cli.send import command as send
from wallaroo.cli.state import command as state
from wallaroo.cli.verify import command as verify
from wallaroo.errors import (
    InternalError,
    PipelineError,
    TakenOverError,
    UserCodeError,
    WallarooError,
)

EXIT_FAILED = 1
EXIT_PIPELINE = 2
EXIT_USER_CODE = 3
EXIT_TAKEN_OVER = 4
EXIT_OUR_MISTAKE = 70
EXIT_INTERRUPTED = 130
COMMANDS = (
    new,
    dev,
    run,
    send,
    receive,
    show,
    sink,
    plan,
    state,
    status,
    profile,
    cluster,
    verify,
    doctor,
    completion,
)


def entry() -> None:
    """Run the command line of this process; the console script's entry point."""
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str], commands: Sequence[Any] = COMMANDS) -> int:
    """Run ``wallaroo`` and return its exit code; only argparse raises SystemExit."""
    return run_command(build_parser(commands).parse_args(arguments), arguments)


def run_command(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Call the handler of a command line, print any error and return the exit code."""
    try:
        return int(options.handler(options) or 0)
    except KeyboardInterrupt:
        print("wallaroo: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `wallaroo graph APP | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except WallarooError as error:
        _show_trace_if_asked()
        is_ours = isinstance(error, InternalError)
        text = internal_error_text(error, arguments) if is_ours else str(error) + call_chain(error)
        print(f"wallaroo: error: {text}", file=sys.stderr)
        return exit_code(error)
    except Exception as error:  # noqa: BLE001  # this command's one error boundary
        _show_trace_if_asked()
        print(f"wallaroo: error: {internal_error_text(error, arguments)}", file=sys.stderr)
        return EXIT_OUR_MISTAKE


def build_parser(commands: Sequence[Any] = COMMANDS) -> argparse.ArgumentParser:
    """Build the parser of all subcommands."""
    parser = CommandParser(
        prog="wallaroo",
        description=(
            "Run stream processing applications written against Wallaroo's Python API on "
            "Apache Spark."
        ),
        epilog="wallaroo COMMAND --help shows a command's options.",
    )
    parser.add_argument("--version", action="version", version=f"wallaroo-spark {version()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        command.add_parser(subparsers)
    return parser


def version() -> str:
    """Return the installed version, ``unknown`` if the package is on the path but not installed."""
    try:
        return metadata.version("wallaroo-spark")
    except metadata.PackageNotFoundError:
        return "unknown"


def exit_code(error: WallarooError) -> int:
    """Return the exit code for an error, by who has to act on it."""
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
            "w", prefix="wallaroo-error-", suffix=".txt", delete=False, encoding="utf-8"
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
