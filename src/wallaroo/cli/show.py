"""``wallaroo graph`` and ``wallaroo explain``: an application's graph and its stages.

No JVM is started.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from wallaroo.api.application import Application
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.terminal.options import add_application, application_args
from wallaroo.dataflow.graph import render
from wallaroo.dataflow.graph.svg import svg
from wallaroo.dataflow.plan import explain

EPILOG = (
    "Every other option after APP, such as --in and --out, goes to the application's "
    "application_setup(args)."
)
FORMATS: dict[str, Callable[[Application], str]] = {
    "text": render.text,
    "mermaid": render.mermaid,
    "svg": lambda application: svg(application.root, application.name),
}


def add_parser(subparsers: Any) -> None:
    """Add ``graph`` and ``explain`` to the commands."""
    graph = subparsers.add_parser(
        "graph",
        allow_abbrev=False,
        help="show an application's sources, steps, shuffles and sinks",
        epilog=EPILOG,
    )
    graph.add_argument(
        "--format",
        choices=tuple(FORMATS),
        default="text",
        help="(default: %(default)s; give it before APP)",
    )
    _add_app(graph, show_graph)
    explanation = subparsers.add_parser(
        "explain",
        allow_abbrev=False,
        help="show the stages an application runs in, and why",
        epilog=EPILOG,
    )
    _add_app(explanation, show_plan)


def show_graph(options: argparse.Namespace) -> None:
    print(FORMATS[options.format](_load(options)))


def show_plan(options: argparse.Namespace) -> None:
    """Print the stages and the reason for the start of each."""
    print(explain.text(_load(options).plan))


def _load(options: argparse.Namespace) -> Application:
    return load_application(options.app, application_args(options))


def _add_app(
    parser: argparse.ArgumentParser, handler: Callable[[argparse.Namespace], None]
) -> None:
    add_application(parser, "options for the application")
    parser.set_defaults(handler=handler)
