"""Command lines of the form ``wallaroo COMMAND [options] APP [options ...]``: options of the
command and of the application follow APP.

Where it runs: a terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

EPILOG = (
    "Every other option behind APP, such as --in and --out, goes to the application's "
    "application_setup(args); "
    "behind a '--' everything does."
)

AddOptions = Callable[[argparse.ArgumentParser], None]


def add_app(parser: argparse.ArgumentParser, add_options: AddOptions) -> None:
    """Give a command its options, APP, and what follows."""
    add_options(parser)
    parser.add_argument(
        "app", metavar="APP", help="the application: its Python file, or a module's name"
    )
    parser.add_argument(
        "rest",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="options of this command and of the application",
    )


def trailing_parser(command: str, app: str, add_options: AddOptions) -> argparse.ArgumentParser:
    """Return the parser for a command's own options after APP."""
    own = argparse.ArgumentParser(prog=f"wallaroo {command} {app}", allow_abbrev=False)
    add_options(own)
    return own


def split_args(
    own: argparse.ArgumentParser, arguments: argparse.Namespace
) -> tuple[argparse.Namespace, list[str]]:
    """Split what follows APP into the command's options and the application's, which stay as
    they are and in order.
    """
    rest = list(arguments.rest)
    cut = rest.index("--") if "--" in rest else len(rest)
    given = argparse.Namespace(
        **{name: value for name, value in vars(arguments).items() if name != "rest"}
    )
    options, application_args = own.parse_known_args(rest[:cut], given)
    return options, application_args + rest[cut + 1 :]
