"""Intake of the next batch: its bound over the sources, and holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from wallaroo.sources.log import Position, SourceLog

Ends = dict[str, Position]  # by source name


# the share of a backlog (one in four) that a batch may take beyond its bound: the rest waits for
# several batches anyway.  If all sources have ended, no later event waits for the batch.
BACKLOG_SHARE = 4


@dataclass(frozen=True, slots=True)
class Admission:
    """The next batch's events over all sources, or none.

    ``limits`` is for some of them.

    ``events_most``: the bound if several batches of ``events_max`` wait.
    """

    events_max: int = 0
    is_held: bool = True
    limits: Mapping[str, int] | None = None
    events_most: int = 0


def _unasked(source: str) -> None:
    """Do nothing before a query to a source."""


def have_ended(logs: Mapping[str, SourceLog], ask: Callable[[str], None] = _unasked) -> bool:
    """Return whether no source will have further events; ``ask``: see `plan_ends`."""
    for name, log in logs.items():
        ask(name)
        if not log.head().is_ended:
            return False
    return True


def plan_ends(
    start: Mapping[str, Position],
    logs: Mapping[str, SourceLog],
    events_max: int,
    events_most: int = 0,
    limits: Mapping[str, int] | None = None,
    ask: Callable[[str], None] = _unasked,
) -> Ends:
    """Return the positions at which the next batch ends.

    It reaches the ends of the logs, or has ``events_max`` events shared in proportion to the
    backlogs.  ``events_most``: the bound if several batches of ``events_max`` wait already.  Their
    events are late anyway, and larger batches clear them sooner.  ``limits``: for some sources, by
    name.  ``ask``: called with a source's name before each query.
    """
    backlogs = {}
    ends: Ends = {}
    for name, log in logs.items():
        ask(name)
        ends[name] = log.reconcile(start[name])
        # a corrected position is committed before anything after it is read
        backlogs[name] = log.backlog(start[name]) if ends[name] is start[name] else 0
    if limits is not None:
        backlogs = {name: min(each, limits.get(name, each)) for name, each in backlogs.items()}
    total = sum(backlogs.values())
    if min(events_most, total) > events_max:
        most = total if have_ended(logs, ask) else total // BACKLOG_SHARE
        events_max = max(events_max, min(events_most, most))
    for name, log in logs.items():
        backlog = backlogs[name]
        share = events_max if total <= events_max else max(1, events_max * backlog // total)
        share = share if limits is None else min(share, backlog)
        ask(name)
        if backlog:
            ends[name] = log.advance(start[name], share)
    return ends


class AdmissionControl:
    """The run's admission of input to batches, closed at first.

    A lock separates its threads.
    """

    def __init__(
        self,
        admit: Callable[[Admission], None],
        events_first: int,
        limits: Callable[[], Mapping[str, int] | None] | None = None,
    ):
        """Begin held; ``limits``: events that sources may deliver now, by name."""
        self._admit = admit
        self._limits = limits
        self._lock = threading.Lock()
        self._admission = Admission(events_first, True, limits and limits())

    def publish(self) -> None:
        """Pass the current admission to the host, as at its start."""
        with self._lock:
            self._admit(self._admission)

    @property
    def is_held(self) -> bool:
        """Return whether batches must not take anything."""
        return self._admission.is_held

    def hold(self, is_held: bool) -> None:
        """Hold back all input from batches, or release it."""
        self._change(lambda admission: replace(admission, is_held=is_held))

    def allow(self, events_max: int, events_most: int = 0) -> None:
        """Bound the next batch; ``events_most`` as in `Admission`."""
        self._change(
            lambda admission: replace(admission, events_max=events_max, events_most=events_most)
        )

    def _change(self, changed: Callable[[Admission], Admission]) -> None:
        with self._lock:
            admission = changed(self._admission)
            if self._limits is not None:
                admission = replace(admission, limits=self._limits())
            if admission != self._admission:
                self._admission = admission
                self._admit(admission)
