"""Rules about joins and ``dedupe``: their spans, and ways to join.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
from wallaroo.dataflow.check.windows import range_problems
from wallaroo.errors import Problem
from wallaroo.steps.joins.step import (
    HOW,
    HOW_LATEST,
    Dedupe,
    IntervalJoin,
    JoinSpec,
    JoinUntil,
    LatestJoin,
    OpenJoin,
    WindowJoin,
)
from wallaroo.steps.times import span_problem
from wallaroo.steps.windows.spec import RangeWindowSpec

Described = tuple[str, str] | None


def joins_have_a_span(subject: Subject) -> Iterator[Problem]:
    """Require spans of whole nanoseconds, and a known ``how``."""
    for used in used_steps(subject):
        step = used.step
        if isinstance(step, WindowJoin):
            yield from _windows(used, step)
            yield from _how(used, step.spec.how, tuple(HOW))
        if not isinstance(step, IntervalJoin | LatestJoin | Dedupe):
            continue
        problem = _span(step)
        if problem:
            yield used.problem(*problem)
        known = HOW_LATEST if isinstance(step, LatestJoin) else tuple(HOW)
        yield from _how(used, step.spec.how, known)


def _span(step: IntervalJoin[object] | LatestJoin[object] | Dedupe[object]) -> Described:
    """Return what is wrong with a step's span, and its fix; None if nothing is."""
    spec: JoinSpec = step.spec
    if isinstance(step, JoinUntil):
        return _until(spec)
    if isinstance(step, OpenJoin):
        return None if spec.ttl_ns is None else span_problem(f"ttl={spec.ttl_ns!r}", spec.ttl_ns)
    span = spec.within_ns
    if isinstance(step, LatestJoin):
        return None if span is None else span_problem(f"max_age={span!r}", span)
    return span_problem(f"within={span!r}", span)


def _until(spec: JoinSpec) -> Described:
    until: Any = spec.until and spec.until.function
    if not callable(until):
        what = f"until={until!r:.60} is no function."
        return what, "Give it a function of a left event that returns a time: lambda e: e.expires."
    if spec.over is not None and spec.how not in HOW_LATEST:
        what = f"how={spec.how!r} has no results for right events that are aggregated."
        return what, "Choose 'inner' or 'left'."
    return None


def _how(used: Used, how: object, known: tuple[str, ...]) -> Iterator[Problem]:
    if how not in known:
        what = f"how={how!r} is unknown here."
        fix = f"Choose one of {', '.join(map(repr, known))}."
        yield used.problem(what, fix)


def _windows(used: Used, step: WindowJoin[object]) -> Iterator[Problem]:
    """Require range windows whose only options are slide, delay and offset."""
    windows = step.spec.windows
    for what, fix in range_problems(windows):
        yield used.problem(what, fix)
    plain = RangeWindowSpec(windows.range_ns, windows.slide_ns, windows.delay_ns, windows.offset_ns)
    if windows != plain:
        what = "A join takes no early or corrected results, empty windows, or late data policy."
        fix = "Give it range_windows() with with_slide, with_delay and with_offset only."
        yield used.problem(what, fix)
