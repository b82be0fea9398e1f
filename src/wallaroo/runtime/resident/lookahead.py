"""The epoch after the one under way, planned while tasks work on the latter: where input waits,
they begin with it as soon as they have reported, and do not wait for the commit.

Where it runs: driver.

The invariants:

* Only level 0 is run ahead, and only of plans in which it has no effects: no state (no plan has any
  there), no output, no time.  What it gives waits in the task.
* An epoch is what the driver sends after the commit before it.  Where that is another one than was
  planned ahead (another number, other pieces), the task drops what it has run, and runs level 0
  again.  So nothing of an epoch counts before the commit that it follows, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from wallaroo.plan.model import Plan, ToSinks
from wallaroo.runtime.intake import Admission, Ends
from wallaroo.runtime.job import Pieces
from wallaroo.runtime.resident.epochs import Ahead
from wallaroo.sources.log import SourceLog

# returns where an epoch ends, by where it begins
Take = Callable[[Ends, Admission], Ends]
# cuts what lies between two places of the sources into pieces for the tasks
Cut = Callable[[Ends, Ends], Pieces]


def may_run_ahead(plan: Plan) -> bool:
    """Whether level 0 of a plan has no effects, and an exchange after it."""
    has_time = plan.has_time or plan.has_end
    if plan.levels < 2 or has_time or plan.dead_letters is not None:
        return False
    return not any(stage.level == 0 and isinstance(stage.exit, ToSinks) for stage in plan.stages)


class Planned(NamedTuple):
    """Where an epoch begins and ends."""

    start: Ends
    ends: Ends


class Lookahead:
    """Plans epochs ahead where a whole one waits."""

    def __init__(self, plan: Plan, logs: Mapping[str, SourceLog], take: Take, cut: Cut):
        self._logs = logs
        self._take = take
        self._cut = cut
        self._is_possible = may_run_ahead(plan)
        self._under_way: Ends | None = None  # where the epoch under way ends
        self._planned: Planned | None = None  # the one after it

    def planned(self, start: Ends) -> Ends | None:
        """Return, once, where the epoch ends that begins at ``start``; None where it was not
        planned ahead.
        """
        planned = self._planned
        self._planned = None
        is_next = planned is not None and planned.start == start
        return planned.ends if planned and is_next else None

    def begin(self, ends: Ends) -> None:
        """Note that an epoch begins, and where it ends."""
        self._under_way = ends

    def ahead(self, batch: int, is_sampled: bool, admitted: Admission) -> Ahead | None:
        """Plan the epoch after the one under way; None where tasks are not to begin with it."""
        start = self._under_way
        if start is None or not self._is_possible or admitted.is_held:
            return None
        if admitted.limits is not None or self._waiting(start) < admitted.events_max:
            return None
        ends = self._take(start, admitted)
        self._planned = Planned(start, ends)
        return Ahead(batch, self._cut(start, ends), is_sampled)

    def _waiting(self, start: Ends) -> int:
        return sum(log.backlog(start[name]) for name, log in self._logs.items())
