"""Aggregations that come with the package, as objects to pass to ``over``.

Where it runs: everywhere.

The argument ``of`` of an aggregation is a function from an event to the value that counts, or the
name of a column of rows; without it the event itself is the value.  All can be combined, so they
work with sliding windows and sessions.

>>> from wallaroo.aggregations import Count, Mean, combine_of
>>> both = combine_of(n=Count(), mean=Mean())
>>> state = both.initial_accumulator()
>>> for number in (1, 2, 6):
...     _ = both.update(number, state)
>>> both.output("key", state)
{'n': 3, 'mean': 3.0}

``where`` lets any of them count some of the events only:

>>> large = Sum().where(lambda number: number > 1)
>>> large.update(6, large.update(1, 0) or 0)
6
"""

from __future__ import annotations

import copy
import heapq
import math
import operator
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from wallaroo.steps.windows.aggregation import (
    COMBINED,
    COUNT,
    GREATEST,
    LEAST,
    MEAN,
    SUM,
    Aggregation,
    BoundAggregation,
    Filtered,
    Partial,
    adds_up_exactly,
    as_it_is,
    as_result,
    calls_of,
    is_ours,
    partial_of_values,
    wrong_option,
)
from wallaroo.steps.windows.spec import Window
from wallaroo.steps.windows.sums import absorbed, joined, noted, plus, total_of

# fmt: off
__all__ = [
    "Count", "CountIf", "Sum", "Mean", "Min", "Max", "MinBy", "MaxBy", "First", "Last", "Distinct",
    "Variance", "StandardDeviation", "TopN", "Collect", "CombineOf", "combine_of",
]
# fmt: on

Update = Callable[[Any, Any], Any]
Event = TypeVar("Event")
Value = TypeVar("Value")
Of = Callable[[Any], Any] | None
OfOrColumn = Callable[[Any], Any] | str | None
_NAN = ("NaN",)  # in a set: a NaN equals nothing, not even another one


def _itself(event: Any) -> Any:
    return event


def _function(given: Any, option: str = "of") -> Callable[[Any], Any]:
    """Return the function of an option; raise WallarooParameterError if it is not one."""
    if given is None:
        return _itself
    if not callable(given):
        what = f"{option} is {given!r:.60}, not a function."
        fix = "Give it a function of one event, such as lambda event: event.price."
        raise wrong_option("an aggregation", what, fix)
    function: Callable[[Any], Any] = given
    return function


class _Named(Aggregation[Any, Any, Any]):
    """An aggregation whose step has its class's name, in lower case.

    ``_keep`` is called for the parts of events that an accumulator keeps.
    """

    has_any_order: ClassVar[bool] = False  # the order of events does not matter
    _keep: Callable[[Any], Any] = staticmethod(as_it_is)

    def name(self) -> str:
        return type(self).__name__.lower()


class _OfValue(_Named):
    def __init__(self, of: OfOrColumn = None):
        self.column = of if isinstance(of, str) else None
        self.of = _function(of if self.column is None else operator.itemgetter(self.column))


class _OfOne(_OfValue):
    """The value of one event.

    None, which emits nothing, if there was none.
    """

    def initial_accumulator(self) -> list[Any]:
        return []

    def output(self, key: Any, value: list[Any], /) -> Any:
        return as_result(value[0]) if value else None


class Count(_Named):
    """The number of events."""

    adds_up_exactly = True
    has_any_order = True
    _fold = COUNT

    def initial_accumulator(self) -> int:
        return 0

    def update(self, event: Any, count: int, /) -> int:
        return count + 1

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, key: Any, count: int, /) -> int:
        return count


class CountIf(Count):
    """The number of events for which a predicate returns a true value."""

    def __init__(self, predicate: Callable[[Any], object]):
        self.predicate = _function(predicate, "predicate")

    def update(self, event: Any, count: int, /) -> int:
        return count + 1 if self.predicate(event) else count


class Sum(_OfValue):
    """The sum of values; 0 if there is none.

    Whole numbers are added apart from others, which are added in the order in which they came.
    """

    _fold = SUM

    def initial_accumulator(self) -> Any:
        return 0

    def update(self, event: Any, total: Any, /) -> Any:
        value = self.of(event)
        return total + value if type(value) is type(total) else plus(total, value)

    def combine(self, left: Any, right: Any, /) -> Any:
        return joined(left, right)

    def output(self, key: Any, total: Any, /) -> Any:
        return total_of(total)

    def _partial(self) -> Partial:
        return Partial(lambda: 0, self._note, partial(absorbed, 0), absorbed)

    def _note(self, event: Any, values: Any) -> Any:
        value = self.of(event)
        return values + value if type(value) is type(values) is int else noted(values, value)


class Mean(_OfValue):
    """The arithmetic mean; None, which emits nothing, if there is no value."""

    _fold = MEAN

    def initial_accumulator(self) -> list[Any]:
        return [0, 0]

    def update(self, event: Any, state: list[Any], /) -> None:
        value = self.of(event)
        total = state[1]
        state[1] = total + value if type(value) is type(total) else plus(total, value)
        state[0] += 1

    def checked_update(self) -> Update:
        def update(event: Any, state: list[Any]) -> None:
            count, total = state
            self.update(event, state)
            try:
                total_of(state[1]) / state[0]  # raises if no float can hold it
            except OverflowError:
                state[:] = count, total
                raise

        return update

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return [left[0] + right[0], joined(left[1], right[1])]

    def output(self, key: Any, state: list[Any], /) -> float | None:
        return total_of(state[1]) / state[0] if state[0] else None

    def _partial(self) -> Partial:
        return Partial(self.initial_accumulator, self._note, self._whole, self._absorb_partial)

    def _note(self, event: Any, state: list[Any]) -> None:
        state[1] = noted(state[1], self.of(event))
        state[0] += 1

    def _whole(self, state: list[Any]) -> list[Any]:
        return [state[0], absorbed(0, state[1])]

    def _absorb_partial(self, state: list[Any], other: list[Any]) -> list[Any]:
        return [state[0] + other[0], absorbed(state[1], other[1])]


class Min(_OfOne):
    """The smallest value.

    None if there is none; NaN counts only if there is nothing else.
    """

    adds_up_exactly = True
    _fold = LEAST

    def update(self, event: Any, least: list[Any], /) -> None:
        value = self.of(event)
        if not least:
            least.append(self._keep(value))
        elif value < least[0] or least[0] != least[0]:
            least[0] = self._keep(value)

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        if not left or not right:
            return left or right
        return right if right[0] < left[0] or left[0] != left[0] else left


class Max(_OfOne):
    """The greatest value.

    None if there is none; NaN counts only if there is nothing else.
    """

    adds_up_exactly = True
    _fold = GREATEST

    def update(self, event: Any, greatest: list[Any], /) -> None:
        value = self.of(event)
        if not greatest:
            greatest.append(self._keep(value))
        elif value > greatest[0] or greatest[0] != greatest[0]:
            greatest[0] = self._keep(value)

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        if not left or not right:
            return left or right
        return right if right[0] > left[0] or left[0] != left[0] else left


class MaxBy(_Named):
    """The event with the greatest value of ``of``.

    None, which emits nothing, if there is none.

    Of several, it is the one that came first; with ``ties=True`` the result is the list of all of
    them, in the order in which they came.  NaN counts only if there is nothing else.
    """

    adds_up_exactly = True
    _kept_by = ("ties",)  # parameters that determine an accumulator's content
    _exceeds: ClassVar[Callable[[Any, Any], Any]] = operator.gt

    def __init__(self, of: Of = None, *, ties: bool = False):
        self.of = _function(of)
        self.ties = ties

    def initial_accumulator(self) -> list[Any]:
        return []  # later the value and its events

    def update(self, event: Any, best: list[Any], /) -> None:
        value = self.of(event)
        if not best or self._is_beaten(best[0], value):
            best[:] = self._keep(value), self._keep(event)
        elif self.ties and self._is_tied(best[0], value):
            best.append(self._keep(event))

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        if not left or not right:
            return left or right
        if self._is_beaten(left[0], right[0]):
            return right
        return left + right[1:] if self.ties and self._is_tied(left[0], right[0]) else left

    def output(self, key: Any, best: list[Any], /) -> Any:
        if not best:
            return None
        return list(map(as_result, best[1:])) if self.ties else as_result(best[1])

    def _is_beaten(self, best: Any, value: Any) -> bool:
        if value != value:
            return False
        return best != best or bool(type(self)._exceeds(value, best))

    @staticmethod
    def _is_tied(best: Any, value: Any) -> bool:
        return bool(value == best or (value != value and best != best))


class MinBy(MaxBy):
    """The event, or all events, with the least value of ``of``.

    See ``MaxBy``.
    """

    _exceeds = operator.lt


class First(_OfOne):
    """The value of the event that came first.

    None, which emits nothing, if there is none.

    In sliding windows and joined sessions, it is the first one of the earliest pane.
    """

    is_of_order = True
    adds_up_exactly = True

    def update(self, event: Any, first: list[Any], /) -> None:
        if not first:
            first.append(self._keep(self.of(event)))

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return left or right


class Last(_OfOne):
    """The value of the event that came last.

    None, which emits nothing, if there is none.

    In sliding windows and joined sessions, it is the last one of the latest pane.
    """

    is_of_order = True
    adds_up_exactly = True

    def update(self, event: Any, last: list[Any], /) -> None:
        last[:] = [self._keep(self.of(event))]

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return right or left


class Distinct(_OfValue):
    """The exact number of distinct, hashable values.

    Memory and state grow with their number.

    NaN is one value.  ``wallaroo.sketches.Distinct`` estimates the number in a few kilobytes.
    """

    adds_up_exactly = True
    has_any_order = True

    def initial_accumulator(self) -> set[Hashable]:
        return set()

    def update(self, event: Any, found: set[Hashable], /) -> None:
        value = self.of(event)
        found.add(self._keep(value) if value == value else _NAN)

    def combine(self, left: set[Hashable], right: set[Hashable], /) -> set[Hashable]:
        return left | right

    def _absorb(self, left: set[Hashable], right: set[Hashable], /) -> set[Hashable]:
        """Combine into the left set: copying it would take time in proportion to its size."""
        left |= right
        return left

    def output(self, key: Any, found: set[Hashable], /) -> int:
        return len(found)


class Variance(_OfValue):
    """The variance of a population or, with ``sample=True``, that of a sample.

    Welford's update, and the method of Chan, Golub and LeVeque (1979) to join two parts: exact to
    the last digits even if the mean is large.
    """

    def __init__(self, of: OfOrColumn = None, sample: bool = False):
        super().__init__(of)
        self.sample = sample

    def initial_accumulator(self) -> list[float]:
        return [0, 0.0, 0.0]  # count, mean, sum of squared distances from the mean

    def update(self, event: Any, state: list[float], /) -> None:
        self._add(state, self.of(event))

    def checked_update(self) -> Update:
        return lambda event, state: self._add(state, self._value(event))

    def _add(self, state: list[float], value: float) -> None:
        distance = value - state[1]
        state[0] += 1
        state[1] += distance / state[0]
        state[2] += distance * (value - state[1])

    def _partial(self) -> Partial:
        return partial_of_values(self._value, self._add, self.initial_accumulator)

    def _value(self, event: Any) -> Any:
        value = self.of(event)
        _ = value - 0.0 < 0.0  # raises for all but real numbers: here the event is known
        return value

    def combine(self, left: list[float], right: list[float], /) -> list[float]:
        if not left[0] or not right[0]:
            return left if left[0] else right
        count = left[0] + right[0]
        distance = right[1] - left[1]
        mean = left[1] + distance * right[0] / count
        return [count, mean, left[2] + right[2] + distance**2 * left[0] * right[0] / count]

    def output(self, key: Any, state: list[float], /) -> float | None:
        divisor = state[0] - self.sample
        return state[2] / divisor if divisor > 0 else None


class StandardDeviation(Variance):
    """The square root of the variance."""

    def output(self, key: Any, state: list[float], /) -> float | None:
        variance = super().output(key, state)
        return None if variance is None else math.sqrt(variance)


class TopN(_Named, Generic[Event]):
    """The ``n`` events with the greatest values of ``by``, greatest first.

    Among equal ones, those that came first win (in sliding windows and joined sessions: those of
    the earlier pane).  NaN counts only if there are no other values.
    """

    adds_up_exactly = True
    _kept_by = ("n",)

    def __init__(self, n: int, by: Of = None):
        if not isinstance(n, int) or n < 1:
            what = f"n is {n!r:.60}, not a positive number of events."
            raise wrong_option("TopN", what, "Give 1 or more.")
        self.n = n
        self.by = _function(by, "by")

    def initial_accumulator(self) -> list[Any]:
        return []

    def update(self, event: Event, top: list[Event], /) -> None:
        self.by(event)  # raises here, where the event is known
        top.append(self._keep(event))
        if len(top) >= 2 * self.n + 16:
            top[:] = self._top(top)

    def checked_update(self) -> Update:
        def update(event: Any, top: list[Any]) -> None:
            rank = self._rank(event)
            if top:
                _ = rank < self._rank(top[0])  # raises if they cannot be compared
            self.update(event, top)

        return update

    def combine(self, left: list[Event], right: list[Event], /) -> list[Event]:
        return self._top([*left, *right])

    def output(self, key: Any, top: list[Event], /) -> list[Event]:
        return list(map(as_result, self._top(top)))

    def _top(self, events: list[Event]) -> list[Event]:
        return heapq.nlargest(self.n, events, key=self._rank)

    def _rank(self, event: Event) -> tuple[bool, Any]:
        value = self.by(event)
        return value == value, value  # NaN is the least


class Collect(_OfValue):
    """All values, in order of arrival.

    Memory and state grow with their number.
    """

    is_of_order = True

    def initial_accumulator(self) -> list[Any]:
        return []

    def update(self, event: Any, found: list[Any], /) -> None:
        found.append(self.of(event))

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        return left + right

    def _absorb(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Combine into the left list: copying it would take time in proportion to its size."""
        left += right
        return left

    def output(self, key: Any, found: list[Any], /) -> list[Any]:
        return list(map(as_result, found))


def _selective(part: Any) -> tuple[Of, Any]:
    """Return the condition for adding an event, or None, and the aggregation that receives it."""
    return (part.predicate, part.whole) if type(part) is Filtered else (None, part)


# accumulators that are cheap to copy, and those that accept every event that an empty one does
_SHORT = frozenset(
    {
        Count,
        CountIf,
        Sum,
        Mean,
        Min,
        Max,
        MaxBy,
        MinBy,
        First,
        Last,
        Variance,
        StandardDeviation,
        TopN,
    }
)


def _update_each(updates: list[tuple[int, Of, Update]], event: Any, states: list[Any]) -> None:
    """Add an event to each of several accumulators whose condition it meets."""
    for place, predicate, update in updates:
        if predicate is None or predicate(event):
            changed = update(event, states[place])
            if changed is not None:
                states[place] = changed


class CombineOf(Aggregation[Any, list[Any], Any]):
    """Several aggregations over the same windows; see ``combine_of``."""

    _fold = COMBINED

    def __init__(self, parts: dict[str, Any]):
        self.parts = parts
        self._calls = [calls_of(part) for part in parts.values()]
        selective = [
            (predicate, calls_of(whole)) for predicate, whole in map(_selective, parts.values())
        ]
        self._selective = selective
        self._updates = [
            (place, predicate, calls.update) for place, (predicate, calls) in enumerate(selective)
        ]
        self.adds_up_exactly = all(map(adds_up_exactly, parts.values()))
        self.is_of_order = any(getattr(part, "is_of_order", False) for part in parts.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return CombineOf, (self.parts,)

    def name(self) -> str:
        return " and ".join(self.parts)

    def initial_accumulator(self) -> list[Any]:
        return [calls.initial() for calls in self._calls]

    def update(self, event: Any, states: list[Any], /) -> None:
        _update_each(self._updates, event, states)

    def checked_update(self) -> Update:
        """Return an update that excludes an event from all parts if it fails in one of them.

        Short accumulators are restored.  To the others the event is added last; all but the first
        of them are tried with an empty accumulator before.  Those of users come first: whether they
        accept an event may depend on their content.
        """
        short: list[tuple[int, Of, Update]] = []
        long: list[tuple[bool, int, Of, BoundAggregation]] = []
        for place, part in enumerate(self.parts.values()):
            predicate, whole = _selective(part)
            calls = calls_of(whole, is_checked=True)
            if type(whole) in _SHORT:
                short.append((place, predicate, calls.update))
            else:
                holds_any = is_ours(type(whole)) and type(whole) is not CombineOf
                long.append((holds_any, place, predicate, calls))
        long.sort(key=lambda each: each[:2])
        trials = [(predicate, calls) for _, _, predicate, calls in long[1:]]
        updates = short + [(place, predicate, calls.update) for _, place, predicate, calls in long]

        def update(event: Any, states: list[Any]) -> None:
            for predicate, calls in trials:
                if predicate is None or predicate(event):
                    calls.update(event, calls.initial())
            before = [(place, copy.copy(states[place])) for place, _, _ in short]
            try:
                _update_each(updates, event, states)
            except BaseException:
                for place, state in before:
                    states[place] = state
                raise

        return update

    def combine(self, left: list[Any], right: list[Any], /) -> list[Any]:
        pairs = zip(self._calls, left, right, strict=True)
        return [calls.combine(one, other) for calls, one, other in pairs]

    def _absorb(self, left: list[Any], right: list[Any], /) -> list[Any]:
        """Combine; parts of the left accumulator may change."""
        pairs = zip(self._calls, left, right, strict=True)
        return [calls.absorb(one, other) for calls, one, other in pairs]

    def _partial(self) -> Partial | None:
        parts: list[Partial] = []
        updates: list[tuple[int, Of, Update]] = []
        for place, (predicate, calls) in enumerate(self._selective):
            if calls.partial is None:
                return None
            parts.append(calls.partial)
            updates.append((place, predicate, calls.partial.update))
        converted = [
            (place, part.whole) for place, part in enumerate(parts) if part.whole is not as_it_is
        ]

        def whole(states: list[Any]) -> list[Any]:
            for place, of_part in converted:
                states[place] = of_part(states[place])
            return states

        def absorb(states: list[Any], others: list[Any]) -> list[Any]:
            pairs = zip(parts, states, others, strict=True)
            return [part.absorb(one, other) for part, one, other in pairs]

        def initial() -> list[Any]:
            return [part.initial() for part in parts]

        events_min = max(part.events_min for part in parts)
        is_ordered = any(part.is_ordered for part in parts)
        update = partial(_update_each, updates)
        return Partial(initial, update, whole, absorb, events_min, is_ordered)

    def output(self, key: Any, states: list[Any], window: Window | None = None, /) -> Any:
        window = window or Window(0, 0)
        return {
            name: calls.output(key, state, window)
            for name, calls, state in zip(self.parts, self._calls, states, strict=True)
        }


def combine_of(**parts: Aggregation[Any, Any, Any]) -> CombineOf:
    """Combine aggregations into one, whose result is a dict by the arguments' names."""
    if not parts:
        fix = "Give it one or more, such as combine_of(n=Count(), total=Sum(price))."
        raise wrong_option("combine_of", "It was given no aggregation.", fix)
    for name, part in parts.items():
        if isinstance(part, type) or not hasattr(part, "update"):
            fix = "Give it an object of an aggregation, such as Count()."
            raise wrong_option("combine_of", f"{name} is {part!r:.60}, not an aggregation.", fix)
    return CombineOf(parts)
