"""``wallaroo sql``: a query over the state and commits of a checkpoint.

Nothing is locked or written; without ``--app`` none of the application's code is imported.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import sys
from typing import Any

from wallaroo.checkpoints.inspection.values import plain
from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.cli.state.looking import loads_of
from wallaroo.cli.terminal.formatting import print_table
from wallaroo.cli.terminal.parser import whole
from wallaroo.errors import optional_library
from wallaroo.processes.open_files import allow_many_files
from wallaroo.user_code.references import load

LIMIT_DEFAULT = 100


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "sql",
        help="query the state and commits of a checkpoint with SQL",
        description=(
            "Query a checkpoint, of a stopped or a running application, with SQL (DuckDB): "
            "state.STEP has the keys of a step with their fields; commits, sinks and dead_letters "
            "are tables, too. Nothing is locked or written."
        ),
    )
    parser.add_argument("query", metavar="QUERY", help="select ... from state.totals ...")
    parser.add_argument(
        "--checkpoint",
        type=checkpoint_here,
        required=True,
        metavar="DIR",
        help="the folder given to wallaroo run --checkpoint",
    )
    parser.add_argument(
        "--commit", type=int, metavar="N", help="state after batch N (default: the newest)"
    )
    parser.add_argument(
        "--app", metavar="APP", help="import the application and read state with its own classes"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object per line")
    form.add_argument("--csv", action="store_true", help="print CSV, with a header")
    parser.add_argument(
        "--limit",
        type=whole(0),
        default=LIMIT_DEFAULT,
        metavar="N",
        help="rows of the printed table (default: %(default)s)",
    )
    parser.set_defaults(handler=sql_command)


def sql_command(options: argparse.Namespace) -> None:
    """Run the query and print its rows."""
    allow_many_files()
    loads = loads_of(options.app)
    with optional_library("`wallaroo sql`", "duckdb", "where this command runs"):
        ask = load("wallaroo.checkpoints.tables.query:ask")
    answer = ask(options.checkpoint, options.query, options.commit, loads)
    if options.json:
        for rows in answer.blocks:
            for row in rows:
                print(json.dumps(_json(dict(zip(answer.columns, row, strict=True)))))
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        for rows in answer.blocks:
            writer.writerows([_cell(value, "") for value in row] for row in rows)
    else:
        _print(answer, options.limit)


def _print(answer: Any, limit: int) -> None:
    shown: list[tuple[str, ...]] = []
    count = 0
    for rows in answer.blocks:
        space = max(0, limit - len(shown))
        shown += [tuple(_cell(value, "-") for value in row) for row in rows[:space]]
        count += len(rows)
    print_table(answer.columns, shown)
    if count > limit:
        print(f"the first {limit:,} of {count:,} rows; --limit N shows more, --csv and --json all")


def _cell(value: Any, absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, bytes | datetime.datetime):
        return str(_json(value))
    if isinstance(value, list | dict):
        return json.dumps(_json(value))
    return str(value)


def _json(value: Any) -> Any:
    """Return a value as JSON has it, or else in the form of the state tools."""
    if isinstance(value, dict):
        return {key: _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    if isinstance(value, float):
        return plain(float(value))
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
