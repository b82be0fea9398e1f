"""Background upgrade of stored state objects, a portion per batch.

Where it runs: driver.  First the old objects of each step are counted, then they are upgraded.
A batch's progress counts with its commit; the next run inspects the stored objects again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from wallaroo.dataflow.plan.model import Plan
from wallaroo.dataflow.plan.schemas import evolving_steps
from wallaroo.engine.report import TaskReport
from wallaroo.engine.stores.background_upgrades import Portion
from wallaroo.monitoring.metrics.status import StepUpgrade
from wallaroo.steps.state_versions import FIRST, version_of

_log = logging.getLogger("wallaroo.run")

# units that a task does per second (`engine.stores`): a fifth to a quarter of a core
UNITS_PER_S = 50_000
UNITS_MIN = 20  # fewer are done in a later batch
UNITS_MAX = 20_000  # in a batch: events wait for it
IDLE = 2  # factor for a batch without input
PAUSE_S = 0.05  # between two batches without input


class StateUpgrades:
    """Portions of one run.

    ``progress``: that of each step, by the order of the plan.
    """

    def __init__(self, plan: Plan):
        steps = evolving_steps(plan)
        names = [name for name in steps if name in plan.evolution]
        self._groups = range(plan.key_groups)
        self._left: dict[str, dict[int, int]] = {name: {} for name in names}  # by key group
        self._steps = {name: _begun(name, version_of(steps[name].state_class)) for name in names}
        self._may_lack = {name: plan.evolution[name].may_lack for name in names}
        self._rounds = deque((name, is_count) for is_count in (True, False) for name in names)
        self._cursors: dict[int, bytes] = dict.fromkeys(self._groups, b"")
        self._at = time.monotonic()

    @property
    def progress(self) -> tuple[StepUpgrade, ...]:
        """Return the progress of each step."""
        return tuple(self._steps.values())

    @property
    def due_in_s(self) -> float:
        """Return the seconds until a batch without input is due for a portion."""
        if not self._rounds:
            return float("inf")
        return max(0.0, self._at + PAUSE_S - time.monotonic())

    def portion(self, is_idle: bool) -> Portion | None:
        """Return the portion of a batch that begins now; ``is_idle``: it has no input."""
        if not self._rounds:
            return None
        now = time.monotonic()
        per_s = UNITS_PER_S * IDLE if is_idle else UNITS_PER_S
        units = min(int(per_s * (now - self._at)), UNITS_MAX)
        if units < UNITS_MIN:
            return None
        self._at = now
        step, is_count = self._rounds[0]
        if self._may_lack[step]:
            units //= 2  # each object is unpickled
        return Portion(step, dict(self._cursors), units, is_count)

    def committed(self, portion: Portion, reports: Sequence[TaskReport]) -> None:
        """Record a committed batch's progress in its portion."""
        left = self._left[portion.step]
        for report in reports:
            for group, (cursor, old) in report.upgraded.items():
                if portion.is_count:
                    left[group] = left.get(group, 0) + old
                else:
                    left[group] = 0 if cursor is None else max(0, left[group] - old)
                if cursor is None:
                    del self._cursors[group]
                else:
                    self._cursors[group] = cursor
        self._note(portion)
        while self._rounds and not self._cursors:
            self._end_round()

    def _note(self, portion: Portion) -> None:
        was = self._steps[portion.step]
        left = sum(self._left[portion.step].values())
        upgraded = was.upgraded if portion.is_count else was.upgraded + was.left - left
        self._steps[portion.step] = replace(was, left=left, upgraded=upgraded)

    def _end_round(self) -> None:
        step, is_count = self._rounds.popleft()
        now = self._steps[step]
        if is_count:
            now = replace(now, is_counted=True)
            if now.left:
                _log.info(now.begins)
        else:
            now = replace(now, is_done=True)
            _log.info(now.ends)
        self._steps[step] = now
        if self._rounds:
            next_step, is_next_count = self._rounds[0]
            left = self._left[next_step]
            groups = self._groups if is_next_count else (each for each in left if left[each])
            self._cursors = dict.fromkeys(groups, b"")


def _begun(step: str, version: int) -> StepUpgrade:
    return StepUpgrade(step, version if version > FIRST else 0)
