"""Rules about windows and joins: aggregations, spans, and options."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, Used, used_steps
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
from wallaroo.steps.times import SPAN_MIN_NS, shown_span, span_problem
from wallaroo.steps.windows.aggregation import METHODS, Aggregation, Filtered
from wallaroo.steps.windows.spec import (
    DEAD_LETTER,
    RANGE_POLICIES,
    SESSION_POLICIES,
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
)
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.compiled import never_returns_a_value, returns_nothing
from wallaroo.user_code.mutability import cannot_change

Described = tuple[str, str] | None
RETURNED = (
    ("combine", "the events of both parts would be lost", "Return the combined accumulator."),
    ("output", "no window has a result", "Return the result."),
)
SIGNATURES = {
    "initial_accumulator": "initial_accumulator(self)",
    "update": "update(self, event, accumulator)",
    "combine": "combine(self, left, right)",
    "output": "output(self, key, accumulator)",
}


def _windows(subject: Subject) -> Iterator[tuple[Used, WindowStep[Any, Any]]]:
    for used in used_steps(subject):
        if isinstance(used.step, WindowStep):
            yield used, used.step


def _aggregations(subject: Subject) -> Iterator[tuple[Used, tuple[Any, Any]]]:
    """Yield the aggregations of windows and joins, as passed and as objects."""
    for used in used_steps(subject):
        over = getattr(getattr(used.step, "spec", None), "over", None)
        found = used.step if isinstance(used.step, WindowStep) else over
        if found is not None:
            yield used, (found.given, found.aggregation)


def aggregations_aggregate(subject: Subject) -> Iterator[Problem]:
    """Require aggregations with all methods in ``over``."""
    for used, (given, aggregation) in _aggregations(subject):
        if inspect.isclass(aggregation):
            yield from _not_made(used, given)
        elif not isinstance(aggregation, Aggregation) and not _looks_like_one(given):
            what = f"over was given {given!r:.60} instead of an aggregation."
            fix = "Give it one of wallaroo.aggregations, or your class derived from Aggregation."
            yield used.problem(what, fix)
        else:
            own = aggregation
            while isinstance(own, Filtered):
                own = own.whole
            problems = list(_methods(used, own))
            yield from problems or _accumulator(used, own, subject.serialize)


def _looks_like_one(given: Any) -> bool:
    return any(callable(getattr(given, method, None)) for method in METHODS)


def _not_made(used: Used, given: type[Any]) -> Iterator[Problem]:
    try:
        given()
    except Exception as error:
        what = f"Its aggregation {given.__name__} cannot be created without arguments ({error})."
        fix = "Give every argument of __init__ a default, or give over() an object of it."
        yield used.problem(what, fix)


def _methods(used: Used, aggregation: Any) -> Iterator[Problem]:
    name = type(aggregation).__name__
    for method, arity in METHODS.items():
        found = getattr(aggregation, method, None)
        if not callable(found) or _is_inherited(aggregation, method):
            what = f"Its aggregation {name} has no method {method}()."
            yield used.problem(what, f"Add def {SIGNATURES[method]}.")
        elif not _takes(found, arity, arity + (method == "output")):
            what = f"{name}.{method} cannot be called with {arity} arguments."
            yield used.problem(what, f"Write it as def {SIGNATURES[method]}.")


def _accumulator(
    used: Used, aggregation: Any, serialize: Callable[[Any], bytes] | None
) -> Iterator[Problem]:
    name = type(aggregation).__name__
    try:
        accumulator = aggregation.initial_accumulator()
    except Exception as error:
        what = f"{name}.initial_accumulator() raised {type(error).__name__}: {error}."
        yield used.problem(what, "Return a new, empty accumulator.")
        return
    if accumulator is None:
        what = f"{name}.initial_accumulator() returned None."
        yield used.problem(what, "Return an empty accumulator, such as [] or 0.")
        return
    if cannot_change(accumulator) and never_returns_a_value(aggregation.update):
        kind = type(accumulator).__name__
        what = f"{name}.update returns no value, and its accumulator, {kind}, cannot be changed."
        yield used.problem(what, "Return the new accumulator.")
    for method, why, fix in RETURNED:
        if returns_nothing(getattr(aggregation, method)):
            yield used.problem(f"{name}.{method} never returns a value: {why}.", fix)
            return
    if _combines_to_none(aggregation):
        what = f"{name}.combine() returned None for two empty accumulators."
        yield used.problem(what, "Return the combined accumulator, left for example.")
    try:
        (serialize or pickle.dumps)(accumulator)
    except Exception as error:
        what = f"Its accumulator, a {type(accumulator).__name__}, cannot be stored: {error}."
        yield used.problem(what, "Keep only picklable values in it.")


def _combines_to_none(aggregation: Any) -> bool:
    try:
        left = aggregation.initial_accumulator()
        return aggregation.combine(left, aggregation.initial_accumulator()) is None
    except Exception:  # it may only accept accumulators that hold events
        return False


def _is_inherited(aggregation: Any, method: str) -> bool:
    return getattr(type(aggregation), method, None) is getattr(Aggregation, method)


def _takes(function: Callable[..., Any], *arities: int) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    for arity in arities:
        try:
            signature.bind(*[None] * arity)
        except TypeError:
            continue
        return True
    return False


def windows_have_a_span(subject: Subject) -> Iterator[Problem]:
    """Require windows with a length and consistent options."""
    for used, step in _windows(subject):
        policy = getattr(step.spec, "policy", None)
        if policy == DEAD_LETTER and step.on_error != DEAD_LETTER:
            what = f"Its late events go to dead letters, and it has on_error={step.on_error!r}."
            yield used.problem(what, "Write over(..., on_error='dead-letter').")
        for what, fix in SPECS[type(step.spec)](step.spec):
            yield used.problem(what, fix)


Found = Iterator[tuple[str, str]]


def _spans(*given: tuple[str, Any, int]) -> Found:
    """Yield a problem for each invalid span, given its call, value and minimum."""
    for call, span, least in given:
        problem = span_problem(f"{call}({shown_span(span)})", span, least)
        if problem:
            yield problem


def _is_count(given: Any, least: int) -> bool:
    return type(given) is int and given >= least


def range_problems(spec: RangeWindowSpec) -> Found:
    """Yield the problems of range windows, each with its fix."""
    early_ns = SPAN_MIN_NS if spec.early_ns is None else spec.early_ns
    corrected_ns = SPAN_MIN_NS if spec.corrected_ns is None else spec.corrected_ns
    range_problem = list(_spans(("range_windows", spec.range_ns, 1)))
    if range_problem:
        yield from range_problem
        return
    slide_problem = list(_spans(("with_slide", spec.slide_ns, 1)))
    yield from slide_problem
    if not slide_problem and spec.slide_ns > spec.range_ns:
        yield (
            f"The slide ({shown_span(spec.slide_ns)}) is longer than the range "
            f"({shown_span(spec.range_ns)}): events between two windows would be lost.",
            "Give a slide that is at most the range.",
        )
    yield from _spans(
        ("with_delay", spec.delay_ns, 0),
        ("with_offset", spec.offset_ns, 0),
        ("with_early_results", early_ns, 1),
        ("with_allowed_lateness", spec.lateness_ns, 0),
        ("with_allowed_lateness(..., every)", corrected_ns, 1),
    )
    if not _is_count(spec.empty_limit, 0):
        yield f"with_empty_windows({spec.empty_limit!r}) is not a number.", "Give a whole number."
    yield from _policy(spec.policy, RANGE_POLICIES)


def _policy(policy: Any, known: tuple[str, ...]) -> Found:
    if policy not in known:
        what = f"The late data policy {policy!r} is unknown here."
        yield what, f"Choose one of {', '.join(map(repr, known))}."


def _count(spec: CountWindowSpec) -> Found:
    if not _is_count(spec.count, 1):
        yield f"count_windows({spec.count!r}) is not a number of events.", "Give 1 or more."
    if spec.timeout_ns is not None:
        yield from _spans(("with_timeout", spec.timeout_ns, 1))


def _session(spec: SessionWindowSpec) -> Found:
    yield from _spans(("session_windows", spec.gap_ns, 1), ("with_delay", spec.delay_ns, 0))
    yield from _policy(spec.policy, SESSION_POLICIES)


SPECS: dict[type[Any], Callable[[Any], Found]] = {
    RangeWindowSpec: range_problems,
    CountWindowSpec: _count,
    SessionWindowSpec: _session,
}


def joins_have_a_span(subject: Subject) -> Iterator[Problem]:
    """Require spans of whole nanoseconds, and a known ``how``."""
    for used in used_steps(subject):
        step = used.step
        if isinstance(step, WindowJoin):
            yield from _of_join(used, step)
            yield from _how(used, step.spec.how, tuple(HOW))
        if not isinstance(step, IntervalJoin | LatestJoin | Dedupe):
            continue
        problem = _span(step)
        if problem:
            yield used.problem(*problem)
        known = HOW_LATEST if isinstance(step, LatestJoin) else tuple(HOW)
        yield from _how(used, step.spec.how, known)


def _span(step: IntervalJoin[object] | LatestJoin[object] | Dedupe[object]) -> Described:
    """Return the problem of a step's span, and its fix; None if there is none."""
    spec: JoinSpec = step.spec
    if isinstance(step, JoinUntil):
        return _until(spec)
    if isinstance(step, OpenJoin):
        return (
            None
            if spec.ttl_ns is None
            else span_problem(f"ttl={shown_span(spec.ttl_ns)}", spec.ttl_ns)
        )
    span = spec.within_ns
    if isinstance(step, LatestJoin):
        return None if span is None else span_problem(f"max_age={shown_span(span)}", span)
    return span_problem(f"within={shown_span(span)}", span)


def _until(spec: JoinSpec) -> Described:
    until: Any = spec.until and spec.until.function
    if not callable(until):
        what = f"until={until!r:.60} is not a function."
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


def _of_join(used: Used, step: WindowJoin[object]) -> Iterator[Problem]:
    """Require range windows with no options but slide, delay and offset."""
    windows = step.spec.windows
    for what, fix in range_problems(windows):
        yield used.problem(what, fix)
    plain = RangeWindowSpec(windows.range_ns, windows.slide_ns, windows.delay_ns, windows.offset_ns)
    if windows != plain:
        what = "A join takes no early or corrected results, empty windows, or late data policy."
        fix = "Give it range_windows() with with_slide, with_delay and with_offset only."
        yield used.problem(what, fix)
