"""What the watch of a run looks at: how far sources have come and what sinks have sent.

Where it runs: driver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from wallaroo.metrics.meter import RunMeter
from wallaroo.metrics.status import SinkLine, SourceStatus
from wallaroo.plan.model import DEAD_LETTERS, Plan
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.spark.batches import BatchRunner
from wallaroo.spool.format import folder_of
from wallaroo.spool.reader import SpoolReader

NO_WORKERS = "workers: Spark's master gives this application none now"


class Observer:
    """Looks, and tells the meter."""

    def __init__(
        self,
        plan: Plan,
        root: Path,
        batches: BatchRunner,
        committers: Mapping[str, SinkCommitter],
        meter: RunMeter,
    ):
        self._plan, self._batches, self._committers, self._meter = plan, batches, committers, meter
        self._readers = [
            SpoolReader(folder_of(root / "spool", source.config.name)) for source in plan.sources
        ]
        # when this run began
        self._first_events = [self._done(number)[1] for number in range(len(plan.sources))]

    def look(self) -> tuple[list[SourceStatus], list[SinkLine]]:
        """Return what sources and sinks say now."""
        sources = [self._source(number) for number in range(len(self._plan.sources))]
        sinks = []
        left: list[int] = []
        results = [sink for sink in self._plan.sinks if sink.name != DEAD_LETTERS]
        for sink in self._plan.sinks:
            status = self._committers[sink.name].status()
            sinks.append(
                SinkLine(
                    sink.name,
                    sink.config.label,
                    status.outputs,
                    status.waiting_for,
                    status.pending_bytes,
                )
            )
            if sink.name == DEAD_LETTERS:
                continue  # latency is that of results
            left.append(status.committed_batch)
            for batch, at_ns in status.sent_at_ns.items():
                if len(results) == 1:
                    self._meter.output_left(batch, at_ns)
        if len(results) > 1:
            self._meter.output_left(min(left), time.time_ns())
        self._meter.observe(
            sources, sinks, time.time(), NO_WORKERS if self._batches.cluster.is_empty else ""
        )
        return sources, sinks

    def is_full(self, bytes_max: int) -> bool:
        """Whether a sink has more to send than that."""
        return any(committer.backlog() > bytes_max for committer in self._committers.values())

    def _done(self, number: int) -> list[int]:
        last = self._batches.last
        return last.offsets.get(self._plan.sources[number].config.name, [0, 0]) if last else [0, 0]

    def _source(self, number: int) -> SourceStatus:
        config, head = self._plan.sources[number].config, self._readers[number].head()
        first, (byte, events) = self._first_events[number], self._done(number)
        return SourceStatus(
            name=config.name,
            label=config.label,
            events_in=head.position.events - first,
            events_done=events - first,
            backlog_events=head.position.events - events,
            backlog_bytes=head.position.byte - byte,
            connections=head.connections,
            is_paused=head.is_paused,
            is_ended=head.is_ended,
        )
