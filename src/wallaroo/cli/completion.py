"""``wallaroo completion``: a script for shell completion of commands and options.

shtab generates the script from the parsers, so it matches them.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import shtab


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands and options in bash or zsh",
        description=(
            "Print a script for the shell. Add to ~/.bashrc or ~/.zshrc: "
            'eval "$(wallaroo completion bash)"'
        ),
    )
    parser.add_argument("shell", choices=("bash", "zsh"))
    parser.set_defaults(handler=partial(print_script, subparsers))


def print_script(commands: Any, options: argparse.Namespace) -> None:
    """Print the script for a shell; ``commands`` is the action of the subparsers."""
    root = argparse.ArgumentParser(prog="wallaroo")
    root._add_action(commands)
    _complete_files(root)
    print(shtab.complete(root, options.shell))


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Complete every value that is not one of some choices as a file."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _complete_files(subparser)
        elif action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab reads it
