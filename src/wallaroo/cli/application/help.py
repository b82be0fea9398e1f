"""The options of an application, recorded while its set-up parses its arguments.

Where it runs: a terminal.  Only ``application_setup`` is run, which builds a plan and starts
nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wallaroo.cli.application.loading import import_application
from wallaroo.errors import WallarooError

# the value that --in and --out read while only their names are wanted
PLACEHOLDER = "name@127.0.0.1:1"


def application_help(app: str) -> str:
    """Return the options ``application_setup`` reads with argparse, or why they are unknown."""
    try:
        setup = getattr(import_application(app), "application_setup", None)
    except WallarooError as error:
        return f"The application's options are not known: {error}"
    with recorded_parsers() as parsers:
        try:
            if callable(setup):
                setup([])
        except (Exception, SystemExit):  # noqa: BLE001  # it got no real arguments; the parsers seen so far count
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
