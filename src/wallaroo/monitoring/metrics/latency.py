"""Latency from receipt to output, by pipeline.

Invariants:

* An output's latency is the time when its batch's output was sent minus its *receipt at the
  ingress*, not minus the time when its processing began.  So the latency of events that wait in the
  backlog during a slow batch includes their wait: there is no coordinated omission.
* A batch without output for any sink counts as sent when it is committed.
* Sinks keep order: when batch n was sent, so were all before it.
* At most ``WAITING_BATCHES_MAX`` batches wait.  When one more is added, the two oldest are merged,
  and count as sent with the newer one: nothing is omitted, and the cost of a long-unavailable
  receiver remains in the figures.
* A waiting batch holds at most ``RECEIPTS_MAX`` receipts per pipeline; above that, neighbours are
  merged into the earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wallaroo.monitoring.metrics.histogram import LatencyHistogram
from wallaroo.monitoring.metrics.status import PipelineLatency

WAITING_BATCHES_MAX = 256
NEWEST = 10  # calls of `take_recent`, each about a second
RECEIPTS_MAX = 1024

Receipts = Sequence[tuple[int, int]]  # (receipt in unix milliseconds, how many outputs)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A committed batch whose output has not left yet."""

    batch: int
    receipts: dict[str, list[tuple[int, int]]]


class LatencyMeter:
    """Histograms of the run by pipeline, in total and since `take_recent`."""

    def __init__(self, target_ms: float = 0.0) -> None:
        self.target_ms = target_ms  # 0 if there is none
        self.by_pipeline: dict[str, LatencyHistogram] = {}
        self._recent = LatencyHistogram()
        self._newest: deque[LatencyHistogram] = deque(maxlen=NEWEST)
        self.newest_p99_ms = 0.0  # p99 over the newest ten seconds; 0 if nothing left meanwhile
        self.late_seconds = 0  # those among them with a p99 of their own above twice the target
        self._waiting: deque[_Waiting] = deque()

    def batch_waits(self, batch: int, receipts: Mapping[str, Receipts]) -> None:
        """Keep a committed batch until `output_left` names it or a later one."""
        folded = {pipeline: _folded(sorted(some)) for pipeline, some in receipts.items()}
        self._waiting.append(_Waiting(batch, folded))
        if len(self._waiting) > WAITING_BATCHES_MAX:
            oldest = self._waiting.popleft()
            younger = self._waiting.popleft()
            self._waiting.appendleft(_joined(oldest, younger))

    def output_left(self, batch: int, at_ns: int) -> None:
        """Count outputs up to a batch, unless it is known to have been sent."""
        while self._waiting and self._waiting[0].batch <= batch:
            self.record(self._waiting.popleft().receipts, at_ns)

    def record(self, receipts: Mapping[str, Receipts], left_ns: int) -> None:
        """Count outputs sent at ``left_ns``."""
        left_ms = left_ns / 1e6
        for pipeline, some in receipts.items():
            histogram = self.by_pipeline.setdefault(pipeline, LatencyHistogram())
            for receipt_ms, count in some:
                histogram.record(left_ms - receipt_ms, count)
                self._recent.record(left_ms - receipt_ms, count)

    def take_recent(self) -> LatencyHistogram:
        """Return the latencies since the last call, all pipelines together."""
        recent = self._recent
        self._recent = LatencyHistogram()
        self._newest.append(recent)
        newest = LatencyHistogram()
        for some in self._newest:
            newest.merge(some)
        self.newest_p99_ms = _p99_ms(newest)
        self.late_seconds = sum(_p99_ms(some) > 2 * self.target_ms for some in self._newest)
        return recent

    def reset(self) -> None:
        """Forget the latencies so far; outputs that have not left yet will count."""
        self.by_pipeline.clear()

    @property
    def waiting_batches(self) -> int:
        """Return how many entries wait for their output to leave; at most WAITING_BATCHES_MAX."""
        return len(self._waiting)

    def status(self) -> tuple[PipelineLatency, ...]:
        return tuple(_latency_of(pipeline, seen) for pipeline, seen in self.by_pipeline.items())


def _p99_ms(seen: LatencyHistogram) -> float:
    return seen.quantiles(990)[0] if seen.count else 0.0


def _joined(oldest: _Waiting, younger: _Waiting) -> _Waiting:
    receipts = {
        pipeline: _folded(
            sorted(oldest.receipts.get(pipeline, []) + younger.receipts.get(pipeline, []))
        )
        for pipeline in {**oldest.receipts, **younger.receipts}
    }
    return _Waiting(younger.batch, receipts)


def _folded(receipts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Halve sorted receipts until they fit, keeping the earlier ones: never understated."""
    while len(receipts) > RECEIPTS_MAX:
        seconds = [count for _, count in receipts[1::2]] + [0]
        receipts = [
            (at_ms, count + more)
            for (at_ms, count), more in zip(receipts[::2], seconds, strict=False)
        ]
    return receipts


def _latency_of(pipeline: str, seen: LatencyHistogram) -> PipelineLatency:
    p50_ms, p95_ms, p99_ms, p999_ms, p9999_ms = seen.quantiles(500, 950, 990, 999, 999.9)
    return PipelineLatency(
        pipeline, seen.count, p50_ms, p95_ms, p99_ms, p999_ms, seen.max_ms, p9999_ms
    )
