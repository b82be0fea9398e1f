"""The table of headline figures at the top of README.md, from the reports in ``results/``.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.lib.machine import number

ROWS_MAX = 15
CommandOf = Callable[[Mapping[str, Any]], str]
NOT_MEASURED = "not measured"
NO_REPORT: Mapping[str, Any] = {"figures": (), "command": NOT_MEASURED, "began": ""}


@dataclass(frozen=True, slots=True)
class Headline:
    """A row of the table; ``{name}`` in its cells is a figure of the report with that name."""

    subject: str
    report: str  # the file in results/, without its suffix
    figure: str
    beside: str = ""


HEADLINES = (
    Headline(
        "Market Spread from a full spool, per-event Python functions, checkpoint on",
        "event_cost",
        "{Market Spread, resident, durable: events/s} events/s",
        "Bytewax, tuned, one process: {Market Spread, Bytewax, tuned: events/s}; by CPU time on "
        "all cores {Market Spread, resident, durable: rate / Bytewax, tuned, by CPU time on all "
        "cores} times",
    ),
    Headline(
        "the same with `--host micro-batch`",
        "event_cost",
        "{Market Spread, micro-batch, durable: events/s} events/s",
        "Bytewax, tuned: by CPU time on all cores {Market Spread, micro-batch, durable: rate / "
        "Bytewax, tuned, by CPU time on all cores} times",
    ),
    Headline(
        "Word Count from a full spool, checkpoint on",
        "event_cost",
        "{Word Count, resident, durable: events/s} words/s",
        "Bytewax, tuned, one process: {Word Count, Bytewax, tuned: events/s}; by CPU time on all "
        "cores {Word Count, resident, durable: rate / Bytewax, tuned, by CPU time on all cores} "
        "times",
    ),
    Headline(
        "Market Spread beside the same job in PySpark, in one session",
        "market_spread",
        "{durable: steady batches, median} events/s",
        "plain `transformWithState`: {plain transformWithState, median}",
    ),
    Headline(
        "Market Spread, vectorized, from a full spool",
        "vectorized",
        "{vectorized, messages, median} messages/s",
        "a bare numpy loop: {bare numpy loop / vectorized, CPU} of the CPU per message",
    ),
    Headline(
        "counts in tumbling windows of 1 s",
        "timed_runs",
        "{tumbling 1 s, resident: events/s} events/s",
        "Bytewax, 2 processes: {Bytewax, 2 processes: events/s}",
    ),
    Headline(
        "Market Spread from Kafka",
        "kafka_peers",
        "{Market Spread, Wallaroo} records/s",
        "Bytewax {Market Spread, Bytewax}; plain PySpark {Market Spread, plain PySpark}; "
        "Quix Streams {Market Spread, Quix Streams}",
    ),
    Headline(
        "Nexmark q9, the winning bids, from JSON lines to JSON lines",
        "nexmark_beside_flink",
        "{q9, resident: events/s} events/s",
        "Flink SQL: {q9, Flink SQL: events/s}",
    ),
    Headline(
        "Nexmark q0, which passes bids through",
        "nexmark_beside_flink",
        "{q0, resident: events/s} events/s",
        "Flink SQL: {q0, Flink SQL: events/s}",
    ),
    Headline(
        "live over TCP for a minute, backlog flat, senders on the same cores",
        "live_tcp",
        "{messages in} messages/s",
    ),
    Headline(
        "TCP sender to TCP receiver, 100 events/s for ten minutes, `--latency low`",
        "latency_ten_minutes",
        "{low, 100/s: p50} ms p50, {low, 100/s: p99} ms p99",
    ),
    Headline(
        "the same with 100,000 events/s",
        "latency_ten_minutes_100000",
        "{low, 100000/s: p50} ms p50, {low, 100000/s: p99} ms p99",
    ),
    Headline(
        "Kafka to Kafka, exactly once, 1,000 events/s, `--latency low`",
        "kafka_latency",
        "{low, exactly-once, 1000/s: p50} ms p50, {low, exactly-once, 1000/s: p99} ms p99",
        "at least once: {low, at-least-once, 1000/s: p50} and {low, at-least-once, 1000/s: p99}",
    ),
    Headline(
        "longest wait of an event when a worker is killed, ten times, `--latency low`",
        "healing",
        "{longest} s",
    ),
    Headline(
        "recovery of 1,000,000 keys, nothing in memory or in the view",
        "state_size",
        "{1,000,000 keys: recovery with an empty view} s",
    ),
)


def markdown(reports: Mapping[str, Mapping[str, Any]], command_of: CommandOf) -> str:
    """Return the table; ``reports`` by name, ``command_of(report)`` is the command to show."""
    lines = ["| what | figure | beside | command | on |", "|---|---|---|---|---|"]
    for headline in HEADLINES:
        report = reports.get(headline.report, NO_REPORT)
        values = {figure["name"]: figure["value"] for figure in report["figures"]}
        cells = (
            headline.subject,
            filled(headline.figure, values),
            filled(headline.beside, values),
            f"`{command_of(report)}`",
            report["began"][:10],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(text: str, values: Mapping[str, float]) -> str:
    """Replace each figure's name in braces by its value, the text if one has none.

    >>> filled("{all: p50} ms", {"all: p50": 5.528})
    '5.53 ms'
    >>> filled("{a peer: p50} ms", {})
    'not measured'
    """
    if not values.keys() >= set(_names(text)):
        return NOT_MEASURED
    for name in _names(text):
        text = text.replace(f"{{{name}}}", number(values[name]))
    return text


def _names(text: str) -> Iterable[str]:
    return [part.partition("}")[0] for part in text.split("{")[1:]]
