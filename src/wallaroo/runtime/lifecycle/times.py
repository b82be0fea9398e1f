"""Progress of time in a run's sources and steps.

Where it runs: driver; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wallaroo.dataflow.plan.model import Plan, SourceTime
from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.engine.time.watermarks import SourceMark, Watermarks, is_idle
from wallaroo.monitoring.metrics.status import StepTime, TimeStatus


@dataclass(frozen=True, slots=True)
class RunTimes:
    sources: Mapping[str, TimeStatus]
    steps: tuple[StepTime, ...] = ()


NO_TIMES = RunTimes({})


def times_of(plan: Plan, marks: Watermarks, now_ns: int) -> RunTimes:
    """Return the progress of time at a clock reading."""
    sources = {
        name: _of_source(marks.sources.get(name, SourceMark()), how, marks.clock_ns, now_ns)
        for name, how in plan.source_times
    }
    held_by = _held_by(plan, marks, sources)
    is_idle = not held_by and any(source.is_idle for source in sources.values())
    holds = plan.watermark_lags_ns
    steps: list[StepTime] = []
    for stage in plan.stages:
        lag_ns = holds[stage.id]
        for step in stage.steps:
            if step.is_stateful:
                time = replace(_status(marks.watermark_ns, now_ns, lag_ns), held_by=held_by)
                if is_idle:
                    time = _idle(time)
                steps.append(StepTime(step.step_name, time))
            lag_ns += step.watermark_lag_ns
    return RunTimes(sources, tuple(steps))


def _status(watermark_ns: int, now_ns: int, watermark_lag_ns: int = 0) -> TimeStatus:
    if watermark_ns == TIME_MIN:
        return TimeStatus(None, None)
    watermark_ns -= watermark_lag_ns
    return TimeStatus(watermark_ns / 1e9, (now_ns - watermark_ns) / 1e9)


def _of_source(mark: SourceMark, how: SourceTime, clock_ns: int, now_ns: int) -> TimeStatus:
    active = {
        name: each.watermark_ns
        for name, each in mark.partitions.items()
        if not is_idle(how, each, clock_ns)
    }
    slowest = min(active, key=lambda name: active[name], default="")
    times = replace(
        _status(mark.watermark_ns, now_ns),
        held_by=f"partition {slowest}" if len(mark.partitions) > 1 and slowest else "",
        partitions=len(mark.partitions),
        idle=len(mark.partitions) - len(active),
    )
    return _idle(times) if mark.partitions and not active else times


def _idle(time: TimeStatus) -> TimeStatus:
    """Return the time of idle sources: the clock's progress since then is not lag."""
    return replace(time, lag_s=None, is_idle=True)


def _held_by(plan: Plan, marks: Watermarks, sources: Mapping[str, TimeStatus]) -> str:
    """Return the source that determines the watermark of all; empty if none is active."""
    active = {
        name: mark.watermark_ns
        for name, how in plan.source_times
        if not (mark := marks.sources.get(name, SourceMark())).has_ended
        and not is_idle(how, mark, marks.clock_ns)
    }
    if not active:
        return ""
    slowest = min(active, key=lambda name: active[name])
    return ", ".join(filter(None, (f"source '{slowest}'", sources[slowest].held_by)))
