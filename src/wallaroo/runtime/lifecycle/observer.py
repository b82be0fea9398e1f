"""Observation of a run: progress of its sources and sinks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import nlargest

from wallaroo.dataflow.plan.model import DEAD_LETTERS, Plan
from wallaroo.engine.time.watermarks import Watermarks
from wallaroo.instrumentation.tracing import trace_point
from wallaroo.monitoring.metrics.flow import BackfillMeter
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import SinkLine, SourceStatus
from wallaroo.runtime.batch.batches import Batches
from wallaroo.runtime.lifecycle.sinks import LOGGED_S, Wait, clock
from wallaroo.runtime.lifecycle.times import NO_TIMES, RunTimes, times_of
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sources.log import Head, Position, SourceLog

PARTITIONS_MAX = 64  # per source, whose lags the status shows
_log = logging.getLogger("wallaroo.run")


class Outage:
    """Outage of a source or of its ingress, logged if it lasts."""

    def __init__(self, source: str, now: Callable[[], float] = time.time, ingress: str = ""):
        self._source = source
        self._ingress = f": ingress '{ingress}'" if ingress else ""
        self._now = now
        self._since: float | None = None  # unix
        self._is_logged = False

    def note(self, error: str) -> str:
        """Record the source's error; return it with its start, empty if there is none."""
        now = self._now()
        if not error:
            if self._is_logged and self._since is not None:
                _log.warning(
                    "source '%s'%s is available again after %.0f s",
                    *(self._source, self._ingress, now - self._since),
                )
            self._since = None
            self._is_logged = False
            return ""
        if self._since is None:
            self._since = now
        where = "" if error.lower().startswith("source ") else f"source '{self._source}': "
        words = f"{where}{error.removesuffix('.')}, since {clock(self._since)}"
        if not self._is_logged and now - self._since >= LOGGED_S:
            self._is_logged = True
            _log.warning("%s", words)
        return words


class Outages:
    """Outages of one source and of each of its ingresses."""

    def __init__(self, source: str, now: Callable[[], float] = time.time):
        self._source = source
        self._now = now
        self._own = Outage(source, now)
        self._ingresses: dict[str, Outage] = {}

    def note(self, head: Head) -> str:
        """Record the problems; return them with their starts."""
        self._ingresses = {
            name: self._ingresses.get(name) or Outage(self._source, self._now, name)
            for name in head.ingresses
        }
        words = [self._own.note(head.error)]
        words += [self._ingresses[name].note(error) for name, error in head.ingresses.items()]
        return "; ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Observation:
    """The status of sources and sinks at one poll."""

    sources: tuple[SourceStatus, ...]
    sinks: tuple[SinkLine, ...]

    @property
    def is_input_done(self) -> bool:
        """Return whether all sources have ended and all their events are committed."""
        return all(source.is_ended and source.backlog_events == 0 for source in self.sources)


class Observer:
    """Observer of a run, which reports to the meter."""

    def __init__(
        self,
        plan: Plan,
        logs: tuple[SourceLog, ...],
        batches: Batches,
        committers: Mapping[str, SinkCommitter],
        meter: RunMeter,
    ):
        self._plan = plan
        self._logs = logs
        self._batches = batches
        self._committers = committers
        self._meter = meter
        self._waits = [Wait(sink.name, sink.config.label) for sink in plan.sinks]
        self._outages = [Outages(source.config.name) for source in plan.sources]
        self._first = batches.ends  # positions at the beginning of this run
        self._backfills = [BackfillMeter() for _ in plan.sources]
        self._has_time = plan.has_time
        self._marks = -1, Watermarks()  # with the batch that they belong to

    def look(self, waiting_for: str = "", cause: str = "") -> Observation:
        """Return the current status of sources and sinks, and report it to the meter.

        ``waiting_for``: the reason that the whole run waits, or empty. ``cause``: the part of it
        that explains other waits, including those of sources and sinks.
        """
        ends = self._batches.ends
        heads = [log.head() for log in self._logs]
        times = self._times()
        self._meter.progress.step_times = times.steps
        sources = tuple(
            self._source(number, head, ends, times) for number, head in enumerate(heads)
        )
        sinks = self._sinks()
        # systems that sources read come before possible consequences of their outage
        outages = (each.note(head) for each, head in zip(self._outages, heads, strict=True))
        words = "; ".join(filter(None, (*outages, waiting_for)))
        self._meter.observe(sources, sinks, time.time(), words, cause)
        self._meter.progress.damaged = dict(self._batches.damaged)
        trace_point("observer.looked")
        return Observation(sources, sinks)

    def _sinks(self) -> tuple[SinkLine, ...]:
        lines: list[SinkLine] = []
        left: list[int] = []
        results = [sink for sink in self._plan.sinks if sink.name != DEAD_LETTERS]
        for sink, wait in zip(self._plan.sinks, self._waits, strict=True):
            status = self._committers[sink.name].status()
            wait.note(status, time.time())
            lines.append(
                SinkLine(
                    sink.name,
                    sink.config.label,
                    status.outputs,
                    wait.words,
                    status.pending_bytes,
                    wait.since,
                )
            )
            if sink.name == DEAD_LETTERS:
                continue  # latency counts results only
            left.append(status.committed_batch)
            for batch, at_ns in status.sent_at_ns.items():
                if len(results) == 1:
                    self._meter.output_left(batch, at_ns)
        if len(results) > 1:
            self._meter.output_left(min(left), time.time_ns())
        return tuple(lines)

    def _times(self) -> RunTimes:
        if not self._has_time:
            return NO_TIMES
        last = self._batches.last
        if last is not None and last.batch != self._marks[0]:
            self._marks = last.batch, Watermarks.from_json(last.watermarks)
        return times_of(self._plan, self._marks[1], time.time_ns())

    def _source(
        self, number: int, head: Head, ends: Mapping[str, Position], times: RunTimes
    ) -> SourceStatus:
        config = self._plan.sources[number].config
        first_events = self._first[config.name].events
        done = ends[config.name]
        events_done = done.events - first_events
        backlog = self._logs[number].backlog_events(done, head)
        self._meter.counts.note(config.name, head.counts)
        return SourceStatus(
            name=config.name,
            label=config.label,
            events_in=events_done + backlog,
            events_done=events_done,
            backlog_events=backlog,
            backlog_bytes=self._logs[number].backlog_bytes(done, head),
            connections=head.connections,
            is_paused=head.is_paused,
            is_ended=head.is_ended,
            time=times.sources.get(config.name),
            lags=_largest(self._logs[number].lags(done, head.position) or {}),
            group=self._logs[number].group,
            backfill=self._backfills[number].status(self._logs[number].backfill(done), time.time()),
        )


def _largest(lags: Mapping[str, int], most: int = PARTITIONS_MAX) -> dict[str, int]:
    """Return the largest lags, by partition: a list of thousands would be useless."""
    if len(lags) <= most:
        return dict(lags)
    shown = set(nlargest(most, lags, key=lambda name: lags[name]))
    return {name: lag for name, lag in lags.items() if name in shown}
