"""Rules about joins and ``dedupe``: their spans are spans, and there is such a way to join.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.check.subject import Subject, used_steps
from wallaroo.errors import Problem
from wallaroo.joins.step import HOW, HOW_LATEST, Dedupe, IntervalJoin, LatestJoin


def joins_have_a_span(subject: Subject) -> Iterator[Problem]:
    """A span is whole nanoseconds; ``how`` is one of a few words."""
    for used in used_steps(subject):
        step = used.step
        if not isinstance(step, IntervalJoin | LatestJoin | Dedupe):
            continue
        within = step.spec.within_ns
        is_open = within is None and isinstance(step, LatestJoin)
        if not is_open and (type(within) is not int or within < 0):
            what = f"{within!r} is no span of time."
            fix = "Give whole nanoseconds, such as wallaroo.seconds(10)."
            yield Problem(used.title, used.place, what, fix)
        known = HOW_LATEST if isinstance(step, LatestJoin) else tuple(HOW)
        if step.spec.how not in known:
            what = f"how={step.spec.how!r} is unknown here."
            fix = f"Choose one of {', '.join(map(repr, known))}."
            yield Problem(used.title, used.place, what, fix)
