"""The driver's tally of one run: what batches did, when their output left, what sources and sinks
say; read as a `RunStatus`.

Where it runs: driver.  Batches report from Spark's callback thread, the terminal asks from the main
thread: a lock parts them. Time is an argument everywhere: seconds, milliseconds and nanoseconds of
the wall clock (receipts come from other processes, so a monotonic clock would not do).

The laws of latency:

* An output's latency is the moment its batch's output left minus its receipt.  A batch nobody waits
  for left when it was committed.
* Sinks keep order: when batch n has left, so have all before it.
* At most ``WAITING_BATCHES_MAX`` batches wait.  When one more comes, the two oldest become one,
  which leaves with the younger: nothing is forgotten, and what a long-absent receiver costs stays
  in the figures.
* A waiting batch holds at most ``RECEIPTS_MAX`` receipts per pipeline; above, neighbours are folded
  into the earlier of the two.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from wallaroo.engine.failures import Sample, Tally, add_counts
from wallaroo.metrics.failed_events import error_counts
from wallaroo.metrics.histogram import LatencyHistogram
from wallaroo.metrics.rates import DurationWindow, RateMeter
from wallaroo.metrics.status import PipelineLatency, RunStatus, SinkLine, SourceStatus, WorkerStatus

WAITING_BATCHES_MAX = 256
RECEIPTS_MAX = 1024

Receipts = Sequence[tuple[int, int]]  # (receipt in unix milliseconds, how many outputs)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A committed batch whose output has not left yet."""

    batch: int
    receipts: dict[str, list[tuple[int, int]]]


class RunMeter:
    """Everything a `RunStatus` needs, gathered during one run.  Memory is bounded; methods may be
    called from any thread.
    """

    def __init__(
        self,
        application: str,
        started_at: float,
        *,
        checkpoint: str = "",
        is_durable: bool = False,
        tasks: int = 0,
        recovered_batch: int = -1,
    ) -> None:
        self._lock = Lock()
        self._application = application
        self._started_at = started_at
        self._checkpoint, self._is_durable, self._recovered_batch = (
            checkpoint,
            is_durable,
            recovered_batch,
        )
        self._state, self._tasks, self._waiting_for = "starting", tasks, ""
        self._batches, self._last_batch = 0, recovered_batch
        self._durations = DurationWindow()
        self._in, self._done, self._out = (
            RateMeter(started_at),
            RateMeter(started_at),
            RateMeter(started_at),
        )
        self._waiting: deque[_Waiting] = deque()
        self._latency: dict[str, LatencyHistogram] = {}
        self._sources: tuple[SourceStatus, ...] = ()
        self._sinks: tuple[SinkLine, ...] = ()
        self._errors: Tally = {}
        self._last_errors: dict[str, str] = {}
        self._workers: tuple[WorkerStatus, ...] = ()
        self._moved = ""
        self._doing = ""
        self._doing_at = started_at
        self._running_at = 0.0

    def recovered(self, batch: int) -> None:
        """Say which committed batch the run goes on after; -1: none."""
        with self._lock:
            self._recovered_batch = batch
            self._last_batch = batch

    def starting(self, doing: str) -> None:
        """Note what a starting or stopping run is busy with; "": nothing in particular."""
        with self._lock:
            self._doing = doing
            self._doing_at = time.time()

    def begin_running(self, now: float) -> None:
        """Say that input is processed from now on: rates do not count the start."""
        with self._lock:
            self._running_at = now
            self._in = RateMeter(now, self._in.total)
            self._done = RateMeter(now, self._done.total)
            self._out = RateMeter(now, self._out.total)

    def enter(self, state: str) -> None:
        """Change the run's state: one of the words in `RunStatus`."""
        with self._lock:
            self._state = state

    def set_tasks(self, tasks: int) -> None:
        """Say how many tasks the next batch has."""
        with self._lock:
            self._tasks = tasks

    def set_workers(self, workers: tuple[WorkerStatus, ...]) -> None:
        """Say which workers there are, by name, and what each works on."""
        with self._lock:
            self._workers = workers

    def set_moved(self, text: str) -> None:
        """Say what the last change of the cluster moved, in words."""
        with self._lock:
            self._moved = text

    def batch_done(
        self,
        batch: int,
        started_ns: int,
        finished_ns: int,
        events_by_source: Mapping[str, int],
        outputs_by_sink: Mapping[str, int],
        receipts: Mapping[str, Receipts],
        pending_sinks: Collection[str] | None = None,
    ) -> None:
        """Count a committed batch.

        ``pending_sinks`` names the sinks whose output of this batch has yet to leave; not given:
        every sink that got outputs. With none, the batch left at ``finished_ns``; otherwise
        `output_left` has to say when.
        """
        started_s, finished_s = started_ns / 1e9, finished_ns / 1e9
        outputs = sum(outputs_by_sink.values())
        is_waiting = outputs > 0 if pending_sinks is None else bool(pending_sinks)
        with self._lock:
            self._batches += 1
            self._last_batch = batch
            self._durations.add((finished_ns - started_ns) / 1e6)
            self._done.add(sum(events_by_source.values()), started_s, finished_s)
            self._out.add(outputs, started_s, finished_s)
            if is_waiting:
                self._wait(
                    _Waiting(
                        batch,
                        {pipeline: _folded(sorted(some)) for pipeline, some in receipts.items()},
                    )
                )
            else:
                self._record(receipts, finished_ns)

    def events_failed(self, counts: Tally, samples: Sequence[Sample]) -> None:
        """Count events of a committed batch that failed without stopping the run."""
        with self._lock:
            add_counts(self._errors, counts)
            for sample in samples:
                self._last_errors[sample.step] = f"{sample.place}: {sample.cause}: {sample.event}"

    def output_left(self, batch: int, at_ns: int) -> None:
        """Say when the sinks had sent a batch (and with it all before).  A batch already known to
        have left is ignored.
        """
        with self._lock:
            while self._waiting and self._waiting[0].batch <= batch:
                self._record(self._waiting.popleft().receipts, at_ns)

    def observe(
        self,
        sources: Sequence[SourceStatus],
        sinks: Sequence[SinkLine],
        now: float,
        waiting_for: str = "",
    ) -> None:
        """Take over what sources and sinks say of themselves; ``waiting_for`` is what holds the
        whole run up, in words.
        """
        with self._lock:
            self._sources, self._sinks, self._waiting_for = (
                tuple(sources),
                tuple(sinks),
                waiting_for,
            )
            self._in.sample(sum(source.events_in for source in sources), now)

    def status(self, now: float) -> RunStatus:
        """A snapshot at ``now`` (unix seconds)."""
        with self._lock:
            return RunStatus(
                application=self._application,
                state=self._state,
                started_at=self._started_at,
                elapsed_s=max(0.0, now - self._started_at),
                batches=self._batches,
                last_batch=self._last_batch,
                batch_ms=self._durations.last_ms,
                batch_ms_median=self._durations.median_ms,
                events_in=self._in.total,
                events_done=self._done.total,
                outputs=self._out.total,
                events_in_per_s=self._in.per_second(now),
                events_done_per_s=self._done.per_second(now),
                outputs_per_s=self._out.per_second(now),
                tasks=self._tasks,
                sources=self._sources,
                sinks=self._sinks,
                latency=tuple(
                    _latency_of(pipeline, seen) for pipeline, seen in self._latency.items()
                ),
                waiting_for=self._waiting_for or _sinks_wait_for(self._sinks),
                checkpoint=self._checkpoint,
                is_durable=self._is_durable,
                recovered_batch=self._recovered_batch,
                errors=error_counts(self._errors, self._last_errors),
                workers=self._workers,
                moved=self._moved,
                doing=self._doing,
                doing_s=max(0.0, now - self._doing_at) if self._doing else 0.0,
                running_at=self._running_at,
            )

    def reset_latency(self) -> None:
        """Forget the latencies so far.  Outputs that have yet to leave will count, whenever they
        were received.
        """
        with self._lock:
            self._latency.clear()

    @property
    def waiting_batches(self) -> int:
        """How many entries wait for their output to leave; at most ``WAITING_BATCHES_MAX``."""
        return len(self._waiting)

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if len(self._waiting) > WAITING_BATCHES_MAX:
            oldest, younger = self._waiting.popleft(), self._waiting.popleft()
            self._waiting.appendleft(_joined(oldest, younger))

    def _record(self, receipts: Mapping[str, Receipts], left_ns: int) -> None:
        left_ms = left_ns / 1e6
        for pipeline, some in receipts.items():
            histogram = self._latency.setdefault(pipeline, LatencyHistogram())
            for receipt_ms, count in some:
                histogram.record(left_ms - receipt_ms, count)


def _joined(oldest: _Waiting, younger: _Waiting) -> _Waiting:
    receipts = {
        pipeline: _folded(
            sorted(oldest.receipts.get(pipeline, []) + younger.receipts.get(pipeline, []))
        )
        for pipeline in {**oldest.receipts, **younger.receipts}
    }
    return _Waiting(younger.batch, receipts)


def _folded(receipts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Halve sorted receipts until they fit; a pair takes its earlier receipt, so latency is never
    understated.
    """
    while len(receipts) > RECEIPTS_MAX:
        seconds = [count for _, count in receipts[1::2]] + [0]
        receipts = [
            (at_ms, count + more)
            for (at_ms, count), more in zip(receipts[::2], seconds, strict=False)
        ]
    return receipts


def _latency_of(pipeline: str, seen: LatencyHistogram) -> PipelineLatency:
    p50_ms, p95_ms, p99_ms, p999_ms = seen.quantiles(500, 950, 990, 999)
    return PipelineLatency(pipeline, seen.count, p50_ms, p95_ms, p99_ms, p999_ms, seen.max_ms)


def _sinks_wait_for(sinks: Sequence[SinkLine]) -> str:
    return "; ".join(f"{sink.name}: {sink.waiting_for}" for sink in sinks if sink.waiting_for)
