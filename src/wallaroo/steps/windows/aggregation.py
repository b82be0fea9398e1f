"""``Aggregation``: the base class of users' window aggregations.

Subclasses are the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.windows.spec import Window
from wallaroo.user_code.mutability import cannot_change
from wallaroo.user_code.signatures import takes_third
from wallaroo.user_code.user_frames import user_place

In = TypeVar("In", contravariant=True)
Acc = TypeVar("Acc")
Out = TypeVar("Out", covariant=True)
OURS = "wallaroo."
METHODS = {"initial_accumulator": 0, "update": 2, "combine": 2, "output": 2}


def wrong_option(aggregation: str, what: str, fix: str) -> WallarooParameterError:
    """Return the error for an option of an aggregation, with the user's line."""
    return WallarooParameterError(Problem(aggregation, user_place(), what, fix))


class Aggregation(Generic[In, Acc, Out]):
    """Base class of window aggregations: all four methods are the subclass's own.

    >>> class Total(Aggregation[int, int, int]):
    ...     def initial_accumulator(self) -> int:
    ...         return 0
    ...     def update(self, event: int, accumulator: int) -> int:
    ...         return accumulator + event
    ...     def combine(self, left: int, right: int) -> int:
    ...         return left + right
    ...     def output(self, key: object, accumulator: int) -> int:
    ...         return accumulator
    >>> total = Total()
    >>> total.output("a", total.update(2, total.initial_accumulator()))
    2
    """

    # Whether ``combine`` is associative to the last digit: for whole numbers, say, not for floats.
    # Then events may be added up where they are read, and their accumulators are shuffled.
    adds_up_exactly: bool = False

    def name(self) -> str:
        """Return the step's name in errors, metrics and checkpoints: the class's."""
        return type(self).__name__

    def initial_accumulator(self) -> Acc:
        """Return a new, empty accumulator; ``combine`` with it changes nothing."""
        raise NotImplementedError

    def update(self, event: In, accumulator: Acc, /) -> Acc | None:
        """Add an event: change the accumulator in place and return None, or return the new one."""
        raise NotImplementedError

    def combine(self, left: Acc, right: Acc, /) -> Acc:
        """Return the accumulator of both parts' events, ``left`` the earlier ones.

        It must be associative and change neither; it may return one of them.
        """
        raise NotImplementedError

    def output(self, key: Any, accumulator: Acc, /) -> Out | None:
        """Return the window's result; None emits nothing.

        It must not change the accumulator.

        Written with a third argument, ``output(self, key, accumulator, window)``, it also receives
        the ``Window``: its bounds, and the reason it fires.
        """
        raise NotImplementedError

    def where(self, predicate: Callable[[Any], object]) -> Aggregation[In, Acc, Out]:
        """Return the same aggregation over the events for which the predicate is true.

        Windows are the same as without it: one in which no event counts has the result of an empty
        accumulator.
        """
        given: Any = predicate
        if not callable(given):
            what = f"where() was given {given!r:.60}, not a function."
            fix = "Give it a function of one event, such as lambda event: event.price > 9."
            raise wrong_option("an aggregation", what, fix)
        return Filtered(self, predicate)


class Fold(NamedTuple):
    """The kind of an aggregation whose accumulators can be computed from columns.

    ``parts`` are those of several that are computed at once.
    """

    kind: str
    column: str | None = None
    parts: tuple[Fold, ...] = ()


COUNT = "count"  # accumulators: an int
SUM = "sum"  # a number
MEAN = "mean"  # [count, sum]
LEAST = "least"  # [the value], as of all kinds below
GREATEST = "greatest"
COMBINED = "combined"  # a list of the parts' accumulators


def fold_of(aggregation: Any) -> Fold | None:
    """Return the fold that a class declares as ``_fold``; None if there is none.

    A subclass does not inherit it: its methods may be its own.
    """
    kind = vars(type(aggregation)).get("_fold")
    if kind == COMBINED:
        parts = tuple(map(fold_of, aggregation.parts.values()))
        known = tuple(part for part in parts if part is not None)
        return Fold(kind, None, known) if len(known) == len(parts) else None
    column = getattr(aggregation, "column", None)
    return Fold(kind, column) if kind == COUNT or (kind and column is not None) else None


Output = Callable[[Any, Any, Window], Any]


class Partial(NamedTuple):
    """An aggregation's calls for a part of a pane's events, before a shuffle.

    What ``initial`` and ``update`` return may differ from the aggregation's own accumulators.
    ``whole`` returns one of these instead, and may change its argument; ``absorb`` adds to one, and
    may change both.  ``events_min``: with fewer events per accumulator, it costs more than it saves
    (measured).
    """

    initial: Callable[[], Any]
    update: Callable[[Any, Any], Any]
    whole: Callable[[Any], Any]
    absorb: Callable[[Any, Any], Any]
    events_min: int = 3


@dataclass(frozen=True, slots=True)
class BoundAggregation:
    """An aggregation's methods, bound.  ``output`` always accepts the window.

    ``absorb`` combines as ``combine`` does, and may change the left accumulator.  ``partial`` is
    None if events have to cross a shuffle one by one.
    """

    initial: Callable[[], Any]
    update: Callable[[Any, Any], Any]
    combine: Callable[[Any, Any], Any]
    output: Output
    absorb: Callable[[Any, Any], Any]
    partial: Partial | None = None

    def as_partial(self) -> Partial:
        """Return calls that aggregate a part in accumulators of the same form."""
        return Partial(self.initial, self.update, as_it_is, self.absorb)


def as_it_is(accumulator: Any) -> Any:
    """Return the accumulator: a partial one is a whole one."""
    return accumulator


def partial_of_values(
    of: Callable[[Any], Any], add: Callable[[Any, Any], None], initial: Callable[[], Any]
) -> Partial:
    """Return calls whose partial accumulators are values, which are added in their order.

    ``of`` returns an event's value, or raises if ``add`` would.
    """

    def update(event: Any, values: list[Any]) -> None:
        values.append(of(event))

    def absorb(accumulator: Any, values: list[Any]) -> Any:
        for value in values:
            add(accumulator, value)
        return accumulator

    return Partial(list, update, lambda values: absorb(initial(), values), absorb, events_min=16)


def calls_of(aggregation: Any) -> BoundAggregation:
    """Bind an aggregation's methods."""
    if type(aggregation) is Filtered:
        whole = calls_of(aggregation.whole)
        predicate = aggregation.predicate
        partial = whole.partial
        if partial is not None:
            partial = partial._replace(update=_selecting(predicate, partial.update))
        return replace(whole, update=_selecting(predicate, whole.update), partial=partial)
    output = aggregation.output
    if not takes_third(output, "window"):
        output = _without_window(output)
    combine = aggregation.combine
    home = _home_of(aggregation, "_absorb")
    is_own = home is not None and home is _home_of(aggregation, "combine")
    absorb = aggregation._absorb if is_own else combine
    update = _update(aggregation)
    calls = BoundAggregation(_initial(aggregation), update, combine, output, absorb)
    return replace(calls, partial=_partial_of(aggregation, calls))


def _partial_of(aggregation: Any, calls: BoundAggregation) -> Partial | None:
    """Return the calls for a part of a pane's events; None if there are none."""
    partial = _declared_partial(aggregation)
    if partial is None and getattr(aggregation, "adds_up_exactly", False):
        return calls.as_partial()
    return partial


def _declared_partial(aggregation: Any) -> Partial | None:
    """Return what an aggregation's ``_partial`` returns.

    A subclass with an ``update`` of its own, say, does not inherit it.
    """
    methods = ("_partial", "initial_accumulator", "update", "combine")
    home, *others = (_home_of(aggregation, method) for method in methods)
    if home is None or any(other is not home for other in others):
        return None
    partial: Partial | None = aggregation._partial()
    return partial


def has_partial(aggregation: Any) -> bool:
    """Return whether events may be aggregated before a shuffle, if their windows allow it."""
    if type(aggregation) is Filtered:
        return has_partial(aggregation.whole)
    is_exact = getattr(aggregation, "adds_up_exactly", False)
    return is_exact or _declared_partial(aggregation) is not None


def _selecting(
    predicate: Callable[[Any], object], update: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    return lambda event, accumulator: update(event, accumulator) if predicate(event) else None


def _home_of(aggregation: Any, method: str) -> type[Any] | None:
    """Return the class that defines a method: a subclass may have a ``combine`` of its own."""
    homes = (each for each in type(aggregation).__mro__ if method in vars(each))
    return next(homes, None)


def _initial(aggregation: Any) -> Callable[[], Any]:
    """Return ``initial_accumulator``, not None, which by key means no accumulator."""
    make = aggregation.initial_accumulator

    def initial() -> Any:
        accumulator = make()
        if accumulator is None:
            raise TypeError(
                "initial_accumulator() returned None; return an empty accumulator, such as [] or 0"
            )
        return accumulator

    return initial


def _update(aggregation: Any) -> Callable[[Any, Any], Any]:
    """Return ``update``, which must return the accumulator if that cannot change in place.

    Not of aggregations of this package: theirs do, and the check costs each event a call.
    """
    update: Callable[[Any, Any], Any] = aggregation.update
    home = _home_of(aggregation, "update")
    is_ours = home is not None and home.__module__.startswith(OURS)
    try:
        if is_ours or not cannot_change(aggregation.initial_accumulator()):
            return update
    except Exception:  # the user's; it is raised where it is called for an event
        return update

    def checked(event: Any, accumulator: Any) -> Any:
        changed = update(event, accumulator)
        if changed is None:
            kind = type(accumulator).__name__
            raise TypeError(
                f"update() returned None, and its accumulator, {kind}, cannot be changed; "
                "return the new accumulator"
            )
        return changed

    return checked


def _without_window(output: Callable[[Any, Any], Any]) -> Output:
    return lambda key, accumulator, window: output(key, accumulator)


class Filtered(Aggregation[In, Acc, Out]):
    """An aggregation of some of the events (``Aggregation.where``)."""

    def __init__(self, whole: Aggregation[In, Acc, Out], predicate: Callable[[Any], object]):
        self.whole = whole
        self.predicate = predicate
        self.adds_up_exactly = getattr(whole, "adds_up_exactly", False)
        self._calls = calls_of(whole)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filtered, (self.whole, self.predicate)

    def name(self) -> str:
        return self.whole.name()

    def initial_accumulator(self) -> Any:
        return self._calls.initial()

    def update(self, event: Any, accumulator: Any, /) -> Any:
        return self._calls.update(event, accumulator) if self.predicate(event) else None

    def combine(self, left: Any, right: Any, /) -> Any:
        return self._calls.combine(left, right)

    def _absorb(self, left: Any, right: Any, /) -> Any:
        """Combine; the left accumulator may change."""
        return self._calls.absorb(left, right)

    def output(self, key: Any, accumulator: Any, window: Window | None = None, /) -> Any:
        return self._calls.output(key, accumulator, window or Window(0, 0))
