"""The run's figures in Prometheus' text format.

Where it runs: driver, when ``/metrics`` is read; nothing is counted for Prometheus while events
flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_LATEST
from prometheus_client.exposition import generate_latest

from wallaroo.dataflow.plan.model import Plan
from wallaroo.monitoring.metrics.details import BOUNDS_S, LatencyBuckets, RunDetails
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.figures import FIGURES, PREFIX, Figure, Kind, Row, Run


def exposition(plan: Plan, status: RunStatus, details: RunDetails) -> bytes:
    """Return all metrics of one run, and those of the driver's process."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(Run(plan, status, details)))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Snapshot:
    """A collector of one moment."""

    def __init__(self, run: Run):
        self._run = run

    def collect(self) -> Iterator[Metric]:
        for figure in FIGURES:
            rows = figure.read(self._run)
            if rows is not None:
                yield _metric(figure, rows)


def _metric(figure: Figure, rows: Iterable[Row]) -> Metric:
    kind = CounterMetricFamily if figure.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(f"{PREFIX}{figure.key}", figure.help, labels=figure.labels)
    histogram = HistogramMetricFamily(f"{PREFIX}{figure.key}", figure.help, labels=figure.labels)
    for values, value in rows:
        if isinstance(value, LatencyBuckets):
            bounds = zip(map(str, BOUNDS_S), value.counts, strict=True)
            buckets = [*bounds, ("+Inf", value.count)]
            histogram.add_metric(values, buckets, sum_value=value.sum_s)
        else:
            family.add_metric(values, value)
    return histogram if figure.kind is Kind.HISTOGRAM else family
