"""Changes per second of a PostgreSQL table, from its slot to a file, while nothing else is done by
the server; beside it what reading the slot costs alone, and plain PySpark, which has no source for
them: with one of its Python data sources (`plain_changes.py`), over a slot of the same changes.
They take turns.

    python -m benchmarks.lake.changes [--changes 1000000] [--rounds 3]

Where it runs: the benchmark's process; the run and the server are processes of their own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.lake.plain_changes import PLUGIN, SLOT, plain
from benchmarks.lib import loads
from benchmarks.lib.machine import Report, median, options, settings_of
from benchmarks.lib.turns import PLAIN, Turns, add_rounds
from benchmarks.lib.watched import measured
from tests.connectors.postgres.server import Server, running_server

APPLICATION = Path(__file__).with_name("application.py")
ROWS_PER_TRANSACTION = 1000
PEEK = (
    f"SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{SLOT}', NULL, NULL, "
    "'proto_version', '1', 'publication_names', 'items')"
)


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--hosts", nargs="+", default=["resident"])
    add_rounds(parser)
    args = parser.parse_args()
    report = Report("changes", settings_of(args))
    turns = Turns(report, "change")
    alone_s = []
    with loads.scratch(args.scratch) as folder:
        for number in range(args.rounds):
            for host in args.hosts:
                with running_server("wal_level=logical", "max_wal_size=4GB") as server:
                    _fill(server, args.changes)
                    began = time.perf_counter()
                    server.ask(PEEK)
                    alone_s.append(time.perf_counter() - began)
                    place = folder / f"{host}-{number}"
                    place.mkdir()
                    arguments = ["--job", "changes", "--folder", str(place), "--dsn", server.dsn]
                    turns.add(host, measured(APPLICATION, arguments, args.changes, host, place))
            with running_server("wal_level=logical", "max_wal_size=4GB") as server:
                _fill(server, args.changes, PLUGIN)
                place = folder / f"plain-{number}"
                place.mkdir()
                turns.add(PLAIN, plain(place, server.dsn, args.changes))
    turns.finish(dict.fromkeys(args.hosts, PLAIN), note=", without the server's")
    report.add("the server alone, changes/s", args.changes / median(alone_s), "")
    return report.finish(args.json)


def _fill(server: Server, changes: int, plugin: str = "pgoutput") -> None:
    """Insert rows, in transactions, after the slot's place."""
    server.ask("CREATE TABLE items (id bigint PRIMARY KEY, name text, price float8)")
    server.ask("CREATE PUBLICATION items FOR TABLE items")
    server.ask(f"SELECT pg_create_logical_replication_slot('{SLOT}', '{plugin}')")
    for first in range(0, changes, ROWS_PER_TRANSACTION):
        last = min(first + ROWS_PER_TRANSACTION, changes) - 1
        server.ask(
            f"INSERT INTO items SELECT n, 'item ' || n, n * 0.01 "
            f"FROM generate_series({first}, {last}) n"
        )


if __name__ == "__main__":
    sys.exit(main())
