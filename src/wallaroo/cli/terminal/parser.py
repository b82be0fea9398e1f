"""The parser of the command line.

It lies apart from the options of applications: a command that builds none, such as ``wallaroo
status``, loads no planner.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
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
