"""Rules about joins and ``dedupe``: their spans, and ways to join.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
from wallaroo.dataflow.check.windows import range_problems
from wallaroo.errors import Problem
from wallaroo.steps.joins.step import HOW, HOW_LATEST, Dedupe, IntervalJoin, LatestJoin, WindowJoin
from wallaroo.steps.times import span_problem
from wallaroo.steps.windows.spec import RangeWindowSpec


def joins_have_a_span(subject: Subject) -> Iterator[Problem]:
    """Require spans of whole nanoseconds, and a known ``how``."""
    for used in used_steps(subject):
        step = used.step
        if isinstance(step, WindowJoin):
            yield from _windows(used, step)
            yield from _how(used, step.spec.how, tuple(HOW))
        if not isinstance(step, IntervalJoin | LatestJoin | Dedupe):
            continue
        within = step.spec.within_ns
        is_open = within is None and isinstance(step, LatestJoin)
        option = "max_age" if isinstance(step, LatestJoin) else "within"
        problem = None if is_open else span_problem(f"{option}={within!r}", within)
        if problem:
            yield used.problem(*problem)
        known = HOW_LATEST if isinstance(step, LatestJoin) else tuple(HOW)
        yield from _how(used, step.spec.how, known)


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
