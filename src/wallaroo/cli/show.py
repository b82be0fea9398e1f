"""``wallaroo graph`` and ``wallaroo explain``: an application's graph and its stages.

No JVM is started.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from wallaroo.api.application import Application
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.terminal.parser import add_application, application_args
from wallaroo.dataflow.graph import render
from wallaroo.dataflow.graph.svg import svg
from wallaroo.dataflow.plan import explain

FORMATS: dict[str, Callable[[Application], str]] = {
    "text": render.text,
    "mermaid": render.mermaid,
    "svg": lambda application: svg(application.root, application.name),
}


def add_parser(subparsers: Any) -> None:
    """Add ``graph`` and ``explain`` to the commands."""
    graph = subparsers.add_parser(
        "graph", help="show an application's sources, steps, shuffles and sinks", epilog=EPILOG
    )
    add_app(graph, _add_format)
    graph.set_defaults(handler=show_graph)
    explanation = subparsers.add_parser(
        "explain", help="show the stages that an application runs in, and why", epilog=EPILOG
    )
    add_application(explanation, "options for the application")
    explanation.set_defaults(handler=show_plan)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="text", help="(default: %(default)s)"
    )


def show_graph(arguments: argparse.Namespace) -> None:
    own = trailing_parser("graph", arguments.app, _add_format)
    options, args = split_args(own, arguments)
    print(FORMATS[options.format](load_application(options.app, args)))


def show_plan(options: argparse.Namespace) -> None:
    """Print the stages and the reason for the start of each."""
    application = load_application(options.app, application_args(options))
    print(explain.text(application.plan))
