"""A query of Nexmark as an application.

    wallaroo run benchmarks/nexmark/application.py --query q5 --events events.jsonl --rows q5.jsonl

Where it runs: driver and workers.
"""

from __future__ import annotations

import argparse

import wallaroo
from benchmarks.nexmark.events import ROWS, SERDE
from benchmarks.nexmark.queries import QUERIES

SOURCE = "nexmark"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build one query's application."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--events", required=True, help="a file of the generator")
    parser.add_argument("--rows", required=True, help="the file of results")
    options = parser.parse_args(args)
    source = wallaroo.FileSourceConfig(SOURCE, options.events, SERDE.decoder)
    rows = wallaroo.FileSinkConfig(options.rows, ROWS.encoder, form="lines")
    pipeline = QUERIES[options.query](wallaroo.source(SOURCE, source)).to_sink(rows)
    return wallaroo.build_application(f"Nexmark {options.query}", pipeline)
