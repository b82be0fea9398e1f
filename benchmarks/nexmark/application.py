"""A query of Nexmark as an application.

    wallaroo run benchmarks/nexmark/application.py --query q5 --events events.jsonl --rows q5.jsonl

``--brokers`` reads a topic of that name in place of a file, up to its present end.

Where it runs: driver and workers.
"""

from __future__ import annotations

import argparse
from typing import Any

import wallaroo
from benchmarks.nexmark.events import ROWS, SERDE
from benchmarks.nexmark.queries import QUERIES

SOURCE = "nexmark"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build one query's application."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--events", required=True, help="a file of the generator, or a topic")
    parser.add_argument("--brokers", help="of the topic")
    parser.add_argument("--rows", required=True, help="the file of results")
    options = parser.parse_args(args)
    rows = wallaroo.FileSinkConfig(options.rows, ROWS.encoder, form="lines")
    source = _source(options.events, options.brokers)
    pipeline = QUERIES[options.query](wallaroo.source(SOURCE, source)).to_sink(rows)
    return wallaroo.build_application(f"Nexmark {options.query}", pipeline)


def _source(events: str, brokers: str | None) -> Any:
    if brokers is None:
        return wallaroo.FileSourceConfig(SOURCE, events, SERDE.decoder)
    return wallaroo.KafkaSourceConfig(SOURCE, events, brokers, SERDE.decoder, until_now=True)
