"""The history of a run's figures, in bounded memory.

The figures are rates, latency percentiles, backlog and batch time.  Three rings hold samples of one
shape: ten minutes by the second, four hours by 15 seconds, a day by the minute.  Every sample
covers its whole interval, so there is no gap between two of them; one without outputs has no
percentiles (None), one in which no batch ended no batch time.  Memory is that of ``SAMPLES_MAX``
samples, at any throughput.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from wallaroo.monitoring.metrics.histogram import LatencyHistogram


@dataclass(frozen=True, slots=True)
class Span:
    """One ring: a sample every ``step_s`` seconds, for ``samples`` of them."""

    name: str
    step_s: int
    samples: int


SPANS = (Span("10m", 1, 600), Span("4h", 15, 960), Span("24h", 60, 1440))
SAMPLES_MAX = sum(span.samples for span in SPANS)
COLUMNS = (
    "at",
    "in_per_s",
    "done_per_s",
    "out_per_s",
    "backlog_events",
    "backlog_bytes",
    "batch_ms",
    "p50_ms",
    "p99_ms",
    "p999_ms",
)
Row = tuple[float | None, ...]  # in the order of COLUMNS


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals at one moment, from which rates are computed."""

    events_in: int = 0
    events_done: int = 0
    outputs: int = 0
    batches: int = 0
    batch_ms: float = 0.0  # summed over all batches


class _Ring:
    """The rows of one span, and the interval that is being collected."""

    def __init__(self, span: Span, started_at: float):
        self.span = span
        self.rows: deque[Row] = deque(maxlen=span.samples)
        self._began_at = started_at
        self._began = Totals()
        self._latency = LatencyHistogram()

    def add(self, now: float, totals: Totals, backlog: tuple[int, int]) -> bool:
        """Append a row if the interval is over; return whether it was."""
        elapsed_s = now - self._began_at
        if elapsed_s < 0:  # the clock was set back
            self._began_at = now
        if elapsed_s < self.span.step_s:
            return False
        began = self._began
        batches = totals.batches - began.batches
        p50_ms, p99_ms, p999_ms = self._percentiles()
        self.rows.append(
            (
                round(now, 1),
                round((totals.events_in - began.events_in) / elapsed_s, 1),
                round((totals.events_done - began.events_done) / elapsed_s, 1),
                round((totals.outputs - began.outputs) / elapsed_s, 1),
                *backlog,
                round((totals.batch_ms - began.batch_ms) / batches, 1) if batches else None,
                p50_ms,
                p99_ms,
                p999_ms,
            )
        )
        self._began_at = now
        self._began = totals
        self._latency = LatencyHistogram()
        return True

    def record(self, recent: LatencyHistogram) -> None:
        self._latency.merge(recent)

    def _percentiles(self) -> Sequence[float | None]:
        if not self._latency.count:
            return (None, None, None)
        return [round(value, 2) for value in self._latency.quantiles(500, 990, 999)]


class SampleHistory:
    """The rings of one run."""

    def __init__(self, started_at: float):
        self._rings = [_Ring(span, started_at) for span in SPANS]

    def is_due(self, now: float) -> bool:
        """Return whether the finest ring's interval is over."""
        finest = self._rings[0]
        return not 0 <= now - finest._began_at < finest.span.step_s

    def add(
        self, now: float, totals: Totals, backlog: tuple[int, int], recent: LatencyHistogram
    ) -> None:
        """Add a sample; ``recent`` holds the latencies since the last one."""
        for ring in self._rings:
            ring.record(recent)
            ring.add(now, totals, backlog)

    def rows(self, span: str) -> list[Row] | None:
        """Return the samples of a span, oldest first; None if there is no such span."""
        return next((list(ring.rows) for ring in self._rings if ring.span.name == span), None)

    def newest(self) -> Row | None:
        """Return the newest sample of the finest ring; None before the first."""
        rows = self._rings[0].rows
        return rows[-1] if rows else None
