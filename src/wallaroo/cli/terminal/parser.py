"""The parser of the command line, and options that several commands share.

It lies apart from the options of applications: a command that builds none, such as ``wallaroo
status``, loads no planner.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

EXIT_USAGE = 2


class CommandParser(argparse.ArgumentParser):
    """A parser that answers a mistake in one sentence and forbids abbreviations."""

    _words: Sequence[str] = ()  # the command line, of which argparse does not name the command

    def __init__(self, *, allow_abbrev: bool = False, **options: Any):
        super().__init__(allow_abbrev=allow_abbrev, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line; exit at a mistake."""
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_args(args, namespace)

    def _get_nargs_pattern(self, action: argparse.Action) -> str:
        """Return the pattern of an argument's words; APP has no part in a '--' that follows it."""
        pattern = super()._get_nargs_pattern(action)
        return pattern.replace("A-*)", "A)") if action.dest == "app" else pattern

    def error(self, message: str) -> NoReturn:
        """Print the mistake, and the command that shows the options; exit."""
        what = re.sub(r"invalid \w+ value: ('.*')", r"\1 is not a number", message)
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        candidates = re.findall(r"[\w-]+", choice[2]) if choice else []
        unknown = choice or re.search(r"unrecognized arguments: (--[\w-]+)", message)
        command = self if choice else self._command()
        if unknown is not choice:
            candidates = [
                option for each in command._all() for option in each._option_string_actions
            ]
        near = difflib.get_close_matches(unknown[1], candidates, 1) if unknown else []
        if near:
            what = f"{what.partition(' (choose from')[0]}. Did you mean {near[0]}?"
        elif not what.endswith((".", "?")):
            what += "."
        hint = f"`{command.prog} --help` shows the options."
        self.exit(EXIT_USAGE, f"wallaroo: error: {what} {hint}\n")

    def _command(self) -> CommandParser:
        """Return the parser of the command that the words name, possibly of another one."""
        parser = self
        for word in self._words:
            commands = parser._commands()
            if word not in commands:
                break
            parser = commands[word]
        return parser

    def _all(self) -> list[CommandParser]:
        """Return the parsers whose options an error may be about."""
        return list(self._commands().values()) or [self]

    def _commands(self) -> dict[str, CommandParser]:
        return {
            name: parser
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, parser in action.choices.items()
        }


def whole(least: int, most: int | None = None, way_on: str = "") -> Callable[[str], int]:
    """Return the parser of whole numbers within bounds; ``way_on`` ends its refusal."""

    def whole_number(text: str) -> int:
        number = int(text)
        if most is None and number < least:
            raise argparse.ArgumentTypeError(f"{text} is too small: at least {least}")
        if most is not None and not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}{way_on}")
        return number

    return whole_number


def seconds(text: str) -> float:
    """Parse a time above 0."""
    time_s = float(text)
    if not 0 < time_s < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds above 0")
    return time_s


def add_application(parser: argparse.ArgumentParser, rest: str) -> None:
    """Add APP and the arguments after it; ``rest`` is their help."""
    parser.add_argument(
        "app", metavar="APP", help="the application: its Python file, or a module's name"
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help=rest)


def application_args(options: argparse.Namespace) -> list[str]:
    """Return the arguments after APP, for commands without options of their own there."""
    rest: list[str] = options.rest
    return rest[1:] if rest[:1] == ["--"] else rest


def add_header(parser: argparse.ArgumentParser, form: str = "") -> None:
    """Add the options for the header of frames; ``form`` begins their help."""
    parser.add_argument(
        "--header-length",
        type=int,
        default=4,
        metavar="BYTES",
        help=f"{form}size of the header (default 4)",
    )
    parser.add_argument(
        "--length-fmt",
        default=">I",
        metavar="FMT",
        help=f"{form}struct format of the header (default '>I')",
    )
