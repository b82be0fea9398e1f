"""Command lines of the form ``wallaroo COMMAND [options] APP [options ...]``.

Options of the command and of the application follow APP.  For their help only ``application_setup``
is run, which builds a plan and starts nothing; the parsers that it asks are recorded.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wallaroo.cli.application.loading import import_application
from wallaroo.cli.terminal.parser import CommandParser, add_application
from wallaroo.errors import PipelineError, Problem, WallarooError

NEAR_ENOUGH = 0.8  # difflib's ratio: --chekpoint is --checkpoint, and --config is not --conf
MODULES_MAX = 200  # neighbour modules that are searched for the application's options

EPILOG = (
    "Every other option after APP, such as --in and --out, goes to the application's "
    "application_setup(args); after a '--' everything does."
)

# the value of --in and --out while only their names are read
PLACEHOLDER = "name@127.0.0.1:1"

AddOptions = Callable[[argparse.ArgumentParser], None]


def add_app(parser: argparse.ArgumentParser, add_options: AddOptions) -> None:
    """Add a command's options, APP and the rest of the command line to its parser."""
    add_options(parser)
    add_application(parser, "options of this command and of the application")


def trailing_parser(command: str, app: str, add_options: AddOptions) -> argparse.ArgumentParser:
    """Return the parser for a command's own options after APP."""
    parser = CommandParser(prog=f"wallaroo {command} {app}", add_help=False)
    add_options(parser)
    parser.add_argument(
        "-h", "--help", action="store_true", help="show these options and the application's"
    )
    return parser


def split_args(
    own: argparse.ArgumentParser,
    arguments: argparse.Namespace,
    other: argparse.ArgumentParser | None = None,
) -> tuple[argparse.Namespace, list[str]]:
    """Split the arguments after APP into the command's options and the application's.

    The application's are unchanged and in order.  With --help among the arguments, print the
    options of both and exit.  Raises PipelineError if an option resembles one of the command's, or
    is one of the ``other`` command's, and the application does not know it.
    """
    rest = list(arguments.rest)
    cut = rest.index("--") if "--" in rest else len(rest)
    given = argparse.Namespace(
        **{name: value for name, value in vars(arguments).items() if name != "rest"}
    )
    options, application_args = own.parse_known_args(rest[:cut], given)
    if options.help:
        print(own.format_help())
        print(application_help(arguments.app))
        own.exit()
    refuse_misspelled(application_args, own, arguments.app, other)
    return options, application_args + rest[cut + 1 :]


def refuse_misspelled(
    words: Sequence[str],
    own: argparse.ArgumentParser,
    app: str,
    other: argparse.ArgumentParser | None = None,
) -> None:
    """Raise PipelineError for an option that resembles the command's own, or another command's.

    An application's own option is never refused: its name occurs in the application's source, or
    the user puts it after '--'.
    """
    options = _long_options(own)
    elsewhere = [] if other is None else _long_options(other)
    source: str | None = None
    for word in words:
        option = word.partition("=")[0]
        if not option.startswith("--") or option == "--":
            continue
        near = difflib.get_close_matches(option, options, 1, NEAR_ENOUGH)
        if other is not None and option in elsewhere:
            what = f"This is an option of `{_command(other)}`, which `{_command(own)}` lacks."
        elif near:
            what = f"Neither wallaroo nor {app} has this option. Did you mean {near[0]}?"
        else:
            continue
        if source is None:
            source = source_of(app)
        if source and option not in source:
            fix = f"If it is the application's, write it after '--': {app} -- {word}"
            raise PipelineError(Problem(option, "", what, fix))


def _long_options(parser: argparse.ArgumentParser) -> list[str]:
    options = re.findall(r"--[\w-]+", parser.format_usage())
    return [option for option in options if option != "--help"]


def _command(parser: argparse.ArgumentParser) -> str:
    """Return a command of the form ``wallaroo COMMAND``."""
    return " ".join(parser.prog.split()[:2])


def source_of(app: str) -> str:
    """Return the source text of the application and its neighbour modules, or ""."""
    path = Path(app)
    if not path.is_file():
        try:
            spec = importlib.util.find_spec(app)
        except (ImportError, ValueError):
            return ""
        if spec is None or not spec.origin:
            return ""
        path = Path(spec.origin)
    files = [path, *sorted(path.parent.glob("*.py"))[:MODULES_MAX]]
    return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)


def application_help(app: str) -> str:
    """Return the options that ``application_setup`` reads with argparse, or why not."""
    try:
        setup = getattr(import_application(app), "application_setup", None)
    except WallarooError as error:
        return f"The application's options are not known: {error}"
    with recorded_parsers() as parsers:
        try:
            if callable(setup):
                setup([])
        except (Exception, SystemExit):  # noqa: BLE001  # no real arguments; the parsers seen suffice
            pass
    sections = [_options(parser) for parser in parsers]
    if not any(sections):
        return f"{app} reads no options with argparse."
    return f"options of {app}:\n" + "\n".join(filter(None, sections))


@contextmanager
def recorded_parsers() -> Iterator[list[argparse.ArgumentParser]]:
    """Record each parser that is asked to parse, and return its defaults to the caller."""
    parsers: list[argparse.ArgumentParser] = []

    def record(
        parser: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        parsers.append(parser)
        answers = {action.dest: action.default for action in parser._actions}
        if parser.prog == "wallaroo":
            answers["value"] = PLACEHOLDER
        return argparse.Namespace(**answers), []

    original = argparse.ArgumentParser.parse_known_args
    argparse.ArgumentParser.parse_known_args = record  # type: ignore[method-assign,assignment]
    try:
        yield parsers
    finally:
        argparse.ArgumentParser.parse_known_args = original  # type: ignore[method-assign]


def _options(parser: argparse.ArgumentParser) -> str:
    """Return the lines that explain a parser's options, without usage, title and --help."""
    formatter = argparse.HelpFormatter(prog=parser.prog)
    formatter.start_section(None)
    formatter.add_arguments(
        [action for action in parser._actions if "--help" not in action.option_strings]
    )
    formatter.end_section()
    return formatter.format_help().rstrip()
