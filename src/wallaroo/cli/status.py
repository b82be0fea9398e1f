"""``wallaroo status``: the status of a running application, as text or JSON.

The words after ``status`` are distinguished by their form: a query's name is the query; HOST:PORT
or a folder identifies the application.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from wallaroo.cli.application.targets import is_place, only_one, target_of
from wallaroo.cli.run.table import live_table, table_console
from wallaroo.cli.terminal.parser import whole
from wallaroo.errors import PipelineError, Problem
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api import queries

SEVERAL = 2  # exit code if the command line does not identify one application

# -- the command line


def add_parser(subparsers: Any) -> None:
    names = "\n".join(f"  {name:<28}{what}" for name, what in queries.QUERIES.items())
    parser = subparsers.add_parser(
        "status",
        help="show the status of a running application",
        usage="wallaroo status [-h] [--json] [--limit N] [WHERE] [QUERY]",
        description=(
            "Show what a running application does, or answer one of Wallaroo's queries in JSON."
        ),
        epilog=(
            f"queries:\n{names}\n\nWallaroo's own names, such as partition-query, mean the same."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WHERE, QUERY",
        help=(
            "WHERE: the application's HOST:PORT, or https://HOST:PORT, or its checkpoint's folder "
            "or URL (default: the one that runs here); QUERY: see below"
        ),
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="the whole status as JSON; queries are always answered in JSON",
    )
    parser.add_argument(
        "--link", action="store_true", help="print the dashboard's address with its token"
    )
    parser.add_argument(
        "--limit",
        type=whole(1, queries.LIMIT_MAX, "; `wallaroo state export` writes all entries"),
        default=queries.LIMIT_DEFAULT,
        metavar="N",
        help=f"with {queries.KEYS}: keys of each step (default: %(default)s)",
    )
    parser.set_defaults(handler=status_command)


def status_command(options: argparse.Namespace) -> int:
    """Print the application's answer; return the exit code."""
    where, query = parse_target_and_query(options.words)
    target = target_of(where) if where else only_one("status")
    if target is None:
        return SEVERAL
    if options.link:
        print(target.link)
        return 0
    path = (
        queries.STATUS_PATH
        if query is None
        else f"/{query}" + (f"?limit={options.limit}" if query == queries.KEYS else "")
    )
    if query is None and not options.json:
        _show(target.status())
        return 0
    answer = target.ask(path)
    print(answer.body)
    if answer.is_truncated:
        print(
            f"wallaroo: only {options.limit} keys of a step are shown; --limit N shows more",
            file=sys.stderr,
        )
    return 0


def parse_target_and_query(words: list[str]) -> tuple[str | None, str | None]:
    """Return the target and the query.

    Raises PipelineError for a word that is neither, or for two of a kind.

    >>> lines = (["127.0.0.1:4000", "partition-query"], ["partition"], [])
    >>> tuple(map(parse_target_and_query, lines))
    (('127.0.0.1:4000', 'partition'), (None, 'partition'), (None, None))
    """
    where: list[str] = []
    asked: list[str] = []
    for word in words:
        query = queries.query_of(word)
        if query is not None:
            asked.append(query)
        elif is_place(word):
            where.append(word)
        else:
            what = f"'{word}' is neither HOST:PORT, nor a folder, nor a query."
            raise PipelineError(
                Problem("wallaroo status", "", what, f"Queries: {', '.join(queries.QUERIES)}.")
            )
    if len(where) > 1 or len(asked) > 1:
        two = where if len(where) > 1 else asked
        raise PipelineError(
            Problem("wallaroo status", "", f"{' and '.join(two)} were given.", "Give one of them.")
        )
    return where[0] if where else None, asked[0] if asked else None


# -- showing it


def _show(status: RunStatus) -> None:
    """Print a status as text: the live table, with the workers even if there is only one."""
    table_console().print(live_table(status, workers_from=1, workers_shown=len(status.workers)))
