"""Meters of events and outputs, and reports of sources and sinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wallaroo.monitoring.metrics.rates import RateMeter
from wallaroo.monitoring.metrics.status import BackfillStatus, Counts, SinkLine, SourceStatus
from wallaroo.sources.log import Backfill


class FlowMeter:
    """Totals and rates of one run; newest reports of sources and sinks."""

    def __init__(self, started_at: float) -> None:
        self.events_in = RateMeter(started_at)
        self.events_done = RateMeter(started_at)
        self.outputs = RateMeter(started_at)
        self.sources: tuple[SourceStatus, ...] = ()
        self.sinks: tuple[SinkLine, ...] = ()
        self.observed_at = started_at
        self._cause = ""
        self._waiting_for = ""

    def restart_rates(self, now: float) -> None:
        """Measure rates from ``now`` on; totals stay."""
        self.events_in = RateMeter(now, self.events_in.total)
        self.events_done = RateMeter(now, self.events_done.total)
        self.outputs = RateMeter(now, self.outputs.total)

    def batch_done(self, events: int, outputs: int, started_s: float, finished_s: float) -> None:
        """Count the events and outputs of a committed batch."""
        self.events_done.add(events, started_s, finished_s)
        self.outputs.add(outputs, started_s, finished_s)

    def observe(
        self,
        sources: Sequence[SourceStatus],
        sinks: Sequence[SinkLine],
        now: float,
        waiting_for: str,
        cause: str,
    ) -> None:
        """Record the reports and the cause of the wait; all else follows from ``cause``."""
        self.sources = tuple(sources)
        self.sinks = tuple(sinks)
        self.observed_at = now
        self._cause = cause
        self._waiting_for = waiting_for
        self.events_in.sample(sum(source.events_in for source in sources), now)

    @property
    def waiting_for(self) -> str:
        """Return a wait's causes in words, each before its possible consequences."""
        sinks = [f"{sink.name}: {sink.waiting_for}" for sink in self.sinks if sink.waiting_for]
        words = "; ".join(filter(None, (*sinks, self._waiting_for)))
        if not self._cause:
            return words
        return "; ".join(filter(None, (self._cause, words.replace(self._cause, "the same"))))

    @property
    def backlog_events(self) -> int:
        return sum(source.backlog_events for source in self.sources)

    @property
    def backlog_bytes(self) -> int:
        return sum(source.backlog_bytes for source in self.sources)


class BackfillMeter:
    """Meter of the first part of a chain."""

    def __init__(self) -> None:
        self._rate: RateMeter | None = None

    def status(self, backfill: Backfill | None, now: float) -> BackfillStatus | None:
        """Record its progress; return it with its estimated end."""
        if backfill is None:
            return None
        done, left, is_whole = backfill
        if self._rate is None:
            self._rate = RateMeter(now, done)
        elif done != self._rate.total:
            self._rate.sample(done, now)
        per_s = self._rate.per_second(now)
        share = done / max(1, done + left) if is_whole else None
        return BackfillStatus(done, left, share, left / per_s if is_whole and per_s else None)


class CountMeter:
    """Numbers by name and by subject, such as a source.

    A new counter is one call of `note`, and a row in the table of ``status_api.figures``.
    """

    def __init__(self) -> None:
        self.counts: Counts = {}

    def note(self, place: str, counts: Mapping[str, int]) -> None:
        """Note the present numbers of a source, sink, step or worker, by figure."""
        for figure, number in counts.items():
            numbers = {**self.counts.get(figure, {}), place: number}
            # replaced, never changed: others may be reading it
            self.counts = {**self.counts, figure: numbers}
