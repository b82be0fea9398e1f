"""Planning of the next epoch while tasks work on the current one.

If input waits, tasks begin with the next epoch as soon as they have reported, and do not wait for
the commit.

The invariants:

* Only level 0 is run ahead: nothing in it depends on the previous commit. No plan has state there,
  and watermarks unknown to a level-0 task are added after the shuffle
  (`engine.time.partition_times`).  Its blocks wait in the task.
* If it is the only level, its reports wait there, and its output is staged in files per attempt,
  which count once a commit names them. Such a plan has no event time, as nothing would add it, and
  no sink with its own tokens, as only its committer could drop what they name. With more levels,
  level 0 must have no output.
* A run ahead that failed or could not read all of its input does not count: the cause may have
  passed when the epoch comes.
* The driver sends an epoch after the previous commit. If it differs from the planned one (another
  number, other pieces), the task drops its results and reruns level 0. So, as always, nothing of an
  epoch counts before the commit that it follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from wallaroo.dataflow.plan.model import Plan, ToSinks
from wallaroo.engine.time.watermarks import BatchTime
from wallaroo.runtime.batch.admission import Admission, Ends
from wallaroo.runtime.resident.framing import Ahead, Epoch
from wallaroo.runtime.tasks.job import Pieces

# returns the ends of an epoch, by its start
Take = Callable[[Ends, Admission], Ends]
# cuts the input from a start to the ends into pieces for the tasks
Cut = Callable[[Ends, Ends], Pieces]


def may_run_ahead(plan: Plan, is_outbox_here: bool = True) -> bool:
    """Return whether level 0 of a plan may run before the previous commit.

    ``is_outbox_here``: tasks stage output as files in the checkpoint's folder.
    """
    if plan.levels == 1:
        if plan.has_time or plan.has_end:
            return False
        return is_outbox_here and all(sink.config.has_staged_tokens for sink in plan.sinks)
    if plan.dead_letters is not None:
        return False
    return not any(stage.level == 0 and isinstance(stage.exit, ToSinks) for stage in plan.stages)


class Planned(NamedTuple):
    """The start and ends of an epoch, and its pieces by task."""

    start: Ends
    ends: Ends
    pieces: Pieces

    def after(self, start: Ends) -> Planned:
        """Return the same after a commit that has counted the events up to ``start``."""
        ends = {
            name: replace(end, events=start[name].events + end.events - self.start[name].events)
            for name, end in self.ends.items()
        }
        return Planned(start, ends, self.pieces)


class Pipelining:
    """Planner of the next epoch, used if a full epoch is waiting."""

    def __init__(
        self,
        plan: Plan,
        waiting: Callable[[Ends], int],
        take: Take,
        cut: Cut,
        time: Callable[[Ends, BatchTime], BatchTime],
        is_outbox_here: bool = True,
    ):
        self._waiting = waiting  # returns how many events wait after an end
        self._take = take
        self._cut = cut
        self._time = time
        self._is_possible = may_run_ahead(plan, is_outbox_here)
        self._under_way: Ends | None = None  # the ends of the epoch under way
        self._planned: Planned | None = None  # the one after it
        self._next: Planned | None = None  # the same, once it is the next one to begin

    def planned(self, start: Ends) -> Ends | None:
        """Return, once, the ends of the epoch planned to begin at ``start``, or None."""
        planned = self._planned
        self._planned = None
        if planned is None or _places(planned.start) != _places(start):
            return None
        self._next = planned.after(start)
        return self._next.ends

    def begin(self, ends: Ends) -> Pieces | None:
        """Record the start of an epoch and its ends; return its pieces if it was planned ahead."""
        planned = self._next
        self._next = None
        self._under_way = ends
        return planned.pieces if planned is not None and planned.ends is ends else None

    def ahead(self, epoch: Epoch, admitted: Admission) -> Ahead | None:
        """Plan the epoch after ``epoch``; None if tasks should not begin with it.

        An error must not prevent the current epoch's commit: it recurs when the next one is planned
        in its turn.
        """
        try:
            return self._ahead(epoch, admitted)
        except Exception:  # noqa: BLE001  # whatever a source raises
            self._planned = None
            return None

    def _ahead(self, epoch: Epoch, admitted: Admission) -> Ahead | None:
        start = self._under_way
        if start is None or not self._is_possible or admitted.is_held:
            return None
        if not admitted.events_most:  # no batch has shown the cost of an event yet
            return None
        if admitted.limits is not None or self._waiting(start) < admitted.events_max:
            return None
        ends = self._take(start, admitted)
        self._planned = Planned(start, ends, self._cut(start, ends))
        time = self._time(ends, epoch.time)
        return Ahead(epoch.batch + 1, self._planned.pieces, epoch.is_sampled, time)


def _places(ends: Ends) -> dict[str, Any]:
    return {name: position.place for name, position in ends.items()}
