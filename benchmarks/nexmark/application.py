"""A query of Nexmark as an application.

    wallaroo run benchmarks/nexmark/application.py --query q5 --events events.jsonl --rows q5.jsonl

``--blocks`` runs a query's vectorized twin.  ``--brokers`` reads a topic of that name in place of a
file, up to its present end.

Where it runs: driver and workers.
"""

from __future__ import annotations

import argparse
from typing import Any

import wallaroo
from benchmarks.nexmark.events import ROWS, Bid
from benchmarks.nexmark.queries import KINDS, QUERIES
from wallaroo.serdes import Json

SOURCE = "nexmark"


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build one query's application."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--events", required=True, help="a file of the generator, or a topic")
    parser.add_argument("--brokers", help="of the topic")
    parser.add_argument("--rows", required=True, help="the file of results")
    parser.add_argument("--blocks", action="store_true", help="vectorized")
    options = parser.parse_args(args)

    def read(decoder: Any) -> wallaroo.Pipeline[Any]:
        return wallaroo.source(SOURCE, _source(options.events, options.brokers, decoder))

    if options.blocks:
        from benchmarks.nexmark import blocks  # with numpy and polars

        rows = blocks.QUERIES[options.query](read)
        encoder: Any = blocks.as_objects
    else:
        kinds = KINDS.get(options.query, Bid) | None  # others are dropped
        rows = QUERIES[options.query](read(Json(kinds, tag="type").decoder))
        encoder = ROWS.encoder
    sink = wallaroo.FileSinkConfig(options.rows, encoder, form="lines")
    pipeline = rows.to_sink(sink)
    return wallaroo.build_application(f"Nexmark {options.query}", pipeline)


def _source(events: str, brokers: str | None, decoder: Any) -> Any:
    if brokers is None:
        return wallaroo.FileSourceConfig(SOURCE, events, decoder)
    return wallaroo.KafkaSourceConfig(SOURCE, events, brokers, decoder, until_now=True)
