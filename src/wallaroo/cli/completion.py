"""``wallaroo completion``: a script for shell completion of commands and options.

Where it runs: a terminal.  The script is generated from the parsers, so it matches them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

SCRIPT = """\
_wallaroo() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=""
    case "$COMP_CWORD ${{COMP_WORDS[1]}}" in
        "1 "*) words="{commands}" ;;
{nested}
    esac
    case $word in
        -*) case ${{COMP_WORDS[1]}} in
{options}
        esac ;;
    esac
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _wallaroo wallaroo
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_parser(subparsers: Any) -> None:
    """Add ``completion`` to the commands."""
    parser = subparsers.add_parser(
        "completion",
        allow_abbrev=False,
        help="print a script that completes commands and options in bash or zsh",
        description=(
            "Print a script for the shell. Add to ~/.bashrc or ~/.zshrc: "
            'eval "$(wallaroo completion bash)"'
        ),
    )
    parser.add_argument("shell", choices=("bash", "zsh"))
    parser.set_defaults(handler=partial(print_script, subparsers.choices))


def print_script(commands: Mapping[str, argparse.ArgumentParser], options: Any) -> None:
    """Print the script for a shell."""
    print((ZSH if options.shell == "zsh" else "") + script(commands), end="")


def script(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return a bash function that completes commands, subcommands, and the options of all."""
    nested = {name: _subcommands(parser) for name, parser in commands.items()}
    return SCRIPT.format(
        commands=" ".join(commands),
        nested="\n".join(
            f'        "2 {name}") words="{" ".join(below)}" ;;'
            for name, below in nested.items()
            if below
        ),
        options="\n".join(
            f'            {name}) words="{" ".join(_options(parser, nested[name]))}" ;;'
            for name, parser in commands.items()
        ),
    )


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _options(
    parser: argparse.ArgumentParser, below: Mapping[str, argparse.ArgumentParser]
) -> list[str]:
    """Return the long options of a command and of its subcommands, each once."""
    actions = [action for one in (parser, *below.values()) for action in one._actions]
    words = [word for action in actions for word in action.option_strings]
    return list(dict.fromkeys(word for word in words if word.startswith("--")))
